"""A trace as lines for the terminal: five steps, aligned numbers, long texts folded.

- colour only where the terminal has it; piped output is plain text of at most the asked width
- not here: any computing; what is shown is what the trace holds
Checked at three widths in tests/walk/.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from inlayer.walk.trace import Cell, Trace, TracedText

__all__ = ["show"]

MOST_TOKENS = 12  # of one text; the rest is counted, not printed
MOST_BYTES = 24


def show(trace: Trace, console: Console) -> None:
    """Print every step of the line."""
    batch, tokens, width = trace.shape
    rows, row_width = trace.table_shape
    dims = _fitting_dims(trace, console.width)
    for number, text in enumerate(trace.texts):
        title = "text -> bytes" if batch == 1 else f"text {number + 1} of {batch} -> bytes"
        _step(console, 1, title, f"{len(text.bytes) // 2} bytes of UTF-8")
        console.print(Text(f"  {_fold(text.text)}"))
        console.print(Text(f"  {_hex(text.bytes)}", style="dim"))
        _step(console, 2, "bytes -> ids", f"{len(text.cells)} tokens by {trace.tokenizer}")
        _print_ids(console, text)
        _step(console, 3, "ids -> rows", f"a gather from a table of {rows:,} x {row_width}, {trace.table_dtype}")
        _print_vectors(console, text, "row", dims, row_width)
        _print_positions(console, trace, text, dims)
    _step(console, 5, "hidden states", f"({batch}, {tokens}, {width}): batch, tokens, width")
    for text in trace.texts:
        _print_vectors(console, text, "hidden", dims, width)
        if text.padding:
            console.print(Text(f"  + {text.padding} x padding, id {trace.padding_idx}: its row is zero", style="dim"))


def _print_positions(console: Console, trace: Trace, text: TracedText, dims: int) -> None:
    if trace.positions == "none":
        _step(console, 4, "positions", "none: the rows do not know their order")
    elif trace.positions == "rotary":
        _step(console, 4, "positions", "rotary: nothing is added; cos and sin are prepared for the attention")
        _print_vectors(console, text, "cos", dims, None)
    else:
        _step(console, 4, "positions", f"{trace.positions}: one vector a place, added to the row")
        _print_vectors(console, text, "added", dims, trace.shape[2])


def _step(console: Console, number: int, title: str, note: str) -> None:
    console.print()
    console.print(Text.assemble((f"{number} ", "bold cyan"), (title, "bold"), "  ", (note, "dim")))


def _print_ids(console: Console, text: TracedText) -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column("piece")
    grid.add_column("id", justify="right", style="cyan")
    grid.add_column("bytes", style="dim", overflow="ellipsis", no_wrap=True)
    for cell in text.cells[:MOST_TOKENS]:
        grid.add_row(Text("  " + _label(cell)), str(cell.id), Text(_hex(cell.bytes)))
    _print_grid(console, grid, text)


def _print_vectors(console: Console, text: TracedText, field: str, dims: int, width: int | None) -> None:
    grid = Grid(box=None, padding=(0, 1, 0, 0), show_header=False)
    grid.add_column("piece", no_wrap=True)
    for _ in range(dims):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(style="dim", no_wrap=True)
    for cell in text.cells[:MOST_TOKENS]:
        values = getattr(cell, field)[:dims]
        more = "..." if width is None or width > dims else ""
        grid.add_row(Text("  " + _label(cell)), *(f"{value:.3f}" for value in values), more)
    _print_grid(console, grid, text)


def _print_grid(console: Console, grid: Grid, text: TracedText) -> None:
    if text.cells:
        console.print(grid)
    else:
        console.print(Text("  (no tokens)", style="dim"))
    if len(text.cells) > MOST_TOKENS:
        console.print(Text(f"  ... and {len(text.cells) - MOST_TOKENS:,} more", style="dim"))


def _fitting_dims(trace: Trace, columns: int) -> int:
    """As many channels as fit beside the longest label."""
    labels = [len(_label(cell)) for text in trace.texts for cell in text.cells[:MOST_TOKENS]]
    return max(1, min(trace.dims, (columns - max(labels, default=0) - 7) // 8))


def _label(cell: Cell) -> str:
    """The piece as text where it is text, as bytes where it is a part of a character."""
    data = bytes.fromhex(cell.bytes)
    if not data:
        return f"[{cell.id}]"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _hex(cell.bytes)
    return repr(text) if len(text) <= 14 else repr(text[:13] + "…")


def _fold(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r} ... ({len(text):,} characters)"


def _hex(data: str) -> str:
    pairs = " ".join(data[i : i + 2] for i in range(0, min(len(data), 2 * MOST_BYTES), 2))
    return pairs + (f" ... ({len(data) // 2:,} bytes)" if len(data) > 2 * MOST_BYTES else "")
