"""Create the screenshots of the walk for README.md and docs/: `make screenshots`.

- docs/walk-page.png, also in dark, docs/rotary-page.png, docs/map-page.png: the page served for the bundled sample
- docs/walk-terminal.svg: the output of `inlayer walk` at 100 columns, rendered by rich
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

import inlayer
from inlayer.trace.terminal import show

DOCS = Path(__file__).parent.parent / "docs"
TEXT = "I love dogs"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--force-color-profile=srgb")
# The page opens with its own default text.
PAGES = {
    "walk-page.png": ("step=5", "light", None),
    "walk-page-dark.png": ("step=5", "dark", None),
    "rotary-page.png": ("step=6", "light", "#rope-title"),
    "map-page.png": ("step=7&token=2401", "dark", None),
}


def main() -> None:
    for path in (*pages(), terminal(DOCS / "walk-terminal.svg")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


def pages() -> list[Path]:
    """Three views of the page: the lookup next to the map, rotary positions, one token among its neighbors."""
    installed = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    chromium = os.environ.get("INLAYER_CHROMIUM") or installed
    if chromium is None:
        sys.exit("Chromium not found; on Debian, run: make browser")
    command = [sys.executable, "-m", "inlayer", "serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        try:
            address = json.loads(server.stdout.readline())["url"]
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            for name, (view, scheme, target) in PAGES.items():
                page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
                page.emulate_media(reduced_motion="reduce", color_scheme=scheme)
                page.goto(f"{address}#{view}")
                page.wait_for_selector("#map[data-drawn]")
                if target is not None:
                    page.wait_for_selector(".rope svg")
                    page.eval_on_selector(target, "(one) => window.scrollBy(0, one.getBoundingClientRect().top - 120)")
                page.wait_for_timeout(800)  # the map has moved
                page.screenshot(path=DOCS / name)
                page.close()
            browser.close()
        finally:
            server.terminate()
    return [DOCS / name for name in PAGES]


def terminal(path: Path) -> Path:
    """The output of `inlayer walk` in true color."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show(inlayer.walk(TEXT), console)
    console.save_svg(str(path), title=f'inlayer walk "{TEXT}"')
    return path


if __name__ == "__main__":
    main()
