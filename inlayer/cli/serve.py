"""`inlayer serve`: serve the page and its API until Ctrl-C.

When the server is ready, stdout gets one line: the address, or JSON with --json. Everything else goes to stderr.
Tested in tests/web/test_server.py.
"""

from __future__ import annotations

import json
import sys
import threading
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from inlayer.cli.app import command, open_model
from inlayer.cli.inputs import check_page_texts
from inlayer.files import base_name

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.trace import Pipeline
    from inlayer.web import Address


@command(
    "inlayer serve",
    "inlayer serve --model minilm --model path/to/model --open",
    'inlayer serve --port 8000 --text "I love dogs"',
    "inlayer serve --json",
    "Press Ctrl-C to stop.",
)
def serve(
    model: Annotated[list[str] | None, typer.Option()] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 0,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    text: Annotated[list[str] | None, typer.Option()] = None,
    api_key: Annotated[str | None, typer.Option(envvar="INLAYER_API_KEY")] = None,
    open_page: Annotated[bool, typer.Option("--open")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Serve the walk page and the course on this machine. The address contains a random access token.

    Options:
        model: Model folder, .safetensors, .gguf, or .bin file, hub id, URL, or sample name; can be repeated. No other
            model can be opened. Default: the bundled sample model.
        port: Port to listen on; 0 chooses a free one.
        host: Address to listen on. Other machines can connect unless it is a loopback address.
        text: Text to show when the page opens; can be repeated.
        api_key: Key for the embeddings API at /v1, in addition to the random access token. Prefer the environment
            variable: other users on this machine can see command-line arguments.
        open_page: Open the page in the browser.
        as_json: Print the address as JSON.
    """
    sources = tuple(model or ["default"])
    open_models(sources)  # a source that cannot be opened is reported before the server starts
    fragment = "&".join(f"text={quote(value, safe='')}" for value in check_page_texts(text or []))
    from inlayer.web import serve as run

    def announce(address: Address) -> None:
        facts = {"url": address.url} | {name: getattr(address, name) for name in ("host", "port", "token", "models")}
        try:
            sys.stdout.write((json.dumps(facts) if as_json else address.url) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # if it had an errno, Typer would exit with code 1
            raise BrokenPipeError from None
        if not as_json:
            sys.stderr.write(f"serving {', '.join(address.models)}; press Ctrl-C to stop\n")
            sys.stderr.write(f"course: {address.course_url}\n")
        if not address.is_loopback:
            sys.stderr.write(
                f"{host} is not a loopback address: traffic is not encrypted and can be read on the network\n"
            )
        if address.url_host != host:
            sys.stderr.write(
                f"on another machine, replace {address.url_host} in the address with an IP address of this machine; "
                "a host name is accepted only with --host NAME\n"
            )
        if open_page:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[address.url], daemon=True).start()

    run(partial(open_pipelines, sources), host=host, port=port, fragment=fragment, announce=announce, api_key=api_key)


@cache
def open_models(sources: tuple[str, ...]) -> dict[str, Model]:
    """Open models and name each by the last part of its source, numbered if a name repeats."""
    models: dict[str, Model] = {}
    for source in sources:
        base = base_name(Path(source))
        names = (base if number == 1 else f"{base}-{number}" for number in count(1))
        models[next(name for name in names if name not in models)] = open_model(source)
    return models


def open_pipelines(sources: tuple[str, ...]) -> dict[str, Pipeline]:
    """Prepare models for walks. Each process that needs models opens them separately."""
    from inlayer.trace import Pipeline

    return {name: Pipeline(model, name=name) for name, model in open_models(sources).items()}
