"""`inlayer serve`: the page and its API on this machine, until Ctrl-C.

One line goes to stdout once the server answers: the address, or the same as JSON. Everything else goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from inlayer.cli.app import app
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

Stop with Ctrl-C.
"""


@app.command(epilog=SERVE_EXAMPLES)
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model: folder, .safetensors or .gguf file, hub id, URL or sample name. Repeat for several models. "
            "Only these can be opened. \\[default: the bundled sample model]"
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 is any free port.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any address but loopback lets others on the network in.")
    ] = "127.0.0.1",
    text: Annotated[
        list[str] | None, typer.Option(help="A text to open the page with. Repeat for several texts.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve the interactive page on this machine. Its address contains a random token."""
    from inlayer.checkpoint import load

    sources = model or [None]
    for source in sources:
        load(source)  # a source that cannot be opened is reported before the server starts
    from inlayer.web import serve as run

    def announce(address: Address) -> None:
        facts = {
            "url": address.url, "host": address.host, "port": address.port, "token": address.token,
            "models": address.models,
        }  # fmt: skip
        try:
            sys.stdout.write((json.dumps(facts) if as_json else address.url) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # without its number, which typer would turn into exit code 1
            raise BrokenPipeError from None
        if not as_json:
            sys.stderr.write(f"serving {', '.join(address.models)}; the course is at /learn; stop with Ctrl-C\n")
        if not address.is_loopback:
            sys.stderr.write(
                f"{host} is not a loopback address: others on the network can reach it, and nothing is encrypted\n"
            )
        if open_page:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[address.url], daemon=True).start()

    fragment = "&".join(f"text={quote(one, safe='')}" for one in opening_texts(text or []))
    run(partial(open_pipelines, sources), host=host, port=port, fragment=fragment, announce=announce)


def open_pipelines(sources: list[str] | list[None]) -> dict[str, Pipeline]:
    """Open models by name: the last part of each source, numbered if two are the same."""
    from inlayer.checkpoint import load
    from inlayer.trace import Pipeline

    pipelines: dict[str, Pipeline] = {}
    for source in sources:
        model = load(source)
        name = base = "default" if source is None else last_name(source)
        number = 1
        while name in pipelines:
            number += 1
            name = f"{base}-{number}"
        pipelines[name] = Pipeline(model, name=name)
    return pipelines


def last_name(source: str) -> str:
    """`path/to/model/` and `org/model` are both "model"."""
    parts = [part for part in source.replace(os.sep, "/").split("/") if part not in {"", ".", ".."}]
    return parts[-1] if parts else source
