"""Appearance and accessibility: phone width, dark and light themes, contrast, accessible names, long texts.

Set INLAYER_SHOTS to a folder to keep screenshots.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser.watched_page import MOVING

pytestmark = pytest.mark.slow

DOGS = "text=I+love+dogs&model=default"
BATCH = DOGS + "&text=the+cats+and+the+dogs,+and+so+on"

# The WCAG contrast of all visible text with its background.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, under) => top.slice(0, 3).map((part, at) => part * top[3] + under[at] * (1 - top[3]));
  const behind = (element) => { if (!element) return [255, 255, 255];
    const color = parse(getComputedStyle(element).backgroundColor);
    return color[3] === 1 ? color.slice(0, 3) : over(color, behind(element.parentElement)); };
  const light = (color) => { const [r, g, b] = color.map((part) => { const s = part / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".hidden-text, script, option")) continue;
    const ground = behind(element), ink = over(parse(getComputedStyle(element).color), ground);
    const [high, low] = [light(ink), light(ground)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) weak.push([element.className, element.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return weak;
}"""


def keep(watched, name: str) -> None:
    if "INLAYER_SHOTS" in os.environ:
        folder = Path(os.environ["INLAYER_SHOTS"])
        folder.mkdir(parents=True, exist_ok=True)
        watched.page.screenshot(path=folder / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_all_text(scheme, open_page):
    watched = open_page(f"{BATCH}&step=1&swap=0,1&positions=sinusoidal", color_scheme=scheme)
    weak = []
    for step in range(1, 9):
        watched.step(step)
        weak += watched.page.evaluate(CONTRAST)
        keep(watched, f"{scheme}-{step}")
    watched.page.click("#reset")
    watched.page.wait_for_selector("#changed-note", state="detached")
    for selector in ("#step-3", "#step-6", "#predict", "#view-initialization"):
        watched.page.click(selector)
        weak += watched.page.evaluate(CONTRAST)
    assert weak == []
    watched.page.evaluate("document.querySelector('.brand').style.setProperty('color', '#777')")
    assert watched.page.evaluate(CONTRAST) != []  # control


def test_theme_follows_the_system_unless_chosen(open_page):
    def ground(watched) -> int:
        color = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in color[4:-1].split(","))

    dark, light = (open_page(f"{DOGS}&step=5", color_scheme=scheme) for scheme in ("dark", "light"))
    assert ground(dark) < 150
    assert ground(light) > 600
    dark.page.click("#theme")
    assert dark.text("#theme") == "Theme: light"
    assert ground(dark) == ground(light)
    dark.page.reload()
    dark.page.wait_for_selector(".figure")
    assert ground(dark) == ground(light)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_width_never_scrolls_sideways(scheme, open_page):
    watched = open_page(f"{BATCH}&step=1&dims=16", width=390, height=844, color_scheme=scheme, has_touch=True)
    page = watched.page
    for state in ("true", "false"):
        page.tap("#predict")
        assert page.get_attribute("#predict", "aria-pressed") == state
    for step in range(1, 9):
        watched.step(step)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, step
        keep(watched, f"phone-{scheme}-{step}")
    watched.step(5)
    assert page.evaluate(
        "document.querySelector('.scroll').scrollWidth > 390"
    )  # the matrix scrolls in its own container
    page.tap("[data-field=row][data-t='0'][data-d='0']")
    assert "rows[0,0,0]" in watched.inspector()
    page.tap("[aria-label='Close the inspector']")
    page.tap("#changes-toggle")
    assert page.is_visible("#swap")
    page.tap("[data-field=token][data-t='1']")
    page.wait_for_selector("#token h3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.tap("[aria-label='Close the token panel']")
    page.tap("#view-initialization")
    page.wait_for_selector(".initialization-step")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep(watched, f"phone-{scheme}-initialization")


# Visible elements beyond the right edge that no box of their own scrolls or cuts.
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
    && one.getBoundingClientRect().right > innerWidth && !one.closest(".scroll, .chip-row, .examples, .hidden-text"))
  .map((one) => `${one.tagName} ${one.className}`)"""


@pytest.mark.parametrize(("model", "other"), [("default", "stages"), ("stages", "default")])
def test_no_view_of_two_models_is_wider_than_a_phone(model, other, open_page):
    text = "The+king+left+London+with+seven+friends+on+Monday"
    watched = open_page(f"text={text}&model={model}&other={other}&step=1", width=390, height=844)
    page = watched.page
    for view in [*range(1, 9), "compare", "initialization"]:
        page.click(f"#step-{view}" if isinstance(view, int) else f"#view-{view}")
        page.wait_for_selector(
            {"compare": f"[aria-label={other}] .similarity", "initialization": ".once"}.get(
                str(view), f".figure[data-step='{view}']"
            )
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        assert page.evaluate(OUTSIDE) == [], view
    page.evaluate("document.querySelector('.once').style.width = '500px'")
    assert page.evaluate(OUTSIDE) != []  # control


@pytest.mark.parametrize("step", [2, 3])
def test_long_words_wrap(step, open_page):
    words = "Donaudampfschifffahrtsgesellschaft+" * 2 + "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    watched = open_page(f"text={words}&model=default&step={step}", width=390, height=844)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390


NAMELESS = """() => [...document.querySelectorAll(
    "button, a, input, select, textarea, [role=grid], [role=gridcell], section")]
  .filter((element) => element.checkVisibility() && !(element.textContent.trim() || element.getAttribute("aria-label")
    || element.labels?.length || element.getAttribute("aria-labelledby")))
  .map((element) => element.outerHTML.slice(0, 120))"""


def test_all_elements_have_accessible_names(open_page):
    watched = open_page(f"{BATCH}&step=1&token=812")
    watched.page.wait_for_selector("#token h3")
    for step in range(1, 9):
        watched.step(step)
        assert watched.page.evaluate(NAMELESS) == [], step
    landmarks = watched.page.evaluate(
        "['header', 'nav[aria-label]', 'main[aria-labelledby]', 'aside[aria-label]', 'footer', 'form[aria-label]']"
        ".map((one) => document.querySelectorAll('body > ' + one + ', .workspace > ' + one).length)"
    )
    assert landmarks == [1] * 6
    grids = watched.page.evaluate("[...document.querySelectorAll('table')].every((one) => one.tHead && one.ariaLabel)")
    assert grids
    ids = watched.page.evaluate("Array.from(document.querySelectorAll('[id]'), (one) => one.id)")
    assert len(ids) == len(set(ids))


def test_reduced_motion_disables_transitions(open_page):
    watched = open_page(f"{DOGS}&step=5")
    still = "[...document.querySelectorAll('*')].every((one) => getComputedStyle(one).transitionDuration === '0s')"
    assert watched.page.evaluate(still)
    assert not open_page(f"{DOGS}&step=5", **MOVING).page.evaluate(still)


def test_the_motion_switch_shows_what_applies(open_page):
    moving, still = open_page(f"{DOGS}&step=5", **MOVING).page, open_page(f"{DOGS}&step=5").page
    for state in ("false", "true"):
        moving.click("#motion")
        assert moving.get_attribute("#motion", "aria-pressed") == state
    assert still.is_disabled("#motion")  # the system asks for less motion
    assert still.get_attribute("#motion", "aria-pressed") == "false"
    still.emulate_media(reduced_motion="no-preference")
    still.wait_for_selector("#motion[aria-pressed=true]:enabled")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (768, 1024)])
def test_a_narrow_screen_shows_the_content_before_the_map(width, height, open_page):
    page = open_page(f"{DOGS}&step=8", width=width, height=height).page
    page.wait_for_selector("#map[data-drawn]")
    page.wait_for_selector("#learning-rate")
    page.eval_on_selector("#learning-rate", "(one) => one.scrollIntoView({ block: 'center' })")
    box, slider = page.locator("#map").bounding_box(), page.locator("#learning-rate").bounding_box()
    assert box is not None
    assert slider is not None
    assert 0 < slider["y"] + slider["height"] < box["y"] < box["y"] + box["height"] < height
    places = {}
    for step in range(1, 9):
        page.click(f"#step-{step}")
        page.wait_for_selector(f".figure[data-step='{step}']")
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        stage, pane = page.locator("#stage").bounding_box(), page.locator("#map-pane").bounding_box()
        assert stage is not None
        assert pane is not None
        places[step] = pane["y"] >= stage["y"] + stage["height"]
    assert all(places.values()), places


@pytest.mark.parametrize("width", [1200, 1280, 1440, 2560])
def test_the_headline_fits_in_one_line(width, open_page):
    page = open_page(DOGS, width=width).page
    lines = """(one) => { const range = document.createRange(); range.selectNodeContents(one);
      return new Set(Array.from(range.getClientRects(), (box) => Math.round(box.bottom))).size; }"""
    assert page.eval_on_selector(".tagline", lines) == 1
    page.set_viewport_size({"width": 600, "height": 800})
    assert page.eval_on_selector(".tagline", lines) > 1  # control


@pytest.mark.parametrize("width", [1440, 2560])
def test_all_columns_are_whole(width, open_page):
    watched = open_page(f"{DOGS}&step=4", width=width, height=900)
    for step in (4, 5, 6, 7, 8):
        watched.step(step)
        if step == 6:
            watched.page.click(".rotary summary")
        boxes = watched.page.eval_on_selector_all(
            "#numbers .scroll",
            "(all) => all.map((one) => [one.scrollWidth, one.clientWidth, one.firstChild.rows[0].cells.length])",
        )
        assert all(content <= shown for content, shown, _ in boxes), step
        assert max(columns for *_, columns in boxes) >= (8 if width < 2200 else 12), step


@pytest.mark.parametrize("view", ["step=4", "step=5", "step=8", "view=compare&other=stages"])
def test_a_table_with_hidden_columns_fades_until_its_end(view, open_page):
    page = open_page(f"text=The+king+left+London+with+seven+friends&model=default&{view}", width=390, height=844).page
    page.wait_for_selector(".scroll.has-more")
    page.eval_on_selector(".scroll.has-more", "(box) => { box.id = 'wide'; box.scrollLeft = box.scrollWidth; }")
    page.wait_for_selector("#wide:not(.has-more)")
    page.eval_on_selector("#wide", "(box) => { box.scrollLeft = 0; }")
    page.wait_for_selector("#wide.has-more")


@pytest.mark.parametrize("view", ["step=8", "step=6&positions=sinusoidal"])
def test_a_table_that_scrolls_ends_after_a_group_of_rows(view, open_page):
    page = open_page(f"text=The+king+left+London+with+seven+friends&{view}", width=1440).page
    page.wait_for_selector(".scroll[style*=max-height]")
    ends, end = page.eval_on_selector(
        ".scroll[style*=max-height]",
        """(box) => [Array.from(box.firstChild.tBodies, (one) => one.getBoundingClientRect().bottom),
             box.getBoundingClientRect().top + box.clientHeight]""",
    )
    assert ends[-1] > end  # it scrolls
    assert min(abs(end - one) for one in ends) <= 4  # the padding of the box


def test_a_chip_keeps_its_hue_and_reset_is_not_alone(open_page):
    page = open_page(f"{DOGS}&step=6", width=1440).page
    border = "getComputedStyle(document.querySelector('.chip')).borderLeftColor"
    hue = page.evaluate(border)
    page.hover(".chip")
    assert page.evaluate(border) == hue
    for width in (1440, 768):
        page.set_viewport_size({"width": width, "height": 900})
        reset, before = (page.locator(one).bounding_box() for one in ("#reset", ".last-control > :first-child"))
        assert reset is not None
        assert before is not None
        assert before["y"] <= reset["y"] + reset["height"] / 2 <= before["y"] + before["height"], width


def test_long_texts_are_truncated(open_page):
    """At most 256 tokens are drawn."""
    watched = open_page("text=" + "the+dog+and+" * 120 + "&model=default&step=4")
    assert "Tokens 0 to 255 of 361" in watched.text("#stage")
    for step in (5, 6, 7):
        watched.step(step)
    assert len([cell for cell in watched.shown() if cell["field"] == "hidden"]) == 256 * 8


def test_the_text_box_fits_its_text_after_the_window_changes(open_page):
    watched = open_page("text=" + "the+dog+and+" * 12 + "&step=1")
    page = watched.page
    height = "document.querySelector('#texts textarea').clientHeight"
    needed = "document.querySelector('#texts textarea').scrollHeight"
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_function(f"() => {height} >= {needed}")
    wide = page.evaluate(height)
    for width, becomes in ((390, f"> {wide}"), (1440, f"=== {wide}")):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(f"() => {height} {becomes} && {height} >= {needed}")
