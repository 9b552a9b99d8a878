"""Predict first: a step is covered by a question; the answer is judged kindly, and then everything is shown."""

from __future__ import annotations

import re

import pytest

PREDICT = "text=I+love+dogs+and+dogs&model={model}&step={step}&predict=1"


def test_every_step_asks_and_then_shows(open_page):
    watched = open_page(PREDICT.format(model="default", step=1))
    for step in range(1, 9):
        watched.page.keyboard.press(str(step))
        watched.page.wait_for_selector(".question")
        assert watched.shown() == []  # nothing is given away
        seen = set()
        for _ in range(3):
            seen.add(watched.text("#question"))
            watched.page.click(".question button:has-text('Another')")
        assert len(seen) >= 2, step
        watched.page.click("text=Just show it")
        assert watched.page.is_visible(f".figure[data-step='{step}']")


def answer(watched, text: str) -> str:
    watched.page.fill(".question input[name=answer]", text)
    watched.page.keyboard.press("Enter")
    return watched.text("#verdict")


@pytest.mark.parametrize("given", ["1, T, 128", "[1 T 128]"])
def test_a_shape_is_read_as_it_is_written(given, open_page, lines):
    tokens = len(lines["default"].walk(["I love dogs and dogs"]).texts[0].tokens)
    watched = open_page(PREDICT.format(model="default", step=5))
    said = answer(watched, given.replace("T", str(tokens)))
    assert "Right" in said
    assert f"(1, {tokens}, 128)" in said
    assert watched.page.is_visible(".figure")


def test_a_wrong_answer_is_told_kindly_with_the_real_one(open_page):
    watched = open_page(PREDICT.format(model="default", step=5))
    said = answer(watched, "2, 2, 2")
    assert "Not quite" in said
    assert re.search(r"it is \(1, \d, 128\)", said)
    assert "Not quite" in watched.page.text_content("#live")
    watched.page.click("text=Ask another")
    assert watched.page.is_visible(".question")
    assert "0 of 1 right" in watched.text(".question-count")


def test_a_sum_may_be_rounded(open_page, lines):
    cell = lines["stages"].walk(["I love dogs and dogs"]).texts[0].tokens[1]
    watched = open_page(PREDICT.format(model="stages", step=6))
    assert "What comes out?" in watched.text("#question")
    assert "Right" in answer(watched, f"{cell.stages[2].after[0]:.3f}".replace("-", "\u2212"))


def test_a_choice(open_page):
    watched = open_page(PREDICT.format(model="default", step=6))
    for given, verdict in (("no", "Right"), ("yes", "Not quite")):
        assert "does the row change" in watched.text("#question")
        watched.page.check(f".question input[value={given}]")
        watched.page.click("text=Check")
        assert verdict in watched.text("#verdict")
        watched.page.click("#predict")
        watched.page.reload()
        watched.page.click("#predict")


def test_an_empty_answer_is_no_answer(open_page):
    watched = open_page(PREDICT.format(model="default", step=5))
    watched.page.click("text=Check")
    assert watched.page.is_visible(".question")


def test_the_switch_and_new_texts_cover_again(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=5")
    watched.page.click("#predict")
    assert watched.page.evaluate("document.activeElement.name") == "answer"
    watched.page.click("text=Just show it")
    watched.page.fill("#texts textarea", "Another text")
    watched.page.wait_for_selector(".question")
    watched.page.click("#predict")
    assert watched.page.is_visible(".figure")


def ask_until(watched, word: str) -> None:
    for _ in range(5):
        if word in watched.text("#question"):
            return
        watched.page.click(".question button:has-text('Another')")
    raise AssertionError(word)


@pytest.mark.parametrize(("theta", "fastest"), [("0.5", "the last"), ("1", "neither"), ("500", "the first")])
def test_which_pair_is_faster_is_computed(theta, fastest, open_page):
    watched = open_page(PREDICT.format(model="default", step=6) + f"&theta={theta}")
    ask_until(watched, "faster")
    watched.page.check(f".question input[value='{fastest}']")
    watched.page.click("text=Check")
    assert "Right" in watched.text("#verdict")


def test_a_tied_head_without_a_padding_row_reaches_every_row(open_page, lines):
    trace = lines["quantized"].walk(["abba"])
    assert trace.backward.n_rows_with_gradient == trace.table.shape[0]
    watched = open_page("text=abba&model=quantized&step=8&predict=1")
    said = answer(watched, str(trace.backward.n_rows_with_gradient))
    assert "Right" in said
    assert "A tied head reaches every row." in said
    assert "padding row" not in watched.text(".figure .facts")
