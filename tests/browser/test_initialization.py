"""Initialization against forward pass: made once, looked up every time."""

from __future__ import annotations

import pytest

VIEW = "text=I+love+dogs&model={model}&view=initialization"


@pytest.mark.parametrize("model", ["default", "newborn", "scaled"])
def test_birth_is_the_librarys(model, open_page, lines):
    watched = open_page(VIEW.format(model=model))
    birth, trace = lines[model].initialization(seed=0, dims=8), lines[model].walk(["I love dogs"])
    shown = watched.shown()
    for s, stage in enumerate(birth.steps):
        for row, vector in zip(birth.ids, stage.rows, strict=True):
            found = [
                cell
                for cell in shown
                if (cell["field"], cell.get("s"), cell.get("id")) == ("initialization", str(s), str(row))
            ]
            assert [float(cell["value"]) for cell in found] == vector[:4]
        assert stage.code in watched.text(".once")
        assert watched.page.locator(".histogram").nth(s).locator("rect").count() == len(stage.counts)
    means = [float(cell["value"]) for cell in shown if cell["field"] == "initialization-mean"]
    assert means == [stage.mean for stage in birth.steps]
    stds = [float(cell["value"]) for cell in shown if cell["field"] == "initialization-std"]
    assert stds == [stage.std for stage in birth.steps]
    looked_up = [float(cell["value"]) for cell in shown if cell["field"] == "row"]
    assert looked_up == [value for cell in trace.texts[0].tokens for value in cell.row[:4]]


def test_the_padding_row_is_zeroed_last(open_page):
    watched = open_page(VIEW.format(model="default"))
    rows = [cell for cell in watched.shown() if cell["field"] == "initialization" and cell["id"] == "6142"]
    by_stage = [{float(cell["value"]) for cell in rows if cell["s"] == str(s)} for s in range(3)]
    assert by_stage[0] == by_stage[2] == {0.0}
    assert 0.0 not in by_stage[1]


def test_another_seed_draws_other_numbers_but_looks_up_the_same(open_page):
    watched = open_page(VIEW.format(model="default"))

    def drawn(field: str) -> list[str]:
        return [cell["value"] for cell in watched.shown() if cell["field"] == field]

    born, looked_up = drawn("initialization"), drawn("row")
    watched.page.click("#next-seed")
    watched.page.wait_for_selector(".once:has-text('seed 1')")
    assert drawn("initialization") != born
    assert drawn("row") == looked_up
    watched.page.click("#view-walk")
    assert watched.page.is_visible(".figure")


def test_after_the_last_seed_comes_the_first(open_page):
    watched = open_page(VIEW.format(model="default") + "&seed=2147483647")
    watched.page.click("#next-seed")
    watched.page.wait_for_selector(".once:has-text('from seed 0.')")
    assert "seed" not in watched.fragment()
