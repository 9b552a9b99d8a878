"""No accessibility violation that axe-core finds, in any view, dark and light."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import inlayer
from inlayer.geometry.compare import compare_page, match_rows
from inlayer.geometry.map_page import all_neighbors, map_facts, render_map_page
from inlayer.geometry.projection import measure_distortion, pca
from inlayer.inspection.html import inspect_page
from tests.browser.conftest import opening_pages
from tests.browser.watched_page import TIMEOUT
from tests.web.client import Client, learner, running

pytestmark = pytest.mark.slow

TEXT = "text=I+love+dogs&model=default"
WALK_VIEWS = [f"step={step}" for step in range(1, 9)] + [
    "step=7&positions=sinusoidal&swap=1,2", "step=5&token=812", "step=3&predict=1", "view=initialization",
    "view=compare&other=random", "text=Hi&step=6&pad=1", "step=6&positions=learned", "step=1&text=%20",
]  # fmt: skip
LEARN_VIEWS = [
    "", "lesson=forward", "lesson=forward&task=gather", "lesson=forward&part=exercises", "lesson=forward&part=quiz",
    "misconception=index_select", "step=5",
]  # fmt: skip
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# 200 colors of a heat map: contrast is checked in test_look.py, against the colors behind each text.
RUN = """async () => (await axe.run(document, { rules: { "color-contrast": { enabled: false } } })).violations
  .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])"""


def violations(page: Any) -> list[Any]:
    found: list[Any] = page.evaluate(AXE + ";" + f"({RUN})()")
    return found


def assert_accessible(page: Any) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == [], scheme


@pytest.fixture(scope="module")
def server(pipelines: dict[str, Any]) -> Iterator[Client]:
    with running({"default": pipelines["default"]}, allow_code_execution=True) as made:
        yield made


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages that commands write."""
    model, folder = inlayer.load("default"), tmp_path_factory.mktemp("pages")
    tables = (model.table, model.vocabulary), (model.table, model.vocabulary)
    projection, shared = pca(model.table), match_rows(*tables)
    projection = projection._replace(distortion=measure_distortion(model.table, projection.points, sample=32))
    facts = map_facts(model.table, model.vocabulary, projection)
    written = {
        "map": render_map_page("Token map", facts, all_neighbors(model.table, projection.points)),
        "compare": compare_page(("one", "two"), (projection, projection), shared, [("rows", "6,144 equal")]),
        "inspect": inspect_page(inlayer.inspect(model), model),
    }
    for name, page in written.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in written}


@pytest.mark.parametrize("view", WALK_VIEWS)
def test_walk_page(view, open_page):
    watched = open_page(f"{TEXT}&{view}")
    watched.page.wait_for_selector("#map[data-drawn]", state="attached")
    assert_accessible(watched.page)


def test_contrast_of_the_comparison(open_page):
    watched = open_page(f"{TEXT}&view=compare&other=random")
    watched.page.wait_for_selector(".compare-column[aria-label=random] .similarity")
    rule = RUN.replace('rules: { "color-contrast": { enabled: false } }', 'runOnly: ["color-contrast"]')
    for scheme in ("light", "dark"):
        watched.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        watched.page.click("#view-walk")  # drawn again, in the colors of the theme
        watched.page.click("#view-compare")
        watched.page.wait_for_selector(".compare-column[aria-label=random] .similarity")
        assert watched.page.evaluate(f"{AXE}; ({rule})()") == [], scheme
    watched.page.evaluate("document.querySelector('.similarity td.number').style.color = '#a87046'")
    assert len(watched.page.evaluate(f"{AXE}; ({rule})()")) == 1  # control


@pytest.mark.parametrize("view", LEARN_VIEWS)
def test_course_page(view, browser, server, tmp_path):
    with learner(tmp_path), opening_pages(browser, server, "/learn") as opening:
        assert_accessible(opening(view).page)


def test_inspect_page(browser, server):
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    page.goto(f"http://127.0.0.1:{server.port}/inspect?token={server.token}#model=default")
    page.wait_for_selector("#map[data-drawn]")
    assert_accessible(page)
    page.close()


@pytest.mark.parametrize("name", ["map", "compare", "inspect"])
def test_written_pages(name, browser, documents):
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    page.goto(documents[name].as_uri())
    page.wait_for_selector("canvas[data-drawn]")
    assert_accessible(page)
    page.close()


def test_a_violation_is_found(open_page):
    watched = open_page(f"{TEXT}&step=1")
    watched.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert "button-name" in [name for name, _ in violations(watched.page)]
