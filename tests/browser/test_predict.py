"""Predict first: a question hides each step until it is answered or skipped."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow

PREDICT = "text=I+love+dogs+and+dogs&model={model}&step={step}&predict=1"


def test_every_step_has_questions(open_page):
    watched = open_page(PREDICT.format(model="default", step=1))
    for step in range(1, 9):
        watched.page.keyboard.press(str(step))
        watched.page.wait_for_selector(".question")
        assert watched.shown() == []  # no numbers are visible
        assert not watched.page.is_visible(".chip")  # nor tokens, which answer questions
        assert not watched.page.is_visible("#changes")
        seen = set()
        for _ in range(3):
            seen.add(watched.text("#question"))
            watched.page.click(".question button:has-text('Another')")
        assert len(seen) >= 2, step
        watched.page.click("text=Show the answer")
        assert watched.page.is_visible(f".figure[data-step='{step}']")


def test_the_map_marks_tokens_only_after_the_answer(open_page):
    page = open_page(PREDICT.format(model="default", step=3)).page
    page.wait_for_selector("#map[data-drawn]")
    marks = "window.inlayerMap.scene.marks.length"
    for step in (1, 2, 3):  # tokens answer the questions of step 3
        page.keyboard.press(str(step))
        page.wait_for_selector(".question")
        page.click("text=Show the answer")
        assert (page.evaluate(marks) > 0) == (step == 3)
    page.keyboard.press("8")
    page.wait_for_selector(".question")
    assert page.evaluate(marks) == 0
    assert page.evaluate("window.inlayerMap.scene.arrows.length") == 0


def answer(watched, text: str) -> str:
    watched.page.fill(".question input[name=answer]", text)
    watched.page.keyboard.press("Enter")
    return watched.text("#verdict")


@pytest.mark.parametrize("given", ["1, T, 128", "[1 T 128]"])
def test_shape_answers_accept_several_formats(given, open_page, pipelines):
    tokens = len(pipelines["default"].walk(["I love dogs and dogs"]).texts[0].tokens)
    watched = open_page(PREDICT.format(model="default", step=5))
    text = answer(watched, given.replace("T", str(tokens)))
    assert "Correct" in text
    assert f"(1, {tokens}, 128)" in text
    assert watched.page.is_visible(".figure")


def test_wrong_answers_show_the_correct_one(open_page):
    watched = open_page(PREDICT.format(model="default", step=5))
    text = answer(watched, "2, 2, 2")
    assert "Not quite" in text
    assert re.search(r"the answer is \(1, \d, 128\)", text)
    assert "Not quite" in watched.page.text_content("#live")
    watched.page.click("text=Another question")
    assert watched.page.is_visible(".question")
    assert "0 of 1 correct" in watched.text(".question-count")


def test_real_answers_may_be_rounded(open_page, pipelines):
    cell = pipelines["stages"].walk(["I love dogs and dogs"]).texts[0].tokens[1]
    watched = open_page(PREDICT.format(model="stages", step=6))
    assert "What is the sum?" in watched.text("#question")
    assert "Correct" in answer(watched, f"{cell.stages[2].output[0]:.3f}".replace("-", "\u2212"))


def test_choice_answers(open_page):
    watched = open_page(PREDICT.format(model="default", step=6))
    for given, verdict in (("no", "Correct"), ("yes", "Not quite")):
        assert "Do rotary positions change the rows" in watched.text("#question")
        watched.page.check(f".question input[value={given}]")
        watched.page.click("text=Check")
        assert verdict in watched.text("#verdict")
        watched.page.click("#predict")
        watched.page.reload()
        watched.page.click("#predict")


def test_empty_answers_are_ignored(open_page):
    watched = open_page(PREDICT.format(model="default", step=5))
    watched.page.click("text=Check")
    assert watched.page.is_visible(".question")


def test_new_texts_hide_the_step_again(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=5")
    watched.page.click("#predict")
    assert watched.page.evaluate("document.activeElement.name") == "answer"
    watched.page.click("text=Show the answer")
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
def test_fastest_pair_is_computed(theta, fastest, open_page):
    watched = open_page(PREDICT.format(model="default", step=6) + f"&theta={theta}")
    ask_until(watched, "faster")
    watched.page.check(f".question input[value='{fastest}']")
    watched.page.click("text=Check")
    assert "Correct" in watched.text("#verdict")


@pytest.mark.parametrize(("model", "compared"), [("default", "fewer"), ("random", "the same")])
def test_tokens_are_compared_with_bytes(model, compared, open_page):
    watched = open_page(PREDICT.format(model=model, step=3))
    ask_until(watched, "compare with the number of bytes")
    watched.page.check(f".question input[value='{compared}']")
    watched.page.click("text=Check")
    assert "Correct" in watched.text("#verdict")


def test_tied_head_without_padding_reaches_every_row(open_page, pipelines):
    trace = pipelines["quantized"].walk(["abba"])
    assert trace.backward.n_rows_with_gradient == trace.table.shape[0]
    watched = open_page("text=abba&model=quantized&step=8&predict=1")
    text = answer(watched, str(trace.backward.n_rows_with_gradient))
    assert "Correct" in text
    assert "A tied head reaches every row." in text
    assert "padding row" not in watched.text(".figure .facts")


@pytest.mark.parametrize(
    ("given", "diagnosis"),
    [
        ("T, 128", "You left out the batch"),
        ("128, T, 1", "the axes are in the wrong order"),
        ("1, U, 128", "Only the number of tokens is wrong, by one"),
        ("1, T, 64", "Only the width is wrong."),
        ("7, 7", "The shape has 3 axes"),
    ],
)
def test_wrong_shapes_are_diagnosed(given, diagnosis, open_page, pipelines):
    tokens = len(pipelines["default"].walk(["I love dogs and dogs"]).texts[0].tokens)
    watched = open_page(PREDICT.format(model="default", step=5))
    text = answer(watched, given.replace("T", str(tokens)).replace("U", str(tokens + 1)))
    assert diagnosis in text
    assert diagnosis in watched.page.text_content("#live")


def test_wrong_numbers_are_diagnosed(open_page, pipelines):
    trace = pipelines["default"].walk(["I love dogs and dogs"])
    token, table = trace.texts[0].tokens[0], trace.table
    for step, word, given, diagnosis in (
        (3, "How many tokens", trace.texts[0].n_bytes, "That is the number of bytes"),
        (3, "How many tokens", trace.texts[0].n_tokens + 1, "Off by one"),
        (4, "At which byte", token.offset - table.offset, "You left out the offset of the table"),
        (4, "How many bytes long is a row", table.shape[1], "multiply by the bytes per value"),
        (6, "the angle at position", 180.0 / 3.14159 * (len(trace.texts[0].tokens) - 1), "in degrees"),
        (6, "the angle at position", -1.0 * (len(trace.texts[0].tokens) - 1), "The sign is wrong"),
        (7, "zeros are in the mask", "many", "That is not a number"),
    ):
        watched = open_page(PREDICT.format(model="default", step=step))
        ask_until(watched, word)
        assert diagnosis in answer(watched, str(given)), (step, given)


def test_other_ids_are_named(open_page, pipelines):
    tokens = pipelines["default"].walk(["I love dogs and dogs"]).texts[0].tokens
    watched = open_page(PREDICT.format(model="default", step=3))
    ask_until(watched, "What is the id")
    watched.page.check(f".question input[value='{tokens[1].id}']")
    watched.page.click("text=Check")
    assert "That is the id of \u201c\u2423love\u201d" in watched.text("#verdict")
