"""`inlayer serve`: the page and its API on this machine, until Ctrl-C.

stdout gets one line, the address or its facts as JSON, when the server listens; what else is to be said goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from inlayer.cli.app import app, stopping_at_once
from inlayer.cli.inputs import opening_texts

if TYPE_CHECKING:
    from inlayer.trace import Pipeline
    from inlayer.web import Address

__all__ = ["serve"]

SERVE_EXAMPLES = """Examples:

inlayer serve

inlayer serve --model minilm --model path/to/model --open

inlayer serve --port 8000 --text "I love dogs"

inlayer serve --json

Ctrl-C stops it.
"""


@app.command(epilog=SERVE_EXAMPLES)
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model's folder, .safetensors or .gguf file, hub id or sample; can be given several times. "
            "No other can be opened. \\[default: the sample inlayer carries]"
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0 is any free port.")] = 0,
    host: Annotated[
        str, typer.Option(help="The address to listen at. Any but loopback lets others on the network in.")
    ] = "127.0.0.1",
    text: Annotated[
        list[str] | None, typer.Option(help="A text the page opens with; can be given several times.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve the page: type a text, choose a model, see it walk. Local, with a random token in its address."""
    from inlayer.web import serve as run
    from inlayer.web.learn import PAGE

    def announce(address: Address) -> None:
        facts = {
            "url": address.url, "host": address.host, "port": address.port, "token": address.token,
            "models": address.models,
        }  # fmt: skip
        try:
            sys.stdout.write((json.dumps(facts) if as_json else address.url) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # with its number, typer would end with code 1
            raise BrokenPipeError from None
        if not as_json:
            course = f"the course is at {PAGE}, a link of the page"
            sys.stderr.write(f"serving {', '.join(address.models)}; {course}; Ctrl-C stops it\n")
        if not address.is_loopback:
            sys.stderr.write(f"{host} is no loopback address: who can reach it can listen in, nothing is encrypted\n")
        if open_page:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[address.url], daemon=True).start()

    fragment = "&".join(f"text={quote(one, safe='')}" for one in opening_texts(text or []))
    with stopping_at_once():
        run(open_lines(model or [None]), host=host, port=port, fragment=fragment, announce=announce)


def open_lines(sources: list[str] | list[None]) -> dict[str, Pipeline]:
    """The models by the names they are asked for: the last part of each source, numbered where two have the same."""
    from inlayer.checkpoint import load
    from inlayer.trace import Pipeline

    lines: dict[str, Pipeline] = {}
    for source in sources:
        opened = load(source)
        name = base = "default" if source is None else last_name(source)
        number = 1
        while name in lines:
            number += 1
            name = f"{base}-{number}"
        lines[name] = Pipeline(opened, name=name)
    return lines


def last_name(source: str) -> str:
    """`path/to/model/` and `org/model` are both "model"."""
    parts = [part for part in source.replace(os.sep, "/").split("/") if part not in {"", ".", ".."}]
    return parts[-1] if parts else source
