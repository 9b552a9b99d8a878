"""Large maps draw a sample of their points while they move (benchmarks/map_frames.py measures the frames)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.map_frames import synthetic_page
from tests.browser.watched_page import STILL, watch

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
