"""The eight steps in words: a title, what happened in one line, and the one line of PyTorch that does it.

The line of code uses the names of the page and of docs/trace.md: `text`, `tokenizer`, `ids` (B, T), `mask`, `E` (the
table), `P` (position vectors), `layer`, `head`. Checked by running each in tests/trace/test_steps.py.
"""

from __future__ import annotations

from typing import Any

from inlayer.trace.facts import Positions, Step, Trace

__all__ = ["describe_steps"]

TITLES = (
    "text to bytes",
    "bytes to pieces",
    "pieces to ids",
    "id to row",
    "rows gathered",
    "positions",
    "hidden states",
    "backwards",
)


def describe_steps(told: dict[str, Any]) -> list[Step]:
    """The steps of a trace that holds everything else already."""
    trace = Trace(steps=[], **told)
    notes = (
        _bytes(trace),
        _pieces(trace),
        _ids(trace),
        _row(trace),
        _gathered(trace),
        _order(trace),
        _hidden(trace),
        _backwards(trace),
    )
    return [
        Step(number=number, title=title, note=note, code=code)
        for number, (title, (note, code)) in enumerate(zip(TITLES, notes, strict=True), start=1)
    ]


NO_TEXT = "vectors came in place of a text: this step was not taken"


def _bytes(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    size, characters = (sum(getattr(text, name) for text in trace.texts) for name in ("n_bytes", "n_characters"))
    return f"{_count(characters, 'character')} as {_count(size, 'byte')} of UTF-8", "list(text.encode())"


def _pieces(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    if all(text.splits is None for text in trace.texts):
        return f"no split of this text before the tokens is known of {trace.tokenizer}", "tokenizer.splits(text)"
    pieces = sum(text.n_splits for text in trace.texts)
    return f"{_count(pieces, 'piece')}; no token reaches across their edges", "tokenizer.splits(text)"


def _ids(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    tokens = sum(text.n_tokens for text in trace.texts)
    made_by = f"{trace.tokenizer} with {trace.vocab_size:,} in its vocabulary"
    return f"{_count(tokens, 'token')} by {made_by}", "ids = torch.tensor([tokenizer.encode(text)])"


def _row(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    rows, width = trace.table.shape
    place = "in memory" if trace.table.file is None else f"in {trace.table.file}"
    return f"each id is the number of a row of {trace.table.name}, {rows:,} x {width:,} {trace.table.dtype}, {place}", (
        "E[ids[0, 0]]"
    )


def _gathered(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.gather.shape
    if trace.entered != "text":
        return f"({batch}, {tokens}, {width}): {trace.gather.note}", "rows = inputs_embeds"
    return f"({batch}, {tokens}, {width}): batch, tokens, width of a row", "rows = F.embedding(ids, E)"


def _order(trace: Trace) -> tuple[str, str]:
    positions = trace.positions
    notes = {
        "none": "none: the rows do not know their order",
        "learned": "learned: one vector a position, added to the row",
        "sinusoidal": "sinusoidal: waves of the position, added to the row",
        "rotary": "rotary: nothing is added here; a turn is prepared for the attention",
    }
    note = notes[positions.scheme] + (f" ({positions.note})" if positions.note else "")
    return note, _order_code(positions)


def _order_code(positions: Positions) -> str:
    if positions.scheme == "none":
        return "x = rows"
    if positions.scheme == "rotary":
        which = positions.turnings[0].layer_type
        asked = "" if which is None else f", {which!r}"
        return f"cos, sin = layer.rotary(torch.arange(ids.shape[1]){asked})"
    return "x = rows + P[position_ids]"


def _hidden(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.shape
    padded = sum(text.n_padding for text in trace.texts)
    said = f"({batch}, {tokens}, {width}): batch, tokens, width"
    if padded:
        said += f"; {_count(padded, 'place')} filled with padding, mask 0"
    return said, "hidden = layer(ids)" if trace.entered == "text" else "hidden = layer(inputs_embeds=inputs_embeds)"


def _backwards(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return "vectors came in: no row of the table was looked up, so none learns", ""
    back = trace.backward
    if back is None:
        return "there is no token to learn from", ""
    receive = "receives" if back.touched == 1 else "receive"
    learning = f"{_count(back.touched, 'row')} of {trace.table.shape[0]:,} {receive} a gradient"
    if back.loss == "sum":
        return f"{learning}; the loss is {back.note}", "layer(ids).sum().backward(); E.grad[ids]"
    return (
        f"{learning}; {back.note}",
        "head.loss(layer(ids)[:, :-1], ids[:, 1:]).backward(); E.grad[ids]",
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
