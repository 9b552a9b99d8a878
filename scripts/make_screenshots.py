"""Create the screenshots of the walk for README.md and docs/: `make screenshots`.

- docs/walk-page.png: the page served for the bundled sample model, in Debian's Chromium
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
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright
from rich.console import Console

import inlayer
from inlayer.trace.terminal import show

DOCS = Path(__file__).parent.parent / "docs"
TEXT = "I love dogs"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--force-color-profile=srgb")


def main() -> None:
    for path in (page(DOCS / "walk-page.png"), terminal(DOCS / "walk-terminal.svg")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


def page(path: Path) -> Path:
    """Hidden states with sinusoidal positions, and one number selected."""
    chromium = os.environ.get("INLAYER_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium not found; on Debian, run: apt-get install chromium")
    command = [sys.executable, "-m", "inlayer", "serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        try:
            address = json.loads(server.stdout.readline())["url"]
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            shown = browser.new_page(
                viewport={"width": 1280, "height": 800}, color_scheme="light", device_scale_factor=2
            )
            shown.goto(f"{address}#{urlencode({'text': TEXT, 'step': 7, 'positions': 'sinusoidal'})}")
            shown.wait_for_selector("#changed-note")
            shown.hover("[data-field=hidden][data-t='1'][data-d='3']")
            shown.wait_for_timeout(400)  # transitions
            shown.screenshot(path=path)
            browser.close()
        finally:
            server.terminate()
    return path


def terminal(path: Path) -> Path:
    """The output of `inlayer walk` in true color."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show(inlayer.walk(TEXT), console)
    console.save_svg(str(path), title=f'inlayer walk "{TEXT}"')
    return path


if __name__ == "__main__":
    main()
