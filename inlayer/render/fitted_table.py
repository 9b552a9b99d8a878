"""Tables of labels and numbers that are not truncated even in a narrow terminal.

Tested in tests/render/test_fitted_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP, MIN_LABEL, MIN_TITLE = 2, 7, 4  # columns

Split = Callable[[str], list[str]]


def _whole(text: str) -> list[str]:
    return [text]


def _start(text: str) -> list[str]:
    return [text[:MIN_TITLE]]


# Where titles and numbers may be split, from wide to narrow terminals.
DIVISIONS: list[tuple[Split, Split]] = [
    (_whole, _whole), (str.split, _whole), (_start, _whole), (_start, str.split),
]  # fmt: skip


def natural_width(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Return the width of a table in which no cell is split."""
    return sum(_width(column, _whole) for column in zip(titles, *rows, strict=True)) + GAP * (len(titles) - 1)


def fitted_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], width: int, left: Container[int] = (0,), style: str = "bold"
) -> Table:
    """Return a table of at most `width` columns: labels and titles wrap, but no number is cut.

    The columns in `left` are left-aligned labels, the others right-aligned numbers.
    """
    rows = [*rows]
    columns = [(title, [row[index] for row in rows]) for index, title in enumerate(titles)]
    labels = [_width([title, *cells], _whole) for index, (title, cells) in enumerate(columns) if index in left]
    for divide_title, divide_number in DIVISIONS:
        numbers = {
            index: max(_width([title], divide_title), _width(cells, divide_number))
            for index, (title, cells) in enumerate(columns)
            if index not in left
        }
        room = width - GAP * (len(titles) - 1) - sum(numbers.values())
        if room >= sum(label if divide_title is _whole else min(MIN_LABEL, label) for label in labels):
            break
    table = Table(box=None, pad_edge=False, header_style=style, show_header=any(titles))
    label_width = max(1, room // len(labels)) if labels and sum(labels) > room else None
    for index, title in enumerate(titles):
        if index in left:
            table.add_column(Text(title), max_width=label_width, overflow="fold")
        else:
            table.add_column(Text(title), justify="right", width=numbers[index], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _width(texts: Iterable[str], divide: Split) -> int:
    return max((cell_len(part) for text in texts for part in divide(text)), default=0)
