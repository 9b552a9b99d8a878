"""The exported page: a single HTML file with one walk and the changes a reader can try on it.

- the page of `inlayer serve` with its data inside: the walk, one more for each change the controls offer, the tokens
  with their neighbors, and the initialization of the table
- elsewhere: the page itself (trace/html.py, trace/page/)
Tested in a browser, opened from disk, in tests/browser/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

from inlayer.errors import ConfigError, PositionRangeError
from inlayer.positions import SCHEMES
from inlayer.trace.facts import Change, Trace, plain
from inlayer.trace.html import page
from inlayer.trace.pipeline import Pipeline

__all__ = ["export"]

MAX_SWAPPED = 8  # any two of these first tokens can be swapped; fewer in a long text
MAX_SWAP_TOKENS = 300  # tokens in all walks with a swap, which keeps the file small enough to send
THETAS = (100.0, 1_000_000.0)
MAX_TOKENS = 64  # per text
MAX_TOKEN_PANELS = 64  # tokens that can be opened


def export(
    pipeline: Pipeline, texts: Sequence[str], *, dims: int = 8, step: int = 1, change: Change | None = None
) -> str:
    """Build the page."""

    def walk(change: Change) -> Trace:
        trace = pipeline.walk(texts, dims=dims, tokens=MAX_TOKENS, change=change)
        return replace(trace, source=pipeline.title)

    first = walk(Change())
    walks = {key_of(Change()): first}
    if change is not None and key_of(change) not in walks:
        walks[key_of(change)] = walk(change)
    for one in _changes(pipeline, first):
        if key_of(one) not in walks:
            with suppress(PositionRangeError):  # the text is too long for these positions
                walks[key_of(one)] = walk(one)
    ids = dict.fromkeys(token.id for text in first.texts for token in text.tokens if token.id is not None)
    data: dict[str, Any] = {
        "models": [plain(replace(pipeline.facts(), name=pipeline.title, source=pipeline.title))],
        "texts": list(texts),
        "walks": {key: trace.to_dict() for key, trace in walks.items()},
        "tokens": {str(token_id): plain(pipeline.token(token_id)) for token_id in list(ids)[:MAX_TOKEN_PANELS]},
        "initialization": plain(pipeline.initialization(dims=dims)),
        "step": step,
        "change": None if change is None else key_of(change),
    }
    return page(title=f"inlayer: {texts[0][:60]}", data=data, served=False)


def key_of(change: Change) -> str:
    """Build the key under which the page finds a walk, with one part per field."""
    theta = "" if change.theta is None else repr(float(change.theta))
    swap = "" if change.swap is None else ",".join(map(str, change.swap))
    return f"{change.positions or ''}|{theta}|{swap}|{change.pad}"


def _changes(pipeline: Pipeline, trace: Trace) -> Iterator[Change]:
    swapped = min(MAX_SWAPPED, trace.texts[0].n_tokens)
    tokens = sum(len(text.tokens) for text in trace.texts)
    while swapped > 2 and swapped * (swapped - 1) // 2 * tokens > MAX_SWAP_TOKENS:
        swapped -= 1
    for swap in combinations(range(swapped), 2):
        yield Change(swap=swap)
    if pipeline.padding_id is not None:
        yield Change(pad=1)
    candidates = [Change(positions=scheme) for scheme in SCHEMES]
    candidates += [Change(positions="rotary", theta=theta) for theta in THETAS]
    for change in candidates:
        with suppress(ConfigError):  # a table too narrow for rotary pairs, or a scaling rule that rejects the base
            pipeline.active_layer(change.positions, change.theta)
            yield change
