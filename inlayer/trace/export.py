"""The exported page: one file that holds a walk, the changes a reader may try on it, and nothing from outside.

- it is the page of `inlayer serve` with its answers inside: the walk, one walk for each change a control offers, the
  tokens with their neighbors, the birth of the table
- not here: the page itself (trace/html.py, trace/page/)
Checked in a browser, from the disk, in tests/browser/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

from inlayer.embeddings import SCHEMES
from inlayer.errors import ConfigError, PositionRangeError
from inlayer.trace.facts import Change, Trace, plain
from inlayer.trace.html import page
from inlayer.trace.line import Pipeline

__all__ = ["export"]

SWAPPED = 8  # tokens of the first text of which any two can be swapped; fewer of a long one
MAX_CELLS = 300  # of all walks that swap: a page is to be sent
THETAS = (100.0, 1_000_000.0)
MAX_TOKENS = 64  # of a text
MAX_KNOWN = 64  # tokens that open when clicked


def export(line: Pipeline, texts: Sequence[str], *, dims: int = 8, step: int = 1, change: Change | None = None) -> str:
    """The page, with this walk in it."""

    def walk(change: Change) -> Trace:
        return replace(line.walk(texts, dims=dims, tokens=MAX_TOKENS, change=change), source=line.title)

    first = walk(Change())
    walks = {key_of(Change()): first}
    if change is not None and key_of(change) not in walks:
        walks[key_of(change)] = walk(change)
    for one in _changes(line, first):
        if key_of(one) not in walks:
            with suppress(PositionRangeError):  # a text too long for the positions a reader might try
                walks[key_of(one)] = walk(one)
    ids = dict.fromkeys(cell.id for text in first.texts for cell in text.cells if cell.id is not None)
    data: dict[str, Any] = {
        "models": [plain(replace(line.facts(), name=line.title, source=line.title))],
        "texts": list(texts),
        "walks": {key: walked.to_dict() for key, walked in walks.items()},
        "tokens": {str(token_id): plain(line.token(token_id)) for token_id in list(ids)[:MAX_KNOWN]},
        "birth": plain(line.birth(dims=dims)),
        "step": step,
        "change": None if change is None else key_of(change),
    }
    return page(title=f"inlayer: {texts[0][:60]}", data=data, served=False)


def key_of(change: Change) -> str:
    """How the page asks for a walk: one word for every field."""
    theta = "" if change.theta is None else repr(float(change.theta))
    swap = "" if change.swap is None else ",".join(map(str, change.swap))
    return f"{change.positions or ''}|{theta}|{swap}|{change.pad}"


def _changes(line: Pipeline, trace: Trace) -> Iterator[Change]:
    swapped = min(SWAPPED, trace.texts[0].n_tokens)
    cells = sum(len(text.cells) for text in trace.texts)
    while swapped > 2 and swapped * (swapped - 1) // 2 * cells > MAX_CELLS:
        swapped -= 1
    for swap in combinations(range(swapped), 2):
        yield Change(swap=swap)
    if line.padding_id is not None:
        yield Change(pad=1)
    tried = [Change(positions=scheme) for scheme in SCHEMES]
    tried += [Change(positions="rotary", theta=theta) for theta in THETAS]
    for change in tried:
        try:
            line.order(change.positions, change.theta)
        except ConfigError:  # a table too narrow to turn in pairs, a scaling that refuses the base
            continue
        yield change
