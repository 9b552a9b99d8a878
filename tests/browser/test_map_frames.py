"""The frames of a map in motion: a sample of the points (benchmarks/map_frames.py measures them), and labels."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import inlayer
from benchmarks.map_frames import synthetic_page
from inlayer.geometry.map_page import all_neighbors, map_facts, render_map_page
from inlayer.geometry.projection import measure_distortion, pca
from tests.browser.watched_page import STILL, TIMEOUT, watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

# Moves a map there and back, and compares its pixels: in the frame of the movement, and at rest.
MOVE = """async () => {
  const canvas = document.getElementById("map"), frame = () => new Promise(requestAnimationFrame);
  const rest = async () => { do await frame(); while (inlayerMap.moving); };
  await rest();
  const size = [canvas.width, canvas.height], pixels = () => canvas.getContext("2d").getImageData(0, 0, ...size).data;
  const same = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);
  const before = pixels(), view = inlayerMap.view;
  inlayerMap.pan(50, 0);
  await frame();
  inlayerMap.view = view;
  await frame();
  const moving = pixels();
  await rest();
  const ratio = [size[0] / canvas.clientWidth, size[1] / canvas.clientHeight];
  return [same(before, moving), same(before, pixels()), ratio];
}"""


@pytest.mark.parametrize(("rows", "scale", "is_whole"), [(20_000, 1, True), (200_000, 1, False), (20_000, 2, False)])
def test_every_point_and_pixel_is_drawn_at_rest(
    browser: Browser, tmp_path: Path, rows: int, scale: int, is_whole: bool
) -> None:
    """Smaller maps on smaller screens are drawn whole in every frame."""
    path = tmp_path / "map.html"
    path.write_text(synthetic_page(rows), encoding="utf-8")
    viewport = {"width": 1440, "height": 900}
    context = browser.new_context(viewport=viewport, device_scale_factor=scale, offline=True, **STILL)  # type: ignore[arg-type]
    watched = watch(context, path.as_uri())
    watched.page.goto(watched.address)
    moving, resting, ratio = watched.page.evaluate(MOVE)
    assert resting
    assert moving == is_whole
    assert ratio == [scale, scale]
    watched.expected = ("willReadFrequently",)  # the browser's advice about reading pixels
    watched.finish()


# The boxes of all labels in each frame while the map zooms out; and whether a button covers the canvas.
FRAMES = """async () => {
  const found = [];
  inlayerMap.zoom(1 / 64);
  while (inlayerMap.moving) {
    await new Promise(requestAnimationFrame);
    found.push(inlayerMap.labels.map((one) => ({ ...one })));
  }
  const canvas = document.querySelector("canvas").getBoundingClientRect();
  return [found, document.querySelector(".map-tools").getBoundingClientRect().top >= canvas.bottom];
}"""


def test_labels_do_not_overlap_while_they_fade_and_buttons_cover_no_points(browser: Browser, tmp_path: Path) -> None:
    model = inlayer.load("default")
    projection = pca(model.table)
    projection = projection._replace(distortion=measure_distortion(model.table, projection.points, sample=32))
    facts = map_facts(model.table, model.vocabulary, projection)
    path = tmp_path / "map.html"
    path.write_text(render_map_page("Map", facts, all_neighbors(model.table, projection.points)), encoding="utf-8")
    page = browser.new_page(reduced_motion="no-preference")
    page.set_default_timeout(TIMEOUT)
    page.goto(path.as_uri() + "#token=1988")
    page.wait_for_function("() => window.inlayerMap?.labels.length > 8 && !inlayerMap.moving")
    frames, is_free = page.evaluate(FRAMES)
    assert is_free
    assert len(frames) > 5
    for labels in frames:
        for one, other in combinations(labels, 2):
            apart = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert apart or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (one, other)
    page.close()
