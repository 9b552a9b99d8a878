"""Experiments: changed numbers are marked, and a sentence describes the effect."""

from __future__ import annotations

import pytest

from inlayer.trace import Change
from tests.browser.numbers import expected, key

pytestmark = pytest.mark.slow

DOGS = "text=I+love+dogs&model={model}&step={step}"
TEXTS = ["I love dogs"]


def marks(watched) -> dict[tuple[object, ...], str]:
    found = {}
    for cell in watched.shown():
        mark = [name for name in ("same", "changed", "new") if name in cell["classes"].split()]
        found[key(cell)] = mark[0] if mark else ""
    return found


@pytest.mark.parametrize(
    ("model", "step", "change"),
    [
        ("default", 5, Change(swap=(1, 2))),
        ("default", 7, Change(positions="learned", swap=(0, 3))),
        ("stages", 6, Change(swap=(1, 2))),
        ("default", 8, Change(swap=(1, 2))),
        ("default", 7, Change(positions="sinusoidal")),
    ],
)
def test_marks_match_the_difference_of_two_traces(model, step, change, open_page, pipelines):
    before, after = (expected(pipelines[model].walk(TEXTS, change=one), step) for one in (Change(), change))
    fragment = DOGS.format(model=model, step=step)
    fragment += f"&swap={change.swap[0]},{change.swap[1]}" if change.swap else ""
    fragment += f"&positions={change.positions}" if change.positions else ""
    found = {place: mark for place, mark in marks(open_page(fragment)).items() if mark}
    assert found
    for place, mark in found.items():
        wanted = "new" if place not in before else "same" if before[place] == after[place] else "changed"
        assert mark == wanted, place
    assert "changed" in found.values()


def test_swap_changes_two_rows_only(open_page):
    watched = open_page(DOGS.format(model="default", step=5))
    assert set(marks(watched).values()) == {""}
    watched.page.click("#swap")
    watched.page.click("[data-field=token][data-t='1']")
    assert watched.page.get_attribute("[data-field=token][data-t='1']", "aria-pressed") == "true"
    watched.page.click("[data-field=token][data-t='2']")
    watched.page.wait_for_selector("#changed-note")
    assert watched.text("#changed-note") == "16 of 32 numbers changed: only the rows of tokens 1 and 2 were swapped."
    watched.step(6)
    text = watched.text("#changed-note")
    assert text.startswith("None of the 96 numbers changed")
    assert "they depend on the position, not on the token" in text
    watched.step(7)
    assert "the hidden states of tokens 1 and 2 were swapped" in watched.text("#changed-note")
    watched.step(1)
    assert "The text is the same" in watched.text("#changed-note")
    watched.page.click("#reset")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_learned_positions_do_not_move_with_a_swap(open_page):
    watched = open_page(DOGS.format(model="stages", step=6) + "&swap=1,2")
    found = marks(watched)
    assert {mark for place, mark in found.items() if place[0] == "added"} == {"same"}
    assert "the position embeddings are unchanged" in watched.text("#changed-note")
    watched.step(7)
    assert "each now has the other's row" in watched.text("#changed-note")


def test_padding_is_new_and_changes_no_other_token(open_page):
    watched = open_page(DOGS.format(model="default", step=7))
    watched.page.click("#pad-more")
    watched.page.wait_for_selector("#changed-note")
    found = {place: mark for place, mark in marks(watched).items() if place[0] == "hidden"}
    assert {mark for place, mark in found.items() if place[3] == 4} == {"new"}
    assert {mark for place, mark in found.items() if place[3] != 4} == {"same"}
    assert "the other tokens are unchanged" in watched.text("#changed-note")
    watched.step(8)
    row = [cell for cell in watched.shown() if cell["field"] == "total" and cell["id"] == "6142"]
    assert [float(cell["value"]) for cell in row] == [0.0] * 8
    assert "the padding row itself receives no gradient" in watched.text("#changed-note")
    assert any(float(cell["value"]) for cell in watched.shown() if cell["field"] == "unmasked")
    watched.page.click("#pad-less")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_positions_change_hidden_states_but_no_row(open_page):
    watched = open_page(DOGS.format(model="default", step=6))
    watched.page.click("label:has(#positions-sinusoidal)")
    watched.page.wait_for_selector("#changed-note")
    watched.step(5)
    assert watched.text("#changed-note") == "None of the 32 numbers changed: ids and rows do not depend on positions."
    watched.step(7)
    assert "a vector is now added at each position" in watched.text("#changed-note")
    watched.page.click("label:has(#positions-none)")
    watched.page.wait_for_selector("#changed-note:has-text('neither')")
    watched.page.click("label:has(#positions-rotary)")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_theta_changes_the_rotary_frequencies(open_page):
    watched = open_page(DOGS.format(model="default", step=6))
    watched.page.fill("#theta", "100")
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("#changed-note")
    assert "theta changed from 10000 to 100" in watched.text("#changed-note")
    watched.step(7)
    assert "rotary positions add nothing to the embeddings, regardless of theta" in watched.text("#changed-note")


