"""A trace as lines for the terminal: five steps, aligned numbers, long texts folded.

- colour only where the terminal has it; no line is longer than the terminal is wide, none ends in blanks
- one layout for all steps: the same columns for labels and numbers, so that the eye can follow a token down
- not here: any computing; what is shown is what the trace holds
Checked at three widths in tests/walk/.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from inlayer.walk.trace import Cell, Trace, TracedText

__all__ = ["show"]

MOST_TOKENS = 12  # of one text; the rest is counted, not printed
MOST_LINES = 4  # of what the model is
LONGEST_LABEL = 14
NUMBER = 8  # columns of one number, with the blank before it


def show(trace: Trace, console: Console) -> None:
    """Print every step of the line."""
    for line in _lines(trace, console.width):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _lines(trace: Trace, columns: int) -> Iterator[Text]:
    batch, tokens, width = trace.shape
    rows, row_width = trace.table_shape
    kind = trace.tokenizer.partition("(")[0]  # where it lies is the model's place, or was said by the user
    label = max((cell_len(_label(cell)) for text in trace.texts for cell in text.cells[:MOST_TOKENS]), default=0)
    dims = max(1, min(trace.dims, (columns - label - 6) // NUMBER))
    if trace.model:
        for line in textwrap.wrap(trace.model, columns)[:MOST_LINES]:
            yield Text(line, style="dim")
        yield Text()
    for number, text in enumerate(trace.texts):
        if number:
            yield Text()
        if batch > 1:
            yield Text(f"-- text {number + 1} of {batch}", style="bold")
        size = len(text.bytes) // 2
        yield _step(1, "text -> bytes", f"{_count(size, 'byte')} of UTF-8")
        yield Text("  " + _fold(text.text, columns - 2))
        yield Text("  " + _hex(text.bytes, columns - 2), style="dim")
        yield Text()
        made_by = f"{kind}, {trace.vocab_size:,} in its vocabulary"
        yield _step(2, "bytes -> ids", f"{_count(len(text.cells), 'token')} by {made_by}")
        yield from _ids(text, label, columns)
        spare = f", row {trace.padding_idx:,} for padding" if trace.padding_idx is not None else ""
        yield Text()
        yield _step(3, "ids -> rows", f"gathered from {rows:,} x {row_width} {trace.table_dtype}{spare}")
        yield from _vectors(text, "row", label, dims, row_width)
        yield Text()
        yield from _positions(trace, text, label, dims)
        yield Text()
        yield _step(5, "hidden states", f"({batch}, {tokens}, {width}): batch, tokens, width")
        yield from _vectors(text, "hidden", label, dims, width)
        if text.padding:
            yield Text(f"  and {text.padding} x padding, id {trace.padding_idx}", style="dim")


def _positions(trace: Trace, text: TracedText, label: int, dims: int) -> Iterator[Text]:
    if trace.positions == "none":
        yield _step(4, "positions", "none: the rows do not know their order")
    elif trace.positions == "rotary":
        yield _step(4, "positions", "rotary: nothing is added, a turn is prepared")
        for name in ("cos", "sin"):
            yield Text(f"  {name}", style="dim")
            yield from _vectors(text, name, label, dims, None)
    else:
        yield _step(4, "positions", f"{trace.positions}: one vector a place, added to the row")
        yield from _vectors(text, "added", label, dims, trace.shape[2])


def _step(number: int, title: str, note: str) -> Text:
    return Text.assemble((f"{number} ", "bold cyan"), (title, "bold"), "  ", (note, "dim"))


def _ids(text: TracedText, label: int, columns: int) -> Iterator[Text]:
    digits = max((len(str(cell.id)) for cell in text.cells[:MOST_TOKENS]), default=0)
    for cell in text.cells[:MOST_TOKENS]:
        line = Text.assemble(f"  {set_cell_size(_label(cell), label)}  ", (f"{cell.id:>{digits}}", "cyan"))
        if cell.bytes:
            line.append("  " + _hex(cell.bytes, columns - label - digits - 6), style="dim")
        yield line
    yield from _rest(text)


def _vectors(text: TracedText, field: str, label: int, dims: int, width: int | None) -> Iterator[Text]:
    """One line a token; `width` is how long the vector really is, None where the trace holds all of it."""
    for cell in text.cells[:MOST_TOKENS]:
        vector = getattr(cell, field)
        more = " ..." if (len(vector) if width is None else width) > dims else ""
        numbers = "".join(f"{value:>{NUMBER}.3f}" for value in vector[:dims])
        yield Text.assemble(f"  {set_cell_size(_label(cell), label)}{numbers}", (more, "dim"))
    yield from _rest(text)


def _rest(text: TracedText) -> Iterator[Text]:
    if not text.cells:
        yield Text("  (no tokens)", style="dim")
    if len(text.cells) > MOST_TOKENS:
        yield Text(f"  ... and {len(text.cells) - MOST_TOKENS:,} more", style="dim")


def _label(cell: Cell) -> str:
    """The piece as text where it is text, as bytes where it is part of a character, by name where it is special."""
    if cell.special:
        return cell.token if len(cell.token) <= LONGEST_LABEL else cell.token[: LONGEST_LABEL - 1] + "…"
    try:
        piece = bytes.fromhex(cell.bytes).decode()
    except UnicodeDecodeError:
        return _hex(cell.bytes, LONGEST_LABEL)
    quoted = repr(piece)
    return quoted if len(quoted) <= LONGEST_LABEL else quoted[: LONGEST_LABEL - 1] + "…"


def _fold(text: str, columns: int) -> str:
    quoted = repr(text[:columns])
    if len(text) <= columns and len(quoted) <= columns:
        return quoted
    note = f"... ({_count(len(text), 'character')})"
    return quoted[: max(1, columns - len(note) - 1)] + " " + note


def _hex(data: str, columns: int) -> str:
    """Bytes as pairs, as many as fit."""
    size, fitting = len(data) // 2, max(1, (columns + 1) // 3)
    if size <= fitting:
        return data if not data else bytes.fromhex(data).hex(" ")
    note = f" ... ({size:,})"
    shown = max(1, (columns - len(note) + 1) // 3)
    return bytes.fromhex(data[: 2 * shown]).hex(" ") + note


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
