"""The scene of the walk page: strips, table, similarities, merges, motion, chips, comparison of two models."""

from __future__ import annotations

import base64
from itertools import pairwise

import numpy as np
import pytest

import inlayer
from inlayer.trace import Change
from inlayer.trace.scene import QUANTILE
from tests.browser.watched_page import MOVING

pytestmark = pytest.mark.slow

TEXT = "The king left London with seven friends on Monday"
START = "text=The+king+left+London+with+seven+friends+on+Monday&model=default"


def colors(watched, lane: str = "hidden") -> np.ndarray:
    """The color in the middle of every cell of a lane on the canvas: (tokens, channels, 3)."""
    found = watched.page.evaluate(
        """(lane) => { const canvas = document.querySelector("#scene-canvas"), ratio = devicePixelRatio;
             const { lanes, line, tokens } = window.inlayerScene.layout, width = window.inlayerScene.data.width;
             const { x, w } = lanes.find((one) => one.name === lane);
             const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
             const at = (px, py) => 4 * (Math.floor(py * ratio) * canvas.width + Math.floor(px * ratio));
             return tokens.map((_, index) => Array.from({ length: width }, (_, d) => {
               const start = at(x + (d + 0.5) / width * w, (index + 0.4) * line);
               return [...data.slice(start, start + 3)]; })); }""",
        lane,
    )
    return np.array(found).astype(int)


def test_strips_have_the_colors_of_the_hidden_states(open_page):
    model = inlayer.load("default")
    rows = model.table.rows(model.tokenizer.encode(TEXT)).astype(np.float32)
    watched = open_page(f"{START}&step=7", width=2400)
    shown = colors(watched)
    assert shown.shape == (len(rows), 128, 3)
    warm = shown[..., 0] - shown[..., 2]  # orange above zero, blue below
    clear = np.abs(rows) > 0.3
    assert (np.sign(warm[clear]) == np.sign(rows[clear])).all()
    order = np.argsort(np.abs(rows[0]))
    assert np.abs(warm[0, order[-5:]]).min() > np.abs(warm[0, order[:5]]).max()
    assert not (np.sign(warm[::-1][clear]) == np.sign(rows[clear])).all()  # control: other rows have other colors


def test_similarities_equal_the_library(open_page):
    model = inlayer.load("default")
    rows = model.table.rows(model.tokenizer.encode(TEXT)).astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    watched = open_page(f"{START}&step=7")
    shown = np.array(watched.page.evaluate("window.inlayerScene.data.similarity.hidden"))
    np.testing.assert_allclose(shown, unit @ unit.T, atol=1e-5)
    swapped = open_page(f"{START}&step=7&swap=1,3")
    permuted = np.array(swapped.page.evaluate("window.inlayerScene.data.similarity.hidden"))
    order = [0, 3, 2, 1, *range(4, len(rows))]
    np.testing.assert_allclose(permuted, shown[np.ix_(order, order)], atol=1e-5)  # merely permuted
    with_positions = open_page(f"{START}&step=7&swap=1,3&positions=sinusoidal")
    without = open_page(f"{START}&step=7&positions=sinusoidal")
    after, before = (
        np.array(one.page.evaluate("window.inlayerScene.data.similarity.hidden")) for one in (with_positions, without)
    )
    assert np.abs(after - before[np.ix_(order, order)]).max() > 0.01  # with positions, it is not


