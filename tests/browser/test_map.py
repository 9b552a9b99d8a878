"""The map page in Chromium, from file://: its numbers, search, keyboard and appearance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import inlayer
from inlayer.geometry.distortion import measure_distortion
from inlayer.geometry.map_page import map_page
from inlayer.geometry.projection import TableProjection, pca

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> inlayer.Model:
    return inlayer.load("default")


@pytest.fixture(scope="module")
def projection(model: inlayer.Model) -> TableProjection:
    return pca(model.table)


@pytest.fixture(scope="module")
def document(model: inlayer.Model, projection: TableProjection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    distortion = measure_distortion(model.table, projection.points)
    path = tmp_path_factory.mktemp("map") / "map.html"
    path.write_text(map_page("Token map", model.table, model.vocabulary, projection, distortion), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Browser, document: Path) -> Any:
    context = browser.new_context(reduced_motion="reduce")
    opened = context.new_page()
    problems: list[str] = []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    opened.goto(document.as_uri())
    yield opened
    context.close()
    assert problems == []


def test_coordinates_and_neighbors_equal_the_library(
    page: Page, model: inlayer.Model, projection: TableProjection
) -> None:
    shown = np.array(page.evaluate("Array.from(inlayerMap.points, value => Number.isNaN(value) ? null : value)"), float)
    np.testing.assert_array_equal(shown.reshape(-1, 2).astype(np.float32), projection.points)
    page.fill("#query", "king")
    page.press("#query", "Enter")
    rows = page.locator("#near button")
    expected = model.neighbors("king", 10, special=True)
    assert rows.count() == 10
    for index, one in enumerate(expected):
        assert rows.nth(index).inner_text().split("\n") == [one.text.replace(" ", "·"), f"{one.score:.3f}"]


def test_hover_click_and_keyboard(page: Page, model: inlayer.Model) -> None:
    page.fill("#query", "seven")
    page.press("#query", "Enter")
    token = model.tokenizer.encode(" seven")[0]
    assert page.locator("#token").inner_text() == f"·seven  #{token}"
    page.locator("#near button").first.click()
    assert "#token=" in page.url
    page.focus("#map")
    before = page.evaluate("({...inlayerMap.view})")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    after = page.evaluate("({...inlayerMap.view})")
    assert after["scale"] > before["scale"]
    assert after["x"] < before["x"]
    page.click("#all")
    box = page.locator("#map").bounding_box()
    assert box is not None
    spot = page.evaluate(
        "(() => { const v = inlayerMap.view, p = inlayerMap.points;"
        "return [(p[6000] - v.x) * v.scale, (v.y - p[6001]) * v.scale]; })()"
    )
    page.mouse.move(box["x"] + box["width"] / 2 + spot[0], box["y"] + box["height"] / 2 + spot[1])
    assert page.locator("#tip").is_visible()


def test_unknown_token_is_reported(page: Page) -> None:
    page.fill("#query", "qqqqzzzz")
    page.press("#query", "Enter")
    assert page.evaluate("document.getElementById('query').validationMessage") == "no token contains this text"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (768, "dark"), (1440, "dark"), (2560, "light")])
def test_points_are_drawn_at_every_width(page: Page, width: int, scheme: Any) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(
        "(() => { const c = document.getElementById('map');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n > 3000; })()"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
