"""Maps in Chromium: the map page, two maps side by side, and the map next to the walk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import inlayer
from inlayer.geometry.compare import compare_page, match_rows
from inlayer.geometry.map_page import KINDS, all_neighbors, map_facts, render_map_page, token_kinds
from inlayer.geometry.projection import TableProjection, measure_distortion, pca
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render.glyphs import glyphs_for, with_spaces
from inlayer.tables.stored_table import StoredTable
from inlayer.tokenizers.base import text_of_bytes
from tests.browser.watched_page import TIMEOUT, Watched, watch

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
    projection = projection._replace(distortion=measure_distortion(model.table, projection.points))
    facts = map_facts(model.table, model.vocabulary, projection)
    path = tmp_path_factory.mktemp("map") / "map.html"
    path.write_text(
        render_map_page("Token map", facts, all_neighbors(model.table, projection.points)), encoding="utf-8"
    )
    return path


@pytest.fixture
def page(browser: Browser, document: Path) -> Any:
    context = browser.new_context(reduced_motion="reduce")
    opened = context.new_page()
    opened.set_default_timeout(TIMEOUT)
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
    shown = np.array(
        page.evaluate("Array.from(inlayerMap.data.points, value => Number.isNaN(value) ? null : value)"), float
    )
    np.testing.assert_array_equal(shown.reshape(-1, 2).astype(np.float32), projection.points)
    page.fill("#query", "king")
    page.press("#query", "Enter")
    expected = model.neighbors("king", 10, include_special=True)
    assert page.locator("#near .near-name").all_inner_texts() == [one.text.replace(" ", "␣") for one in expected]
    assert page.locator("#near .near-cosine").all_inner_texts() == [f"{one.score:.3f}" for one in expected]


def test_no_tooltip_is_left_behind(page: Page, model: inlayer.Model) -> None:
    page.fill("#query", "king")
    page.press("#query", "Enter")
    page.wait_for_function("() => !inlayerMap.moving")
    token = model.tokenizer.encode(" king")[0]
    for action in (
        lambda at: page.mouse.click(*at),
        lambda _: page.set_viewport_size({"width": 900, "height": 700}),
        lambda _: page.evaluate("inlayerMap.fit()"),
    ):
        box = page.locator("#map").bounding_box()
        assert box is not None
        x, y = page.evaluate("(id) => inlayerMap.toScreen(id)", token)
        page.mouse.move(box["x"] + x, box["y"] + y)
        page.wait_for_selector(".map-tip", state="visible")
        action((box["x"] + x, box["y"] + y))
        page.wait_for_selector(".map-tip", state="hidden")
        page.mouse.move(box["x"] + 2, box["y"] + 2)


def test_hover_click_and_keyboard(page: Page, model: inlayer.Model) -> None:
    page.fill("#query", "seven")
    page.press("#query", "Enter")
    token = model.tokenizer.encode(" seven")[0]
    assert page.locator("#token").inner_text() == "␣seven"
    assert page.locator("#about").inner_text().startswith(f"Token {token}.")
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
    x, y = page.evaluate("inlayerMap.toScreen(3000)")
    page.mouse.move(box["x"] + x, box["y"] + y)
    hovered = page.evaluate("inlayerMap.scene.hovered")
    assert page.evaluate(f"inlayerMap.toScreen({hovered})") == pytest.approx([x, y], abs=10)
    assert page.locator(".map-tip").inner_text().startswith(model.vocabulary.text(hovered).replace(" ", "␣"))
    assert "nearest tokens" in page.locator(".map-tip").inner_text()
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#about").inner_text().startswith(f"Token {hovered}.")
    page.mouse.wheel(0, -300)
    page.wait_for_function("(scale) => inlayerMap.view.scale > scale", arg=page.evaluate("inlayerMap.view.scale / 1.2"))


def test_legend_of_one_kind_is_empty(page: Page) -> None:
    """As in a model without tokenizer, whose tokens have only numbers."""
    entries = (
        "(kinds) => { const list = document.createElement('ul'); fillKindLegend(list, kinds); return list.innerText }"
    )
    assert page.evaluate(entries, [4, 4, 4]) == ""
    assert page.evaluate(entries, [1, 4]) == "wordsnumbers and punctuation"


def test_rows_without_text_have_a_neutral_color(page: Page) -> None:
    kinds = "(texts) => Array.from(labelOrder(texts, null).kinds)"
    assert page.evaluate(kinds, ["#0", "#1", "#2"]) == [0, 0, 0]
    assert page.evaluate(kinds, ["#", "#3", "#2"]) == [4, 4, 0]  # tokens


def test_kinds_are_those_of_a_picture(page: Page, model: inlayer.Model) -> None:
    kinds = page.evaluate("Array.from(inlayerMap.kinds, (kind) => TOKEN_KINDS[kind])")
    assert kinds == token_kinds(model.vocabulary)
    assert set(kinds) == {*KINDS}


def test_the_page_says_once_what_is_known_of_a_row(browser: Browser, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    rows[9] = 0
    table, vocabulary = StoredTable.from_array(rows), Vocabulary(None, 200)
    distortion = measure_distortion(table, pca(table).points, sample=2)
    projection = pca(table)._replace(distortion=distortion)
    path = tmp_path / "map.html"
    path.write_text(render_map_page("Map", map_facts(table, vocabulary, projection), {}), encoding="utf-8")
    opened = browser.new_page(reduced_motion="reduce")
    opened.set_default_timeout(TIMEOUT)
    advice = "inlayer neighbors --id {} finds its nearest tokens."
    preserved = distortion.neighborhood_preservation[0]
    for row, about in (
        (0, f"{preserved:.0%} of its 10 nearest tokens are also its neighbors on this map. {advice}"),
        (1, f"Not measured: neighborhood preservation was computed for only a sample of the rows. {advice}"),
        (9, "This row is zero or not finite, so it is not on the map."),
    ):
        opened.goto("about:blank")
        opened.goto(f"{path.as_uri()}#token={row}")
        assert (opened.inner_text("#token"), opened.inner_text("#about")) == (f"#{row}", about.format(row))
    assert opened.inner_text("#kinds") == ""
    box = opened.locator("#map").bounding_box()
    assert box is not None
    x, y = opened.evaluate("inlayerMap.toScreen(1)")
    opened.mouse.move(box["x"] + x, box["y"] + y)
    opened.wait_for_selector(".map-tip", state="visible")
    assert opened.inner_text(".map-tip").count("#") == 1  # an id, and no text
    opened.close()


def test_tokens_are_written_as_on_the_terminal(page: Page) -> None:
    texts = [" a\n\t\r", "\x00\x7f", "\xa0\u200b\u2028\ufeff", "\U000e0041é日🙂", text_of_bytes(b" \xe2\x80")]
    glyphs = glyphs_for("utf-8", color=False)
    assert page.evaluate("(texts) => texts.map(visible)", texts) == [glyphs.truncate(text, 99) for text in texts]
    tokens = ["\u2581\u2581King", " King", "<\uff5cbegin\u2581of\u2581sentence\uff5c>"]
    assert page.evaluate("(texts) => texts.map(tokenText)", tokens) == [
        glyphs.truncate(with_spaces(token), 99) for token in tokens
    ]


def test_rows_that_are_not_drawn_have_a_name_that_can_be_recognized(page: Page) -> None:
    texts = ["#0", "<|reserved_special_token_0|>", " " * 50]
    expected = f"0, 1 ({texts[1]}), 2 ({'␣' * 39}…), ..."
    assert page.evaluate("(texts) => rowNames([0, 1, 2], texts, 4)", texts) == expected


def test_tokens_of_single_bytes_are_labeled(page: Page) -> None:
    """They are not words, but the map has nothing else to name."""
    names = """() => {
      const texts = Array.from({length: 256}, (_, id) => `\\\\x${id.toString(16).padStart(2, "0")}`);
      const picker = makeLabelPicker({texts, words: new Uint8Array(256)}, (id) => texts[id], () => 24);
      const grid = {ids: Int32Array.from({length: 256}, (_, id) => id), runs: (a, b, c, d, run) => run(0, 256)};
      const toScreen = (id) => [90 * (id % 16), 60 * Math.floor(id / 16)];
      const all = {grid, frame: {}, toScreen, isInside: () => true, boxes: makeBoxes(), depth: 0, skip: new Set()};
      picker.pick({...all, most: 40});
      return picker.shown.size;
    }"""
    assert page.evaluate(names) == 40


def test_unknown_token_is_reported(page: Page) -> None:
    page.fill("#query", "qqqqzzzz")
    page.press("#query", "Enter")
    assert page.evaluate("document.getElementById('query').validationMessage") == "no token contains this text"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440, 2560])
def test_points_are_drawn_at_every_width(page: Page, width: int, scheme: Any) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(
        "() => { const c = document.getElementById('map');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n > 3000; }"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_labels_do_not_overlap(page: Page) -> None:
    page.fill("#query", "king")
    page.press("#query", "Enter")
    assert page.evaluate("inlayerMap.scene.chosen") == 1988
    page.wait_for_function("() => inlayerMap.labels.length > 8 && !inlayerMap.moving")
    labels = page.evaluate("inlayerMap.labels")
    width = page.evaluate("document.querySelector('canvas').clientWidth")
    assert not any(one["left"] < edge < one["right"] for one in labels for edge in (0, width))  # none is cut off
    for index, one in enumerate(labels):
        for other in labels[index + 1 :]:
            apart = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert apart or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (one, other)


def test_motion_ends_where_it_would_start_without_motion(browser: Browser, document: Path) -> None:
    views = []
    for motion in ("reduce", "no-preference"):
        opened = browser.new_page(reduced_motion=motion)  # type: ignore[arg-type]
        opened.set_default_timeout(TIMEOUT)
        opened.goto(document.as_uri() + "#token=1988")
        opened.wait_for_selector("#map[data-drawn]")
        opened.wait_for_function("() => !inlayerMap.moving")
        views.append(opened.evaluate("inlayerMap.view"))
        opened.close()
    assert views[0] == pytest.approx(views[1])


def test_rows_without_a_direction_are_holes_with_a_name(page: Page) -> None:
    assert "zero or non-finite" in page.locator("#about").inner_text()
    assert not page.evaluate("inlayerMap.isPlaced(6142)")
    page.evaluate("location.hash = 'token=6142'")
    page.reload()
    assert "This row is zero or not finite" in page.locator("#about").inner_text()


def test_a_new_layout_moves_the_points(page: Page, projection: TableProjection) -> None:
    page.evaluate(
        "inlayerMap.setData({...inlayerMap.data, points: inlayerMap.data.points.map(value => 2 * value + 1)})"
    )
    shown = page.evaluate("Array.from(inlayerMap.data.points.slice(0, 2))")
    assert shown == pytest.approx((2 * projection.points[0] + 1).tolist())
    view = page.evaluate("inlayerMap.view")
    page.click("#all")
    page.wait_for_function("() => !inlayerMap.moving")
    assert page.evaluate("inlayerMap.view") == pytest.approx(view)  # the whole map is shown before and after


def test_map_next_to_the_walk(open_page: Callable[..., Watched], model: inlayer.Model) -> None:
    text = "king of London"
    watched = open_page(f"text={text}", width=1440, height=900)
    page = watched.page
    page.wait_for_selector("#map[data-drawn]")
    ids = model.tokenizer.encode(text)
    assert page.evaluate("inlayerMap.scene.marks.map(mark => mark.id)") == ids
    shown = page.evaluate("Array.from(inlayerMap.data.points, value => Number.isNaN(value) ? null : value)")
    np.testing.assert_array_equal(np.array(shown, np.float32).reshape(-1, 2), model.project("best").points)
    assert "trustworthiness" in watched.text("#map-pane")
    assert "6142 (<pad>)" in watched.text("#map-pane")
    page.fill("#map-query", "seven")  # by keyboard only
    page.press("#map-query", "Enter")
    page.wait_for_selector("#token:not([hidden]) .neighbors li")
    near = [one.id for one in model.neighbors("seven", 8, include_special=True)]
    assert page.evaluate("inlayerMap.scene.near") == near
    last = page.locator("#token .neighbors li").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] < 900  # visible without scrolling
    page.locator("#token .neighbors button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("(id) => inlayerMap.scene.chosen === id", arg=near[0])
    before = page.evaluate("inlayerMap.view.scale")
    page.focus("#map")
    page.keyboard.press("+")
    assert page.evaluate("inlayerMap.view.scale") > before
    assert "step=1" in watched.fragment()


def test_map_of_another_model_is_never_shown(open_page: Callable[..., Watched]) -> None:
    watched = open_page("text=king&model=default")
    page, held = watched.page, []
    page.wait_for_selector("#map[data-drawn]")

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/api/map?*model=random*", hold)
    page.select_option("#model", "random")
    page.wait_for_selector(".map-about:has-text('Loading the map')")
    assert page.is_hidden("#map")
    assert page.is_hidden("#map-pane .map-legend")
    page.wait_for_timeout(20)
    held[0].continue_()
    page.wait_for_selector("#map[data-drawn]")
    assert page.evaluate("inlayerMap.data.texts.length") == 257


def test_compared_maps_are_linked(browser: Browser, model: inlayer.Model, tmp_path: Path) -> None:
    tables = (model.table, model.vocabulary), (model.table, model.vocabulary)
    shared = match_rows(*tables)
    maps = pca(model.table)
    turned = maps._replace(points=maps.points[:, ::-1].copy())
    path = tmp_path / "compare.html"
    facts = [("rows", "6,144 equal")]
    path.write_text(compare_page(("one", "two"), (maps, turned), shared, facts), encoding="utf-8")
    watched = watch(browser.new_context(reduced_motion="reduce", offline=True), path.as_uri())
    watched.page.goto(watched.address)
    watched.page.fill("#query", "king")
    watched.page.press("#query", "Enter")
    assert watched.page.evaluate("inlayerMaps.map(map => map.scene.chosen)") == [1988, 1988]
    assert watched.page.evaluate("inlayerMaps[0].view") == pytest.approx(
        watched.page.evaluate("inlayerMaps[1].view"), rel=1e-3
    )
    expected = [one.text.replace(" ", "␣") for one in model.neighbors("king", 10, include_special=True)]
    assert watched.page.locator("#lists .near-name").all_inner_texts() == [*expected, *expected]
    watched.finish()


def test_compared_maps_have_the_same_size(browser: Browser, model: inlayer.Model, tmp_path: Path) -> None:
    """Even if a few points of one map are far away from the others."""
    table, maps = (model.table, model.vocabulary), pca(model.table)
    far = maps.points.copy()
    far[:20] *= 20
    path = tmp_path / "compare.html"
    page = compare_page(("one", "two"), (maps, maps._replace(points=far)), match_rows(table, table), [])
    path.write_text(page, encoding="utf-8")
    opened = browser.new_page(reduced_motion="reduce")
    opened.set_default_timeout(TIMEOUT)
    opened.goto(path.as_uri())
    first, second = (
        np.diff(opened.evaluate(f"[812, 1988].map(inlayerMaps[{side}].toScreen)"), axis=0) for side in (0, 1)
    )
    assert np.linalg.norm(first) == pytest.approx(np.linalg.norm(second), rel=0.05)
    opened.evaluate("for (let i = 0; i < 20; i += 1) inlayerMaps[1].zoom(0.5)")
    width = opened.evaluate("document.getElementById('map-b').clientWidth")
    assert all(0 < opened.evaluate(f"inlayerMaps[1].toScreen({token})[0]") < width for token in range(20))
    opened.close()


def test_compared_rows_are_listed_and_marked(browser: Browser, model: inlayer.Model, tmp_path: Path) -> None:
    rows = model.table.weight.astype(np.float32)
    rows[812] *= -1  # love
    rows[1988] *= 3  # king
    rows[2401], rows[2402, 0], rows[2403] = 0, np.inf, rows[2403] * 1.05  # moved too little to be marked
    tables = (model.table, model.vocabulary), (StoredTable.from_array(rows), model.vocabulary)
    shared, maps = match_rows(*tables), (pca(model.table), pca(tables[1][0]))
    shared = shared._replace(b=shared.b._replace(only=[2500]))
    path = tmp_path / "compare.html"
    path.write_text(compare_page(("one", "two"), maps, shared, [("rows", "a < b")]), encoding="utf-8")
    watched = watch(browser.new_context(reduced_motion="reduce", offline=True), path.as_uri())
    page = watched.page
    page.goto(watched.address)
    assert page.locator(".compared-facts dd").all_inner_texts() == ["a < b"]
    cells = [" ".join(text.split()) for text in page.locator("#lists li").all_inner_texts()]
    texts = [visible_text(model, token) for token in (2401, 2402, 812, 1988, 2500)]
    norms = [f"{norm:.2f}" for norm in np.linalg.norm(model.table.rows([2401, 2402]).astype(np.float32), axis=1)]
    assert cells == [
        f"{texts[0]} {norms[0]} → 0", f"{texts[1]} {norms[1]} → infinite", "␣love −1.000 3.71 → 3.71",
        "␣king 1.000 3.42 → 10.26", texts[4],
    ]  # fmt: skip
    assert page.evaluate("inlayerMaps.map(map => map.scene.marks.map(mark => mark.id))") == [[812, 1988]] * 2
    page.locator("#lists button").nth(2).click()
    assert "Norms: 3.71 in A, 3.71 in B" in page.inner_text("#about")
    assert page.is_hidden(".compared-facts")
    page.click("#all")
    assert page.is_visible(".compared-facts")
    assert page.evaluate("inlayerMaps[0].scene.chosen") == -1
    watched.finish()


def visible_text(model: inlayer.Model, token: int) -> str:
    return glyphs_for("utf-8", color=False).truncate(model.vocabulary.text(token), 99)


def test_inspect_page_is_about_the_linked_model(browser: Browser, client: Any) -> None:
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    for model, rows in (("quantized", "4 x 64"), ("default", "6,144 x 128")):
        page.goto("about:blank")
        page.goto(f"http://127.0.0.1:{client.port}/inspect?token={client.token}#model={model}")
        page.wait_for_selector("#facts dd")
        assert rows in page.inner_text("#facts")
    page.wait_for_selector("#map[data-drawn]")
    assert page.eval_on_selector_all("#tabs a", "all => all.map((one) => new URL(one.href).pathname)") == [
        "/", "/", "/", "/inspect", "/learn",
    ]  # fmt: skip
    page.evaluate("localStorage.setItem('inlayer-theme', 'dark')")  # as chosen on the walk page
    page.reload()
    page.wait_for_selector("#tabs:not([hidden])")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.close()
