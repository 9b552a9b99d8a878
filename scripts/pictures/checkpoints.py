"""Pictures for the lessons large and checkpoints."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

import torch
from safetensors.torch import save

from scripts.pictures.drawing import Drawing

TIMES = "\N{MULTIPLICATION SIGN}"
FIRST, SECOND = "\N{SUBSCRIPT ONE}", "\N{SUBSCRIPT TWO}"


def shards() -> Drawing:
    held = ((0, 4), (4, 8), (8, 10))
    ids = (5, 0, 9, 5)
    kinds = ("a", "b", "c")
    d = Drawing(740, 408, "A table sharded by rows over three processes")
    d.text(8, 24, "ten rows", "strong", at="start")
    d.text(250, 24, "what each process looks up", "strong", at="start")
    w, h = 104, 32
    for column, token_id in enumerate(ids):
        x = 320 + column * w
        d.text(x + w / 2 - 3, 56, f"id {token_id}", "mono")
    y = 76.0
    for process, (begin, end) in enumerate(held):
        kind, top = kinds[process], y
        for row in range(begin, end):
            d.cell(88, y, 100, 18, kind=kind)
            d.text(138, y + 13.5, f"row {row}", "small mono")
            y += 20
        middle = (top + y) / 2 - 1
        d.text(8, middle + 4, f"process {process}", f"small {kind}", at="start")
        d.arrow((198, middle), (308, middle), f"{kind} line")
        for column, token_id in enumerate(ids):
            own = begin <= token_id < end
            d.cell(320 + column * w, middle - h / 2, w - 6, h, kind=kind if own else "")
            d.text(
                320 + column * w + w / 2 - 3,
                middle + 5,
                f"row {token_id}" if own else "0",
                "number" if own else "number muted",
            )
        y += 14
    base = y + 14
    d.line((320, base), (320 + 4 * w - 6, base), kind="muted line")
    d.text(308, base + 30, "their sum", "strong", at="end")
    for column, token_id in enumerate(ids):
        (kind,) = [kinds[p] for p, (begin, end) in enumerate(held) if begin <= token_id < end]
        d.cell(320 + column * w, base + 10, w - 6, h, kind=kind)
        d.text(320 + column * w + w / 2 - 3, base + 31, f"row {token_id}", "number")
    d.text(320, base + 66, "each position is one row plus two zeros: the sum is the lookup", "small muted", at="start")
    return d


def bucket(word: str, multiplier: int) -> int:
    """Return the first three bits of a 32-bit product: one of eight rows."""
    return (zlib.crc32(word.encode()) * multiplier % 2**32) >> 29


def two_hashes() -> Drawing:
    words, multipliers = ("dogs", "cats", "love"), (2_654_435_761, 2_246_822_519)
    chosen = {word: [bucket(word, multiplier) for multiplier in multipliers] for word in words}
    assert chosen == {"dogs": [7, 1], "cats": [7, 4], "love": [1, 0]}
    d = Drawing(720, 352, "Two hashes tell words apart")
    table_x, w, h, top = 360, 120, 34, 44
    d.text(8, 26, "words", "strong", at="start")
    d.text(table_x, 26, "a table of 8 rows", "strong", at="start")
    users: dict[int, list[str]] = {row: [] for row in range(8)}
    for word, rows in chosen.items():
        for n, row in enumerate(rows):
            users[row].append(word + (FIRST, SECOND)[n])
    for row in range(8):
        y = top + row * h
        if len(users[row]) > 1:
            d.hatched(table_x, y, w, h - 6, "bad" if row == 7 else "muted")
        else:
            d.cell(table_x, y, w, h - 6, kind="soft")
        d.text(table_x + w + 12, y + 19, str(row), "small mono muted", at="start")
        if users[row]:
            who = ("shared: " if len(users[row]) > 1 else "") + ", ".join(users[row])
            d.text(table_x + w + 36, y + 19, who, "small" + (" bad" if row == 7 else ""), at="start")
    seen = dict.fromkeys(range(8), 0)
    for n, word in enumerate(words):
        y = 90 + n * 88
        d.tint(8, y - 17, 92, 34, "muted", 0.12)
        d.box(8, y - 17, 92, 34, "muted line thin")
        d.text(54, y + 5, word, "mono")
        for which, row in enumerate(chosen[word]):
            seen[row] += 1
            shift = 0 if len(users[row]) == 1 else (seen[row] - 1.5) * 10
            d.swing(
                (104, y + (which - 0.5) * 12),
                (table_x - 8, top + row * h + 14 + shift),
                "a line" if which == 0 else "b line dashed",
            )
    d.line((8, 332), (34, 332), kind="a line")
    d.text(42, 336, "first hash", "small", at="start")
    d.line((130, 332), (156, 332), kind="b line dashed")
    d.text(164, 336, "second hash", "small", at="start")
    d.text(table_x, 336, "no two words share both of their rows", "small muted", at="start")
    return d


def safetensors() -> Drawing:
    file = save(
        {
            "model.embed_tokens.weight": torch.zeros(6, 4, dtype=torch.bfloat16),
            "model.norm.weight": torch.zeros(4, dtype=torch.bfloat16),
        },
        {"format": "pt"},
    )
    length = int.from_bytes(file[:8], "little")
    data = 8 + length
    header = json.loads(file[8:data])
    spans = {name: tuple(header[name]["data_offsets"]) for name in ("model.embed_tokens.weight", "model.norm.weight")}
    assert (length, data, len(file)) == (192, 200, 256)
    assert list(spans.values()) == [(0, 48), (48, 56)]

    d = Drawing(760, 372, "A safetensors file of 256 bytes")
    left, top, high = 8, 56, 46
    # not to scale, so the interesting parts are readable
    parts = [
        (0, 8, 176, "length", "c"),
        (8, data, 260, "header, JSON", "b"),
        (data, data + 48, 208, f"table, 6 {TIMES} 4 {TIMES} 2 bytes", "a"),
        (data + 48, len(file), 96, "norm", "d"),
    ]
    x = float(left)
    edges = {}
    for begin, end, wide, name, kind in parts:
        d.tint(x, top, wide - 4, high, kind, 0.2)
        d.box(x, top, wide - 4, high, f"{kind} line thin")
        d.text(x + (wide - 4) / 2, top + 20, name, "small strong")
        d.text(x + (wide - 4) / 2, top + 37, f"{end - begin} bytes", "small muted")
        d.text(x, top - 8, str(begin), "small mono muted", at="start")
        edges[begin] = (x, wide - 4)
        x += wide
    d.text(x - 4, top - 8, str(len(file)), "small mono muted", at="end")
    d.text(left, 20, "byte", "small muted", at="start")

    d.line((left + 20, top + high), (left + 20, 146), kind="c line thin")
    d.text(left, 164, " ".join(f"{byte:02x}" for byte in file[:8]), "small mono", at="start")
    d.text(left, 184, f"little-endian: {length}", "small c", at="start")

    hx = edges[8][0] + 24
    d.line((hx + 30, top + high), (hx + 30, 208), kind="b line thin")
    lines = [
        '{"__metadata__": {"format": "pt"},',
        ' "model.embed_tokens.weight": {"dtype": "BF16",',
        '   "shape": [6, 4], "data_offsets": [0, 48]},',
        ' "model.norm.weight": {"dtype": "BF16",',
        '   "shape": [4], "data_offsets": [48, 56]}}',
    ]
    assert json.loads("".join(lines)) == header
    code_y = 232
    d.box(hx - 16, 210, 398, 112, "b line thin")
    for n, text in enumerate(lines):
        d.mark("text", text.replace(" ", "\N{NO-BREAK SPACE}"), class_="small mono", x=hx - 4, y=code_y + n * 20)
    d.text(hx - 16, 340, "then spaces, up to a multiple of 8 bytes", "small muted", at="start")

    table_x, table_w = edges[data]
    norm_x, norm_w = edges[data + 48]
    d.brace(table_x, table_x + table_w, top + high + 6, "a line")
    d.text(table_x + table_w / 2, top + high + 30, "offsets 0 to 48", "small a")
    d.brace(norm_x, norm_x + norm_w, top + high + 6, "d line")
    d.text(norm_x + norm_w / 2, top + high + 30, "48 to 56", "small d")
    d.text(table_x, top + high + 56, f"offsets count from byte {data}", "small strong", at="start")
    d.text(table_x, top + high + 74, f"8 + {length} = {data}", "small mono muted", at="start")
    return d


def kimi_reads() -> Drawing:
    files, tensors, width, tokens = 61, 139_644, 7_168, 10
    table = 163_840 * width * 2
    d = Drawing(760, 312, "What ten tokens of Kimi-K2 require")
    left, wide, top, high = 8, 744, 52, 54
    step = wide / files
    d.text(left, 26, f"Kimi-K2: {files} files, {tensors:,} tensors, 1.03 TB", "strong", at="start")
    for n in range(files):
        kind = "a" if n == 0 else "b" if n == files - 1 else "soft"
        d.tint(left + n * step, top, step - 2, high, kind, 0.45 if kind != "soft" else 1.0, round_=1)
    d.line((left + 5, top + high + 4), (left + 5, top + high + 18), kind="a line")
    d.text(left, top + high + 36, "model-1-of-61", "small mono a", at="start")
    d.text(left, top + high + 54, f"the table, 163,840 {TIMES} 7,168, {table / 1e9:.2f} GB", "small", at="start")
    right = left + wide
    d.line((right - 7, top + high + 4), (right - 7, top + high + 18), kind="b line")
    d.text(right, top + high + 36, "model-61-of-61", "small mono b", at="end")
    d.text(right, top + high + 54, "the head, same size", "small", at="end")

    y = 196
    d.text(left, y, "what ten tokens need", "strong", at="start")
    d.tint(left, y + 14, 1.5, 44, "c", 1.0, round_=0)
    d.text(left + 14, y + 32, "3.3 MB: config, tokenizer, part of the index, one header,", at="start")
    d.text(left + 14, y + 52, f"and {tokens} rows of {width * 2:,} bytes", at="start")
    share = 1.03e12 / 3.3e6
    d.text(
        left,
        y + 88,
        f"To scale, the mark would be {wide / share:.3f} pixels wide: one part in {round(share, -4):,.0f}.",
        "small muted",
        at="start",
    )
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    draw.__name__: draw for draw in (shards, two_hashes, safetensors, kimi_reads)
}
