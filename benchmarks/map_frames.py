"""Frame times in Chromium without a GPU: panning and zooming maps of three sizes, scrolling heat strips.

A page draws a map of random clusters in a window of 1440 x 900 pixels. In every frame, synthetic pointer or wheel
events move the view, and the time since the last frame is recorded. The headline is the 95th percentile of the frame
time relative to two refreshes of a 60 Hz screen (30 frames per second). The strips are those of a walk of 2,000
tokens and 4,096 channels, as `inlayer walk --web` serves it. `--page FILE` measures a page of `inlayer map --html`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.measure import Ratio, Result, as_json, installed, show
from inlayer.geometry.map_page import MapFacts, encode, render_map_page

SIZES = (6_144, 163_840, 500_000)
TOKENS, WIDTH = 2_000, 4_096  # size of the heat strips
TARGET_MS = 34.0  # two refreshes are 33.3 ms; a browser reports up to 33.4
FRAMES = 90
CHROMIUM = os.environ.get("INLAYER_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
# Moves the view in every frame and returns the milliseconds between frames.
DRIVE = """([selector, kind, frames]) => new Promise((done) => {
  const canvas = document.querySelector(selector), box = canvas.getBoundingClientRect();
  const x = box.left + box.width / 2, y = box.top + box.height / 2, times = [];
  const fire = (type, extra) => canvas.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type,
    { clientX: x, clientY: y, pointerId: 1, bubbles: true, cancelable: true, ...extra }));
  canvas.setPointerCapture = () => {};
  let count = 0;
  if (kind === "pan") fire("pointerdown");
  const frame = (time) => {
    times.push(time);
    count += 1;
    if (count > frames + 10) {
      if (kind === "pan") fire("pointercancel");
      return done(times.slice(10).map((one, i) => one - times[i + 9]));
    }
    const turn = count / 12;
    if (kind === "pan") fire("pointermove", { clientX: x + 200 * Math.sin(turn), clientY: y + 120 * Math.cos(turn) });
    else if (kind === "scroll") {
      const frame = canvas.parentElement;
      frame.scrollTop = (1 - Math.cos(turn)) / 2 * (frame.scrollHeight - frame.clientHeight);
    } else fire("wheel", { deltaY: count % 90 < 60 ? -40 : 80 });
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


def run() -> Iterator[Result]:
    """Yield one result: frame times of every size."""
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for rows in SIZES:
            pages[f"{rows:,} points"] = Path(folder) / f"{rows}.html"
            pages[f"{rows:,} points"].write_text(synthetic_page(rows), encoding="utf-8")
        yield measure({name: path.as_uri() for name, path in pages.items()})
    with served_walk() as address:
        yield measure({f"{TOKENS:,} x {WIDTH:,} strips": f"{address}&step=5"}, "#scene-canvas", ("scroll",))


@contextmanager
def served_walk() -> Iterator[str]:
    """The address of a walk of TOKENS bytes with random rows."""
    text = ("strips of rows " * TOKENS)[:TOKENS]
    command = [sys.executable, "-m", "inlayer", "walk", text, "--tokenizer", "bytes", "--width", str(WIDTH), "--web"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            server.terminate()


def measure(pages: dict[str, str], canvas: str = "#map", kinds: tuple[str, ...] = ("pan", "zoom")) -> Result:
    """Open every page, move its canvas, and collect the times."""
    from playwright.sync_api import sync_playwright

    measured: dict[str, Any] = {}
    ratios = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for name, address in pages.items():
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(address)
            page.wait_for_selector(canvas)
            page.wait_for_timeout(2000)
            for kind in kinds:
                times = page.evaluate(DRIVE, [canvas, kind, FRAMES])
                p95 = statistics.quantiles(times, n=20)[-1]
                measured[f"{kind}, {name}"] = {
                    "median_ms": round(statistics.median(times), 1), "p95_ms": round(p95, 1),
                    "slowest_ms": round(max(times), 1), "frames_per_second": round(1000 / statistics.mean(times), 1),
                }  # fmt: skip
                ratios.append(Ratio(label=f"{kind}, {name}: 95th percentile / {TARGET_MS:.0f} ms",
                                    value=p95 / TARGET_MS, at_most=1))  # fmt: skip
            page.close()
        version = browser.version
        browser.close()
    notes = [
        f"Chromium {version} without a GPU, playwright {installed('playwright')}",
        "canvas in a window of 1440 x 900",
    ]
    return Result(name="map_frames", ratios=ratios, measured=measured, sizes={"frames": FRAMES}, notes=notes)


def synthetic_page(rows: int) -> str:
    """A map page of random clusters, with words as tokens."""
    random = np.random.default_rng(0)
    centers = random.standard_normal((40, 2)) * 30
    points = (centers[random.integers(0, 40, rows)] + random.standard_normal((rows, 2)) * 4).astype(np.float32)
    facts = MapFacts(
        method="tsne", complete=True, is_improving=False, points=encode(points),
        texts=[f" word{number:x}" if number % 3 else f"part{number:x}" for number in range(rows)],
        neighborhood_preservation=encode(np.full(rows, np.nan)), mean_preservation=1.0, preservation_k=10,
        trustworthiness=1.0, n_omitted=0, omitted_ids=[],
    )  # fmt: skip
    return render_map_page(f"{rows:,} points", facts, {})


def main() -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.map_frames", description=__doc__)
    parser.add_argument("--page", type=Path, help="an HTML file to measure instead of the synthetic maps")
    arguments = parser.parse_args()
    page = arguments.page
    results = [measure({page.name: page.resolve().as_uri()})] if page else list(run())
    for result in results:
        show(result, Console(width=120))
        print(as_json(result))


if __name__ == "__main__":
    main()
