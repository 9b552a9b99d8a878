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
    assert any(float(cell["value"]) for cell in watched.shown() if cell["field"] == "unmasked")
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
    colors = watched.page.evaluate(
        """() => ["same", "changed"].map((name) => {
             const style = getComputedStyle(document.querySelector(".cell." + name));
             return [style.color, style.backgroundColor, style.fontWeight]; })"""
    )
    assert colors[0][0] != colors[1][0]
    assert colors[0][1] == "rgba(0, 0, 0, 0)"  # the heat is gone
    assert int(colors[1][2]) > int(colors[0][2])


def test_a_model_without_padding_says_so(open_page):
    watched = open_page(DOGS.format(model="scaled", step=5))
    watched.settle()
    disabled = watched.page.is_disabled("#pad-more")
    assert disabled == ("has no padding" in (watched.page.get_attribute("#pad-more", "title") or ""))


# ---- nothing is said that the numbers do not bear out


@pytest.mark.parametrize(
    ("model", "change"),
    [("default", "theta=10000"), ("default", "positions=rotary&theta=10000"), ("default", "positions=rotary"),
     ("stages", "positions=learned"), ("default", "swap=2,2")],
)  # fmt: skip
def test_a_change_to_what_is_so_already_is_none(model, change, open_page):
    watched = open_page(DOGS.format(model=model, step=6) + "&" + change)
    watched.page.wait_for_selector("#reset[disabled]")
    assert watched.page.locator("#changed-note").count() == 0
    assert set(marks(watched).values()) == {""}
    assert watched.fragment() == DOGS.format(model=model, step=6)
    assert "the model\u2019s own" in watched.text(".figure")


def test_theta_typed_back_to_its_own(open_page):
    watched = open_page(DOGS.format(model="default", step=6) + "&theta=500")
    watched.page.fill("#theta", "10000")
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("#changed-note", state="detached")
    assert "theta" not in watched.fragment()
    assert watched.page.input_value("#theta") == "10000"


def test_angles_that_were_not_there_did_not_stay(open_page):
    watched = open_page(DOGS.format(model="newborn", step=6) + "&swap=0,2&positions=rotary&pad=1")
    said = watched.text("#changed-note")
    assert "stayed" not in said
    assert "padding token" not in said  # the angles are new at every place
    assert "positions went from learned to rotary" in said


def test_padding_is_counted_over_all_texts(open_page):
    watched = open_page("text=I+love+dogs&text=a+b+c+d&model=default&step=5&pad=1")
    padding = watched.page.locator("tr.padding-line:has(.new)").count()
    assert padding == 2
    assert "the new ones belong to 2 padding tokens" in watched.text("#changed-note")


def test_the_same_token_twice_is_said_at_every_step(open_page):
    watched = open_page("text=dog+dog+dog&model=stages&step=3&swap=2,3")
    for step in range(3, 9):
        watched.step(step)
        said = watched.text("#changed-note")
        assert said.startswith("None of "), step
        assert "tokens 2 and 3 are the same token" in said
