"""Create the screenshots of the walk for README.md and docs/: `make screenshots`.

- docs/walk-page.png: the page served for the bundled sample model, in Debian's Chromium
- docs/walk-terminal.svg: the output of `inlayer walk` at 100 columns, rendered by rich
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode

from inlayer.web.api import Api
from playwright.sync_api import sync_playwright
from rich.console import Console

import inlayer
from inlayer.trace import Pipeline
from inlayer.trace.terminal import show
from inlayer.web.guard import Guard
from inlayer.web.schemas import Limits
from inlayer.web.server import Server, bind

DOCS = Path(__file__).parent.parent / "docs"
TEXT = "I love dogs"
TOKEN = "screenshot"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--force-color-profile=srgb")


def main() -> None:
    pipeline = Pipeline(inlayer.load("default"), name="default")
    paths = [page(pipeline, DOCS / "walk-page.png"), terminal(pipeline, DOCS / "walk-terminal.svg")]
    for path in paths:
        print(f"{path.name}: {path.stat().st_size:,} bytes")


def page(pipeline: Pipeline, path: Path) -> Path:
    """Hidden states with sinusoidal positions, and one number selected."""
    chromium = os.environ.get("INLAYER_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium not found; on Debian, run: apt-get install chromium")
    api = Api({pipeline.name: pipeline}, Limits())
    listening = threading.Event()
    server = Server(Guard(api.app, token=TOKEN, hosts=()), listening.set)
    listener = bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    listening.wait()
    fields = {"text": TEXT, "step": 7, "positions": "sinusoidal"}
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={TOKEN}#{urlencode(fields)}"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            shown = browser.new_page(
                viewport={"width": 1280, "height": 800}, color_scheme="light", device_scale_factor=2
            )
            shown.goto(address)
            shown.wait_for_selector("#changed-note")
            shown.hover("[data-field=hidden][data-t='1'][data-d='3']")
            shown.wait_for_timeout(400)  # transitions
            shown.screenshot(path=path)
            browser.close()
    finally:
        server.should_exit = True
        thread.join()
        api.workers.close(1.0)
    return path


def terminal(pipeline: Pipeline, path: Path) -> Path:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show(pipeline.walk([TEXT], dims=8), console)
    console.save_svg(str(path), title=f'inlayer walk "{TEXT}"')
    return path


if __name__ == "__main__":
    main()
