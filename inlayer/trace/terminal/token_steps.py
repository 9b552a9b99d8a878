"""Steps 1 to 4 in the terminal: characters above their bytes, pre-tokens, ids, and where each row is stored.

Bytes that are not whole characters are shown in hexadecimal, never as a replacement character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from inlayer.trace.facts import PreToken, TextTrace, TokenTrace
from inlayer.trace.terminal.layout import INDENT, Layout, is_text, padded

__all__ = ["bytes_step", "ids_step", "pre_tokens_step", "stored_rows_step"]

MAX_BANDS = 3  # of characters above bytes, per text
MAX_MERGED = 6  # pre-tokens per text whose merges are shown


def bytes_step(layout: Layout) -> Iterator[Text]:
    """Step 1: each character above its bytes."""
    if layout.trace.input == "inputs_embeds":
        return
    for _, text, heading in layout.texts():
        yield from heading
        units = [
            (
                layout.glyphs.fold(one.text, 12),
                layout.glyphs.hex(one.bytes, 24),
                "cyan" if len(one.bytes) > 2 else "dim",
            )
            for one in text.characters
        ]
        lines, shown = layout.bands(units, bars=False, max_bands=_bands(layout))
        yield from lines
        yield from layout.more(text.n_characters - shown, "character")
        if not text.n_bytes:
            yield Text(" " * INDENT + " (no bytes)", style="dim")
    yield from layout.omitted_texts()


def pre_tokens_step(layout: Layout) -> Iterator[Text]:
    """Step 2: the same bytes, divided into pre-tokens."""
    for _, text, heading in layout.texts():
        if text.pre_tokens is None:
            continue
        yield from heading
        available = layout.band_width
        units = [
            (_bytes_as_text(layout, one.bytes, available), layout.glyphs.hex(one.bytes, available), "dim")
            for one in text.pre_tokens
        ]
        lines, shown = layout.bands(units, bars=True, max_bands=_bands(layout))
        yield from lines
        yield from layout.more(text.n_pre_tokens - shown, "pre-token")
    if any(text.pre_tokens is not None for text in layout.trace.texts):
        yield from layout.omitted_texts()


def ids_step(layout: Layout) -> Iterator[Text]:
    """Step 3: the id of each token, and the merges that produced it."""
    if layout.trace.input == "inputs_embeds":
        return
    digits = _widest(layout, lambda token: str(token.id), minimum=2)
    head = padded(Text(" " * (INDENT + layout.index_width + 2) + "token", style="dim"), layout.head_width)
    yield head.append(f"  {'id':>{digits}}  bytes")
    for _, text, heading in layout.texts():
        yield from heading
        tokens = layout.tokens(text)
        for index, token in enumerate(tokens):
            line = layout.head(index, token)
            line.append(f"  {token.id:>{digits}}", style="bold cyan" if token.mask else "dim")
            mark = "" if token.mask else "padding" if not token.bytes else ""
            mark = "special" if token.special and token.mask else mark
            available = layout.columns - layout.head_width - digits - 4 - (len(mark) + 2 if mark else 0)
            data = layout.glyphs.hex(token.bytes, available)
            line.append(f"  {data}" if data else "", style="dim")
            line.append(f"  {mark}" if mark else "", style="magenta")
            yield line
        yield from layout.omitted_tokens(text, len(tokens))
        yield from _merges(layout, text, len(tokens))
    yield from layout.omitted_texts()


def stored_rows_step(layout: Layout) -> Iterator[Text]:
    """Step 4: the byte offset of each row, and its first values as stored."""
    table, glyphs = layout.trace.table, layout.glyphs
    if layout.trace.input == "inputs_embeds":
        return
    size, start = f"{table.row_bytes:,}", "" if table.offset == 0 else f"{table.offset:,} + "
    yield from layout.note(f"row i starts at byte {start}i {glyphs.times} {size} and has {size} bytes")
    digits = _widest(layout, lambda token: str(token.id), minimum=2)
    offsets = _widest(
        layout, lambda token: f"{token.offset:,}" if token.offset is not None else "", minimum=len("byte")
    )
    head = padded(Text(" " * (INDENT + layout.index_width + 2) + "token", style="dim"), layout.head_width)
    used = layout.head_width + digits + offsets + 6
    title = glyphs.fold(f"first {'values' if table.itemsize else 'block'} in hex", layout.columns - used, blank=" ")
    yield head.append(f"  {'id':>{digits}}  {'byte':>{offsets}}  {title}")
    for _, text, heading in layout.texts():
        yield from heading
        tokens = layout.tokens(text)
        for index, token in enumerate(tokens):
            line = layout.head(index, token)
            line.append(f"  {token.id:>{digits}}", style="cyan")
            line.append(f"  {'' if token.offset is None else f'{token.offset:,}':>{offsets}}  ")
            line.append(_joined(token.stored_hex, layout.columns - used, glyphs.more), style="dim")
            yield line
        yield from layout.omitted_tokens(text, len(tokens))
    yield from layout.omitted_texts()


def _merges(layout: Layout, text: TextTrace, tokens: int) -> Iterator[Text]:
    every = [pre_token for pre_token in text.pre_tokens or [] if pre_token.merges and pre_token.tokens[0] < tokens]
    merged = list({pre_token.bytes: pre_token for pre_token in every}.values())  # equal pre-tokens have equal merges
    if not merged:
        return
    names = [_bytes_as_text(layout, pre_token.bytes, layout.widest_label) for pre_token in merged[:MAX_MERGED]]
    before = INDENT + layout.index_width + 2
    columns = max(layout.head_width, before + max(cell_len(name) for name in names))
    yield from layout.note("merges, in the order they are applied", max_lines=1)
    for pre_token, name in zip(merged, names, strict=False):
        yield _merge_line(layout, padded(Text(" " * before + name), columns).append("  "), pre_token)
    if len(merged) > MAX_MERGED:
        yield Text(f"{' ' * INDENT}{layout.glyphs.more} and those of the remaining pre-tokens", style="dim")


def _merge_line(layout: Layout, line: Text, pre_token: PreToken) -> Text:
    shown = [
        "+".join(_bytes_as_text(layout, part, layout.widest_label) for part in (merge.left, merge.right))
        for merge in pre_token.merges or []
    ]
    available = layout.columns - cell_len(line.plain)
    for index, merge in enumerate(shown):
        left_out = len(shown) - index - 1
        rest = f"  {layout.glyphs.more} {left_out} more"
        if cell_len(merge) + (len(rest) if left_out else 0) > available:
            return line.append(f"{layout.glyphs.more} {left_out + 1} more"[:available], style="dim")
        line.append(merge).append("  ")
        available -= cell_len(merge) + 2
    return line


def _bytes_as_text(layout: Layout, data: str, columns: int) -> str:
    if is_text(data):
        return layout.glyphs.fold(bytes.fromhex(data).decode(), columns)
    return layout.glyphs.escaped(data, columns)


def _joined(parts: Sequence[str], columns: int, more: str) -> str:
    """Join as many parts as fit."""
    if len(" ".join(parts)) <= columns:
        return " ".join(parts)
    while parts and len(" ".join(parts)) + 1 + len(more) > columns:
        parts = parts[:-1]
    return " ".join([*parts, more])[: max(0, columns)]


def _bands(layout: Layout) -> int:
    return MAX_BANDS if len(layout.trace.texts) == 1 else 1


def _widest(layout: Layout, shown: Callable[[TokenTrace], str], *, minimum: int) -> int:
    tokens = [token for _, text, _ in layout.texts() for token in layout.tokens(text)]
    return max([minimum, *(len(shown(token)) for token in tokens)])
