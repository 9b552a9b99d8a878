"""Steps 1 to 4 on the terminal: characters above their bytes, the pieces, the ids, and where each row lies.

- bytes that are no whole characters are shown in hexadecimal, never as a replacement character
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from inlayer.trace.facts import Cell, Split, TextTrace
from inlayer.trace.terminal.page import INDENT, Page, is_text, padded

__all__ = ["bytes_step", "ids_step", "places_step", "splits_step"]

MAX_BANDS = 3  # of characters over bytes, a text
MAX_MERGED = 6  # pieces of a text whose merges are shown


def bytes_step(page: Page) -> Iterator[Text]:
    """Step 1: every character above its bytes."""
    if page.trace.entered == "inputs_embeds":
        return
    for _, text, heading in page.texts():
        yield from heading
        units = [
            (page.signs.fold(one.text, 12), page.signs.hex(one.bytes, 24), "cyan" if len(one.bytes) > 2 else "dim")
            for one in text.characters
        ]
        lines, shown = page.bands(units, bars=False, most=_bands(page))
        yield from lines
        yield from page.more(text.n_characters - shown, "character")
        if not text.n_bytes:
            yield Text(" " * INDENT + " (no bytes)", style="dim")
    yield from page.texts_left_out()


def splits_step(page: Page) -> Iterator[Text]:
    """Step 2: the same bytes, with the edges no token crosses."""
    for _, text, heading in page.texts():
        if text.splits is None:
            continue
        yield from heading
        room = page.band_width
        units = [(_bytes_as_text(page, one.bytes, room), page.signs.hex(one.bytes, room), "dim") for one in text.splits]
        lines, shown = page.bands(units, bars=True, most=_bands(page))
        yield from lines
        yield from page.more(text.n_splits - shown, "piece")
    if any(text.splits is not None for text in page.trace.texts):
        yield from page.texts_left_out()


def ids_step(page: Page) -> Iterator[Text]:
    """Step 3: the id of each token; and how byte-level merges made it."""
    if page.trace.entered == "inputs_embeds":
        return
    digits = _widest(page, lambda cell: str(cell.id), least=2)
    head = padded(Text(" " * (INDENT + page.place_width + 2) + "token", style="dim"), page.head_width)
    yield head.append(f"  {'id':>{digits}}  bytes")
    for _, text, heading in page.texts():
        yield from heading
        cells = page.cells(text)
        for place, cell in enumerate(cells):
            line = page.head(place, cell)
            line.append(f"  {cell.id:>{digits}}", style="bold cyan" if cell.mask else "dim")
            mark = "" if cell.mask else "padding" if not cell.bytes else ""
            mark = "special" if cell.special and cell.mask else mark
            room = page.columns - page.head_width - digits - 4 - (len(mark) + 2 if mark else 0)
            data = page.signs.hex(cell.bytes, room)
            line.append(f"  {data}" if data else "", style="dim")
            line.append(f"  {mark}" if mark else "", style="magenta")
            yield line
        yield from page.tokens_left_out(text, len(cells))
        yield from _merges(page, text, len(cells))
    yield from page.texts_left_out()


def places_step(page: Page) -> Iterator[Text]:
    """Step 4: the tensor and its file once, then each row's first byte and its bits."""
    table, signs = page.trace.table, page.signs
    if page.trace.entered == "inputs_embeds":
        return
    size, start = f"{table.row_bytes:,}", "" if table.offset == 0 else f"{table.offset:,} + "
    yield from page.note(f"row i is the {size} bytes from byte {start}i {signs.times} {size}")
    digits = _widest(page, lambda cell: str(cell.id), least=2)
    offsets = _widest(page, lambda cell: f"{cell.offset:,}" if cell.offset is not None else "", least=len("byte"))
    head = padded(Text(" " * (INDENT + page.place_width + 2) + "token", style="dim"), page.head_width)
    bits = "bits of the first values" if table.itemsize else "bytes of the first block"
    used = page.head_width + digits + offsets + 6
    yield head.append(f"  {'id':>{digits}}  {'byte':>{offsets}}  {signs.fold(bits, page.columns - used, blank=' ')}")
    for _, text, heading in page.texts():
        yield from heading
        cells = page.cells(text)
        for place, cell in enumerate(cells):
            line = page.head(place, cell)
            line.append(f"  {cell.id:>{digits}}", style="cyan")
            line.append(f"  {'' if cell.offset is None else f'{cell.offset:,}':>{offsets}}  ")
            line.append(_joined(cell.bits, page.columns - used, signs.more), style="dim")
            yield line
        yield from page.tokens_left_out(text, len(cells))
    yield from page.texts_left_out()


def _merges(page: Page, text: TextTrace, tokens: int) -> Iterator[Text]:
    every = [split for split in text.splits or [] if split.merges and split.cells[0] < tokens]
    merged = list({split.bytes: split for split in every}.values())  # the same piece is merged in the same way
    if not merged:
        return
    names = [_bytes_as_text(page, split.bytes, page.widest_label) for split in merged[:MAX_MERGED]]
    before = INDENT + page.place_width + 2
    columns = max(page.head_width, before + max(cell_len(name) for name in names))
    yield from page.note("merges, in the order they happen", most=1)
    for split, name in zip(merged, names, strict=False):
        yield _merge_line(page, padded(Text(" " * before + name), columns).append("  "), split)
    if len(merged) > MAX_MERGED:
        yield Text(f"{' ' * INDENT}{page.signs.more} and those of the pieces behind", style="dim")


def _merge_line(page: Page, line: Text, split: Split) -> Text:
    merges = split.merges or []
    shown = [
        f"{_bytes_as_text(page, merge.left, page.widest_label)}+{_bytes_as_text(page, merge.right, page.widest_label)}"
        for merge in merges
    ]
    room = page.columns - cell_len(line.plain)
    for place, merge in enumerate(shown):
        left_out = len(shown) - place - 1
        rest = f"  {page.signs.more} {left_out} more"
        if cell_len(merge) + (len(rest) if left_out else 0) > room:
            return line.append(f"{page.signs.more} {left_out + 1} more"[:room], style="dim")
        line.append(merge).append("  ")
        room -= cell_len(merge) + 2
    return line


def _bytes_as_text(page: Page, data: str, columns: int) -> str:
    if is_text(data):
        return page.signs.fold(bytes.fromhex(data).decode(), columns)
    return page.signs.escaped(data, columns)


def _joined(parts: Sequence[str], columns: int, more: str) -> str:
    """As many as fit."""
    if len(" ".join(parts)) <= columns:
        return " ".join(parts)
    while parts and len(" ".join(parts)) + 1 + len(more) > columns:
        parts = parts[:-1]
    return " ".join([*parts, more])[: max(0, columns)]


def _bands(page: Page) -> int:
    return MAX_BANDS if len(page.trace.texts) == 1 else 1


def _widest(page: Page, shown: Callable[[Cell], str], *, least: int) -> int:
    cells = [cell for _, text, _ in page.texts() for cell in page.cells(text)]
    return max([least, *(len(shown(cell)) for cell in cells)])
