"""The page of a training report, opened from disk at phone and desktop width, light and dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from inlayer.training.plot import draw
from inlayer.training.run_report import to_html
from tests.browser.test_look import CONTRAST
from tests.browser.watched_page import watch
from tests.training.metrics import make_metrics
from tests.training.test_run_report import HOSTILE, make_report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_report_opens_from_disk(width: int, scheme: Any, browser: Any, tmp_path: Path) -> None:
    metrics = make_metrics(200)
    text = "".join(HOSTILE[1:15]) + "x" * 300
    document = to_html(make_report(text, metrics=metrics), draw(metrics, tmp_path / "training.png"))
    (tmp_path / "report.html").write_text(document, encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True, reduced_motion="reduce"
    )
    watched = watch(context, (tmp_path / "report.html").as_uri())
    page = watched.page
    page.goto(watched.address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # wide parts scroll in their own box
    assert page.evaluate("document.images[0].complete && document.images[0].naturalWidth") == 1430
    assert page.evaluate("getComputedStyle(document.querySelector('section')).borderTopWidth") == "1px"  # styled
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 150) == (scheme == "dark")
    for details in page.query_selector_all("summary"):
        details.click()
    assert page.is_visible("text=learning_rate")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate(CONTRAST) == []
    assert all(url.startswith(("file:", "data:")) for url in watched.requests)
    if "INLAYER_SHOTS" in os.environ:
        page.screenshot(path=Path(os.environ["INLAYER_SHOTS"]) / f"training-{width}-{scheme}.png", full_page=True)
    watched.finish()