def test_unchanged_numbers_keep_their_color(open_page):
    """Changes are bold and underlined; the color of a number depends on its value alone."""
    backgrounds = """() => Object.fromEntries([...document.querySelectorAll(".cell[data-field='total']")].map((cell) =>
      [cell.dataset.id + "," + cell.dataset.d, getComputedStyle(cell).backgroundColor]))"""
    plain = open_page(DOGS.format(model="default", step=8)).page.evaluate(backgrounds)
    watched = open_page(DOGS.format(model="default", step=8) + "&pad=2")
    colors = watched.page.evaluate(backgrounds)
    assert {place: colors[place] for place in plain} == plain
    assert len(set(plain.values())) > 10
    watched = open_page(DOGS.format(model="default", step=5) + "&swap=1,2")
    weights = watched.page.evaluate(
        """() => ["same", "changed"].map((name) => {
             const style = getComputedStyle(document.querySelector(".cell." + name));
             return [Number(style.fontWeight), style.boxShadow]; })"""
    )
    assert weights[1][0] > weights[0][0]
    assert weights[0][1] == "none" != weights[1][1]


def test_padding_is_disabled_without_a_padding_token(open_page):
    watched = open_page(DOGS.format(model="scaled", step=5))
    watched.settle()
    disabled = watched.page.is_disabled("#pad-more")
    assert disabled == ("has no padding" in (watched.page.get_attribute("#pad-more", "title") or ""))


# ---- nothing is text that the numbers do not bear out


@pytest.mark.parametrize(
    ("model", "change"),
    [("default", "theta=10000"), ("default", "positions=rotary&theta=10000"), ("default", "positions=rotary"),
     ("stages", "positions=learned"), ("default", "swap=2,2")],
)  # fmt: skip
def test_ineffective_changes_are_dropped(model, change, open_page):
    watched = open_page(DOGS.format(model=model, step=6) + "&" + change)
    watched.page.wait_for_selector("#reset[disabled]")
    assert watched.page.locator("#changed-note").count() == 0
    assert set(marks(watched).values()) == {""}
    assert watched.fragment() == DOGS.format(model=model, step=6)
    assert "from the model" in watched.text(".figure")


def test_an_invalid_theta_is_explained_at_its_field(open_page):
    watched = open_page(DOGS.format(model="default", step=6))
    page = watched.page
    page.fill("#theta", "-5")
    page.keyboard.press("Enter")
    page.wait_for_selector("#theta[aria-invalid=true]")
    assert watched.text("#theta-error").startswith("theta must be a number above 0")
    assert page.input_value("#theta") == "-5"
    assert page.is_hidden("#error")  # at the top, out of sight
    page.fill("#theta", "100")
    page.keyboard.press("Enter")
    page.wait_for_selector("#theta[aria-invalid]", state="detached")
    assert watched.text("#theta-error") == ""


def test_theta_reset_to_the_model(open_page):
    watched = open_page(DOGS.format(model="default", step=6) + "&theta=500")
    watched.page.fill("#theta", "10000")
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("#changed-note", state="detached")
    assert "theta" not in watched.fragment()
    assert watched.page.input_value("#theta") == "10000"


def test_new_angles_are_not_called_unchanged(open_page):
    watched = open_page(DOGS.format(model="random", step=6) + "&swap=0,2&positions=rotary&pad=1")
    text = watched.text("#changed-note")
    assert "unchanged" not in text
    assert "padding token" not in text  # the angles of all tokens are new
    assert "positions changed from learned to rotary" in text


def test_padding_is_counted_in_all_texts(open_page):
    watched = open_page("text=I+love+dogs&text=a+b+c+d&model=default&step=5&pad=1")
    padding = watched.page.locator("tr.padding-line:has(.new)").count()
    assert padding == 2
    assert "the new numbers belong to 2 padding tokens" in watched.text("#changed-note")


def test_swapping_equal_tokens_is_noted_in_every_step(open_page):
    watched = open_page("text=dog+dog+dog&model=stages&step=3&swap=2,3")
    for step in range(3, 9):
        watched.step(step)
        text = watched.text("#changed-note")
        assert text.startswith("None of the "), step
        assert "tokens 2 and 3 are the same token" in text


def test_rows_before_new_positions_are_not_new(open_page):
    watched = open_page(DOGS.format(model="default", step=6) + "&positions=learned")
    found = marks(watched)
    assert {mark for place, mark in found.items() if place[0] == "before"} == {"same"}
    assert {mark for place, mark in found.items() if place[0] in ("added", "output")} == {"new"}
    assert watched.text("#changed-note").startswith("None of the 32 numbers shown before changed, 64 are new: ")


def test_swap_with_other_positions_names_both(open_page):
    watched = open_page(DOGS.format(model="default", step=6) + "&positions=learned&swap=1,2")
    assert "the rows of tokens 1 and 2 were swapped" in watched.text("#changed-note")
    assert "positions changed from rotary to learned" in watched.text("#changed-note")
    watched.step(7)
    assert "the rows of tokens 1 and 2 were swapped" in watched.text("#changed-note")
    watched = open_page(DOGS.format(model="random", step=6) + "&positions=rotary&swap=1,2")
    assert "tokens 1 and 2 were swapped" in watched.text("#changed-note")


def test_padding_rows_are_folded(open_page):
    watched = open_page("text=I+love+dogs&text=I&model=default&step=5&pad=3")
    page = watched.page
    lines = page.locator("section:nth-of-type(2) tr.padding-line")
    assert [lines.nth(index).is_visible() for index in range(3)] == [True, False, False]
    page.locator(".fold-padding").nth(1).click()
    assert all(lines.nth(index).is_visible() for index in range(lines.count()))
    assert page.locator(".fold-padding").nth(1).get_attribute("aria-expanded") == "true"
    page.focus("section:nth-of-type(1) [data-nav]")
    page.keyboard.press("End")  # hidden numbers are skipped
    assert page.evaluate("document.activeElement.checkVisibility()")
