"""The initialization view: steps of the initialization next to the lookups of a forward pass."""

from __future__ import annotations

import pytest

from inlayer.trace.token_facts import initialize

pytestmark = pytest.mark.slow

VIEW = "text=I+love+dogs&model={model}&view=initialization"


@pytest.mark.parametrize("model", ["default", "random", "scaled"])
def test_initialization_numbers_equal_the_library(model, open_page, pipelines):
    watched = open_page(VIEW.format(model=model))
    facts, trace = initialize(pipelines[model], seed=0, dims=8), pipelines[model].walk(["I love dogs"])
    shown = watched.shown()
    for s, step in enumerate(facts.steps):
        for row, vector in zip(facts.ids, step.rows, strict=True):
            found = [
                cell
                for cell in shown
                if (cell["field"], cell.get("s"), cell.get("id")) == ("initialization", str(s), str(row))
            ]
            assert [float(cell["value"]) for cell in found] == vector[:4]
        assert step.code in watched.text(".once")
        assert watched.page.locator(".histogram").nth(s).locator("rect").count() == len(step.counts)
    means = [float(cell["value"]) for cell in shown if cell["field"] == "initialization-mean"]
    assert means == [step.mean for step in facts.steps]
    stds = [float(cell["value"]) for cell in shown if cell["field"] == "initialization-std"]
    assert stds == [step.std for step in facts.steps]
    looked_up = [float(cell["value"]) for cell in shown if cell["field"] == "row"]
    assert looked_up == [value for cell in trace.texts[0].tokens for value in cell.row[:4]]


def test_padding_row_is_zeroed_last(open_page):
    watched = open_page(VIEW.format(model="default"))
    rows = [cell for cell in watched.shown() if cell["field"] == "initialization" and cell["id"] == "6142"]
    by_step = [{float(cell["value"]) for cell in rows if cell["s"] == str(s)} for s in range(3)]
    assert by_step[0] == by_step[2] == {0.0}
    assert 0.0 not in by_step[1]


def test_padding_row_is_zero_as_soon_as_its_step_is_selected(open_page):
    watched = open_page(VIEW.format(model="default"))
    watched.page.click("#initialization-1")
    watched.page.wait_for_timeout(1200)
    background = "(cell) => getComputedStyle(cell).backgroundColor"
    cells = ".padding-strip .block"
    colored = watched.page.eval_on_selector(cells, background)
    at_once = watched.page.evaluate(
        f"""() => {{ document.querySelector("#initialization-2").click();
        return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
          done(Array.from(document.querySelectorAll("{cells}"), {background}))))); }}"""
    )
    assert len({*at_once}) == 1
    assert at_once[0] != colored


def test_seed_changes_the_initialization_but_not_the_lookups(open_page):
    watched = open_page(VIEW.format(model="default"))

    def drawn(field: str) -> list[str]:
        return [cell["value"] for cell in watched.shown() if cell["field"] == field]

    initialized, looked_up = drawn("initialization"), drawn("row")
    watched.page.click("#next-seed")
    watched.page.wait_for_selector(".once:has-text('seed 1')")
    assert drawn("initialization") != initialized
    assert drawn("row") == looked_up
    watched.page.click("#view-walk")
    assert watched.page.is_visible(".figure")


def test_seed_wraps_around(open_page):
    watched = open_page(VIEW.format(model="default") + "&seed=2147483647")
    watched.page.click("#next-seed")
    watched.page.wait_for_selector(".once:has-text('with seed 0.')")
    assert "seed" not in watched.fragment()


# Of each step: the left edge of its facts, the width of its histogram, and the hidden width of its table.
PLACES = """(all) => all.map((step) => {
  const [histogram, facts] = [".histogram", ".facts"].map((one) => step.querySelector(one).getBoundingClientRect());
  const box = step.querySelector(".scroll");
  return [facts.left - histogram.right, Math.round(histogram.width), box.scrollWidth - box.clientWidth];
})"""


@pytest.mark.parametrize("width", [390, 1200, 1280, 1440])
@pytest.mark.parametrize("model", ["default", "stages"])
def test_all_steps_are_drawn_alike_and_whole(model, width, open_page):
    page = open_page(VIEW.format(model=model), width=width).page
    gaps, widths, hidden = zip(*page.eval_on_selector_all(".initialization-step", PLACES), strict=True)
    assert min(gaps) > 0  # mean and std are beside the histogram
    assert len({*widths}) == 1
    assert {*hidden} == {0}