def test_a_note_about_the_scale_stands_under_the_vectors_and_not_the_cosines(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=7")
    lines = watched.page.locator("#scene-caption .legends > span").all_inner_texts()
    assert [line.split()[0] for line in lines] == ["hidden", "full", "full", "cosine"]


def test_legend_of_the_map_explains_the_tokens_and_arcs(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=7")
    watched.page.wait_for_selector(".marks-legend")
    assert watched.text(".marks-legend") == "large dots: your tokens, in green or purple; arcs: their order"


def test_table_is_drawn_from_stored_values(open_page):
    model = inlayer.load("default")
    watched = open_page(f"{START}&step=4")
    table = watched.page.evaluate("window.inlayerScene.table")
    values = np.frombuffer(base64.b64decode(table["values"]), np.int8).reshape(len(table["rows"]), -1)
    stored = model.table.rows(table["rows"])[:, table["channels"]].astype(np.float32)
    wanted = np.clip(np.rint(127 * stored / np.float32(table["scale"])), -127, 127)
    np.testing.assert_array_equal(values, wanted)


def test_merges_play_in_the_order_of_their_ranks(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=default&step=3")
    page = watched.page
    trace = pipelines["default"].walk(["I love dogs"])
    ranks = sorted(merge.rank for one in trace.texts[0].pre_tokens or [] for merge in one.merges or [])
    seen = []
    for count in range(len(ranks) + 1):
        page.eval_on_selector(
            "#merge-slider", "(one, count) => { one.value = count; one.dispatchEvent(new Event('input')); }", str(count)
        )
        seen.append(page.locator(".merge-tile").count())
    assert seen[0] == len(b"I love dogs")
    assert seen[-1] == trace.texts[0].n_tokens
    assert all(later < earlier for earlier, later in pairwise(seen))
    assert f"rank {ranks[-1]:,}" in watched.text("#merge-count")


# Records in every frame which tiles are outside their pre-token's box or over the controls, and the merges drawn.
RECORD_MERGES = """() => {
  window.misplaced = new Set(), window.drawn = [];
  const record = () => {
    const controls = document.querySelector(".merge-controls").getBoundingClientRect();
    for (const tile of document.querySelectorAll(".merge-tile")) {
      const box = tile.parentElement.getBoundingClientRect(), one = tile.getBoundingClientRect();
      const isInside = one.left >= box.left && one.right <= box.right && one.top >= box.top && one.bottom <= box.bottom;
      const isOver = one.bottom > controls.top && one.top < controls.bottom;
      if (!isInside || isOver) misplaced.add(tile.textContent);
    }
    drawn.push([performance.now(), Number(document.querySelector("#merge-slider").value)]);
    requestAnimationFrame(record);
  };
  record();
}"""


FINISHED = "() => document.querySelector('#merge-play').textContent === 'Replay merges'"
PAUSE_AFTER_ONE = """() => new Promise((done) => {
  const play = document.querySelector("#merge-play"), slider = document.querySelector("#merge-slider");
  const look = () => {
    const { value, max } = slider;
    if (Number(value) > 0 && Number(value) < Number(max)) return done(play.click());
    if (play.textContent !== "Pause") play.click();
    requestAnimationFrame(look);
  };
  look();
})"""


@pytest.mark.parametrize(
    ("width", "text"), [(1366, TEXT), (390, "Donaudampfschifffahrtsgesellschaft or not"), (1366, "word and " * 1500)]
)
def test_merging_tiles_stay_in_their_boxes(open_page, width, text):
    watched = open_page(f"text={text}&model=default&step=3", width=width, **MOVING)
    page = watched.page
    page.wait_for_function("() => document.querySelector('#merge-slider').value > 0")  # it plays by itself
    page.wait_for_function(FINISHED)
    page.evaluate(RECORD_MERGES)
    page.click("#merge-play")
    page.wait_for_function("() => drawn.at(-1)[1] === Number(document.querySelector('#merge-slider').max)")
    page.wait_for_function(FINISHED)
    frames = page.evaluate("drawn")
    drawn = [frame for last, frame in pairwise([[0, None], *frames]) if frame[1] != last[1]]
    assert page.evaluate("[...misplaced]") == []
    assert len(drawn) > 2  # a slow machine skips merges
    longest = max(after - before for (before, _), (after, _) in pairwise(frames))  # a busy machine draws the end late
    assert drawn[-1][0] - drawn[1][0] < 3000 + longest
    page.evaluate(PAUSE_AFTER_ONE)
    assert watched.text("#merge-play") == "Continue"
    count = page.input_value("#merge-slider")
    page.wait_for_timeout(500)
    assert page.input_value("#merge-slider") == count


def test_merges_are_done_at_once_without_motion(open_page):
    watched = open_page(f"{START}&step=3")
    assert watched.page.locator(".merge-tile").count() == 9
    watched.page.fill("#merge-slider", "0")
    watched.page.click("#merge-play")
    assert watched.page.locator(".merge-tile").count() == 9


def test_hovering_a_token_highlights_it_everywhere(open_page):
    watched = open_page(f"{START}&step=5")
    watched.page.hover(".chip[data-t='3']")
    lit = watched.page.eval_on_selector_all(".lit", "(all) => all.map((one) => one.dataset.tokenId)")
    assert len(lit) >= 2
    assert set(lit) == {"2401"}
    watched.page.hover("h1")
    assert watched.page.locator(".lit").count() == 0


def test_later_channels_and_tokens_can_be_reached(open_page, pipelines):
    watched = open_page(f"{START}&step=5")
    watched.page.click("text=Next channels")
    watched.page.wait_for_selector(".caption:has-text('Channels 8 to 15')")
    trace = pipelines["default"].walk([TEXT], first_channel=8)
    shown = {(cell["t"], cell["d"]): float(cell["value"]) for cell in watched.shown() if cell["field"] == "row"}
    wanted = {
        (str(t), str(8 + d)): value for t, one in enumerate(trace.texts[0].tokens) for d, value in enumerate(one.row)
    }
    assert shown == wanted
    watched.page.hover("[data-field=row][data-t='1'][data-d='9']")
    assert "E[1988,9]" in watched.inspector()
    offset = trace.table.offset + 1988 * trace.table.row_bytes + 9 * 2
    assert f"{offset:,}" in watched.inspector()
    long = open_page("text=" + "the+dog+and+" * 120 + "&model=default&step=5")
    long.page.click("text=Later tokens")
    long.page.wait_for_selector("text=Tokens 256 to 360 of 361")
    assert "from=256" in long.fragment()


def test_keyboard_moves_through_the_scene(open_page):
    watched = open_page(f"{START}&step=5")
    page = watched.page
    page.focus("#scene-canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "king" in watched.text("#scene-tip")
    assert "channel 1" in watched.text("#scene-tip")
    value = inlayer.load("default").table.rows([1988])[0, 1]
    page.wait_for_function("() => document.querySelector('#scene-tip').textContent.split('  ').length > 3")
    assert float(watched.text("#scene-tip").split()[-1].replace("\u2212", "-")) == pytest.approx(float(value), rel=1e-5)
    page.evaluate("inlayerScene.cursor = { index: 1, channel: 126 }")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#scene-tip').textContent.split('  ').length > 3")
    assert page.eval_on_selector("#scene-tip", "(one) => one.clientHeight") < 30  # one line, also at the right edge
    assert "step=5" in watched.fragment()


def test_motion_can_be_switched_off(open_page):
    watched = open_page(f"{START}&step=4", **MOVING)
    page = watched.page
    page.click("#motion")
    page.click("#step-5")
    lanes = page.evaluate("window.inlayerScene.layout.lanes.map((one) => [one.name, one.alpha, one.share ?? 1])")
    assert lanes == [["row", 1, 1]]
    page.reload()
    page.wait_for_selector(".figure")
    assert page.get_attribute("#motion", "aria-pressed") == "false"


def test_the_product_of_one_hot_vectors_is_shown(open_page):
    page = open_page(f"{START}&step=5&dims=4").page
    strengths = page.eval_on_selector_all(
        ".product .block",
        "(all) => all.map((one) => (one.classList.contains('cold') ? -1 : 1) * one.style.getPropertyValue('--m'))",
    )
    rows = [
        float(one)
        for one in page.eval_on_selector_all("[data-field=row]", "(all) => all.map((one) => one.dataset.value)")
    ]
    assert strengths == pytest.approx([value / max(map(abs, rows)) for value in rows], abs=1e-3)


def test_similarities_of_a_batch_name_their_text(open_page):
    words = """() => { const found = [], kind = CanvasRenderingContext2D.prototype, write = kind.fillText;
      kind.fillText = function (text, ...rest) { found.push(text); write.call(this, text, ...rest); };
      document.dispatchEvent(new Event("token-highlight")); // draws the scene again
      kind.fillText = write; return found; }"""
    for more, title in (("", "cosine similarity"), ("&text=Hi+there", "text 1: cosines")):
        page = open_page(f"text=I+love+dogs{more}&model=default&step=7").page
        assert title in page.evaluate(words)


def test_a_swapped_token_keeps_its_hue(open_page):
    hue = "(all) => Object.fromEntries(all.map((one) => [one.dataset.tokenId, one.style.getPropertyValue('--token')]))"
    before = open_page(f"{START}&step=5").page.eval_on_selector_all(".chip", hue)
    page = open_page(f"{START}&step=5&swap=1,3").page
    assert page.locator(".chip .token-id").all_inner_texts()[1] == "2401"  # swapped
    assert page.eval_on_selector_all(".chip", hue) == before


def test_rows_before_a_norm_have_their_own_scale(open_page):
    watched = open_page("text=I+love+dogs&model=stages&step=5")
    strips = watched.page.evaluate("window.inlayerScene.data.strips")
    rows = max(strips["row"]["scale"], strips["position"]["scale"])
    assert strips["hidden"]["scale"] > 10 * rows  # on one scale, rows would be pale
    for step, scales in ((5, [rows]), (6, [rows, strips["hidden"]["scale"]]), (7, [strips["hidden"]["scale"], 1])):
        watched.step(step)
        shown = watched.page.locator("#scene .legend .number:last-of-type").all_inner_texts()
        assert [float(one) for one in shown] == pytest.approx(scales, rel=0.01)


def test_small_positions_have_their_own_scale(open_page):
    watched = open_page("text=I+love+dogs&model=default&positions=learned&step=6")
    strips = watched.page.evaluate("window.inlayerScene.data.strips")
    ratio = strips["row"]["scale"] / strips["position"]["scale"]
    assert ratio > 10  # on one scale, the positions would be blank
    shown = watched.page.locator("#scene .legend .number:last-of-type").all_inner_texts()
    both = max(strips["row"]["scale"], strips["hidden"]["scale"])
    assert [float(one) for one in shown] == pytest.approx([both, strips["position"]["scale"]], rel=0.01)
    caption = watched.text("#scene-caption")
    assert f"about {float(f'{ratio:.2g}'):g} times smaller than the rows, so they have their own color scale" in caption
    assert f"{100 * QUANTILE:g}th percentile of these vectors" in caption
    even = open_page("text=I+love+dogs&model=default&positions=sinusoidal&step=6")
    assert "times smaller" not in even.text("#scene-caption")
    assert even.page.locator("#scene .legend").count() == 1


def test_holes_are_drawn_as_holes(open_page):
    watched = open_page("text=I+love+dogs&model=odd&step=5")
    data = watched.page.evaluate("window.inlayerScene.data.strips.row.values")
    assert (np.frombuffer(base64.b64decode(data), np.int8)[:3] == -128).all()
    assert "NaN" in watched.text("#numbers")


def test_exported_page_has_the_scene(open_file, pipelines, tmp_path):
    from inlayer.trace.html import export

    file = tmp_path / "walk.html"
    file.write_text(export(pipelines["default"], [TEXT], step=7, change=Change()), encoding="utf-8")
    watched = open_file(file)
    assert watched.page.is_visible("#scene-canvas")
    assert watched.page.evaluate("window.inlayerScene.data.tokens") == 9
    watched.page.wait_for_selector("#map[data-drawn]")


@pytest.mark.parametrize("step", range(1, 9))
def test_titles_name_the_step(step, open_page):
    watched = open_page(f"{START}&step={step}")
    assert watched.page.title().startswith(f"{step} ")
    assert watched.page.is_visible("#next")


def test_bytes_of_a_part_of_a_character_are_named_without_glyphs(open_page):
    watched = open_page("text=%E2%80%9CHi&model=default&step=3")
    assert watched.page.locator(".token-card .token-label").all_inner_texts()[:2] == [r"\xe2\x80", r"\x9c"]
    watched.step(5)
    assert watched.page.locator(".chip .token-label").all_inner_texts()[0] == r"\xe2\x80"


@pytest.mark.parametrize("width", [390, 1440])
def test_tokens_are_in_one_place_in_every_step(open_page, width):
    watched = open_page(f"{START}&step=2", width=width)
    places = []
    for step in range(2, 9):  # on a phone, the map is above the first step
        watched.step(step)
        labels = watched.page.locator(".chip .token-label")
        assert labels.all_inner_texts()[:2] == ["The", "\u2423king"]
        assert watched.page.is_visible(".chip .token-id") == (step >= 3)  # ids come from step 3
        places.append([labels.nth(t).bounding_box() for t in (0, 8)])
    assert places == [places[0]] * 7
    assert watched.text("#chips").endswith("is a space")
    padded = open_page(f"{START}&step=2&pad=1", width=width)
    assert not padded.page.is_visible(".padding-chip")
    padded.step(3)
    assert padded.page.is_visible(".padding-chip")


def test_long_texts_keep_the_page_short_and_next_in_its_place(open_page):
    watched = open_page("text=" + "the+dog+and+London+" * 500 + "&model=default&step=4")
    places = []
    for step in range(4, 9):
        watched.step(step)
        assert watched.page.evaluate("document.documentElement.scrollHeight") < 4000
        places.append(watched.page.locator("#next").bounding_box())
    assert places == [places[0]] * 5


@pytest.mark.parametrize(
    ("start", "compared", "shown"),
    [("", "the first 48 of 361 tokens", "the first 256 of 361 tokens"),
     ("&from=256", "tokens 256 to 303 of 361", "tokens 256 to 360 of 361"),
     ("&text=Hi", "the first 48 tokens of the first text", "the first 256 tokens of each text")],
)  # fmt: skip
def test_captions_name_the_part_of_a_long_text(start, compared, shown, open_page):
    watched = open_page("text=" + "the+dog+and+" * 120 + f"&model=default&step=5{start}")
    assert f"channels of {shown};" in watched.text("#scene-caption")
    watched.step(7)
    assert f"every pair of {compared};" in watched.text("#scene-caption")
    watched.step(8)
    assert f"next tokens in {shown}, predicted" in watched.text(".stage-fact")
    short = open_page("text=I+love+dogs&model=default&step=7")
    assert "every pair of tokens;" in short.text("#scene-caption")
    assert "channels of every token;" in short.text("#scene-caption")


def test_empty_text_says_what_to_do(open_page):
    watched = open_page("text=&model=default&step=5")
    assert "The text is empty. Type a text above" in watched.text("#numbers")
    watched.page.click(".example >> nth=1")
    watched.page.wait_for_selector(".chip")
