"""Change one thing: what follows stands out, what does not fades, and a sentence says which and why."""

from __future__ import annotations

import pytest

from inlayer.trace import Change
from tests.browser.numbers import expected, key

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
def test_marks_are_what_differs_between_two_traces(model, step, change, open_page, lines):
    before, after = (expected(lines[model].walk(TEXTS, change=one), step) for one in (Change(), change))
    fragment = DOGS.format(model=model, step=step)
    fragment += f"&swap={change.swap[0]},{change.swap[1]}" if change.swap else ""
    fragment += f"&positions={change.positions}" if change.positions else ""
    found = {place: mark for place, mark in marks(open_page(fragment)).items() if mark}
    assert found
    for place, mark in found.items():
        wanted = "new" if place not in before else "same" if before[place] == after[place] else "changed"
        assert mark == wanted, place
    assert "changed" in found.values()


def test_a_swap_moves_two_rows_and_nothing_else(open_page):
    watched = open_page(DOGS.format(model="default", step=5))
    assert set(marks(watched).values()) == {""}
    watched.page.click("#swap")
    watched.page.click("[data-field=token][data-t='1']")
    assert watched.page.get_attribute("[data-field=token][data-t='1']", "aria-pressed") == "true"
    watched.page.click("[data-field=token][data-t='2']")
    watched.page.wait_for_selector("#changed-note")
    assert watched.text("#changed-note") == "16 of 32 numbers changed: only tokens 1 and 2 traded their rows."
    watched.step(6)
    said = watched.text("#changed-note")
    assert said.startswith("None of 96 numbers changed")
    assert "they belong to the place, not to the token" in said
    watched.step(7)
    assert "traded their hidden states whole" in watched.text("#changed-note")
    watched.step(1)
    assert "The text is the same" in watched.text("#changed-note")
    watched.page.click("#reset")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_learned_positions_stay_when_tokens_swap(open_page):
    watched = open_page(DOGS.format(model="stages", step=6) + "&swap=1,2")
    found = marks(watched)
    assert {mark for place, mark in found.items() if place[0] == "added"} == {"same"}
    assert "the position vectors stayed" in watched.text("#changed-note")
    watched.step(7)
    assert "each is now the other\u2019s row" in watched.text("#changed-note").replace("'", "\u2019")


def test_padding_is_new_and_disturbs_nobody(open_page):
    watched = open_page(DOGS.format(model="default", step=7))
    watched.page.click("#pad-more")
    watched.page.wait_for_selector("#changed-note")
    found = {place: mark for place, mark in marks(watched).items() if place[0] == "hidden"}
    assert {mark for place, mark in found.items() if place[3] == 4} == {"new"}
    assert {mark for place, mark in found.items() if place[3] != 4} == {"same"}
    assert "the real tokens did not notice" in watched.text("#changed-note")
    watched.step(8)
    row = [cell for cell in watched.shown() if cell["field"] == "total" and cell["id"] == "6142"]
    assert [float(cell["value"]) for cell in row] == [0.0] * 8
    assert "the padding row itself receives nothing" in watched.text("#changed-note")
    assert any(float(cell["value"]) for cell in watched.shown() if cell["field"] == "unguarded")
    watched.page.click("#pad-less")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_positions_change_hidden_states_but_no_row(open_page):
    watched = open_page(DOGS.format(model="default", step=5))
    watched.page.click("label:has(#positions-sinusoidal)")
    watched.page.wait_for_selector("#changed-note")
    assert watched.text("#changed-note") == "None of 32 numbers changed: ids and rows do not depend on positions."
    watched.step(7)
    assert "a vector is added at every place now" in watched.text("#changed-note")
    watched.page.click("label:has(#positions-none)")
    watched.page.wait_for_selector("#changed-note:has-text('neither')")
    watched.page.click("label:has(#positions-rotary)")
    watched.page.wait_for_selector("#changed-note", state="detached")


def test_theta_turns_pairs_at_another_speed(open_page):
    watched = open_page(DOGS.format(model="default", step=6))
    watched.page.fill("#theta", "100")
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("#changed-note")
    assert "theta went from 10000 to 100" in watched.text("#changed-note")
    watched.step(7)
    assert "rotary positions add nothing here, whatever theta is" in watched.text("#changed-note")


def test_what_fades_is_still_readable(open_page):
    watched = open_page(DOGS.format(model="default", step=5) + "&swap=1,2")
    colours = watched.page.evaluate(
        """() => ["same", "changed"].map((name) => {
             const style = getComputedStyle(document.querySelector(".cell." + name));
             return [style.color, style.backgroundColor, style.fontWeight]; })"""
    )
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] == "rgba(0, 0, 0, 0)"  # the heat is gone
    assert int(colours[1][2]) > int(colours[0][2])


def test_a_model_without_padding_says_so(open_page):
    watched = open_page(DOGS.format(model="scaled", step=5))
    watched.settle()
    disabled = watched.page.is_disabled("#pad-more")
    assert disabled == ("has no padding" in (watched.page.get_attribute("#pad-more", "title") or ""))
