"""Pictures for the lessons on training: learning and tying."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from scripts.pictures.drawing import Drawing

TIMES = "\N{MULTIPLICATION SIGN}"


def repeated_ids() -> Drawing:
    ids, upstream = torch.tensor([3, 1, 3]), torch.tensor([[1.0, 2], [10, 20], [100, 200]])
    table = nn.Embedding(5, 2)
    (table(ids) * upstream).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    d = Drawing(720, 300, "The gradient flows back to the rows")
    d.text(8, 26, "ids", "strong", at="start")
    d.text(120, 26, "gradients", "strong", at="start")
    d.text(478, 26, "the table's gradient, five rows", "strong", at="start")
    kinds = {3: "a", 1: "b"}
    rows_y, h = 44, 44
    for position, token_id in enumerate(ids.tolist()):
        y, kind = 62 + position * 78, kinds[token_id]
        d.tint(8, y, 84, 34, kind, 0.14)
        d.box(8, y, 84, 34, f"{kind} line thin")
        d.text(50, y + 22, f"id {token_id}", "mono")
        for c, value in enumerate(upstream[position].tolist()):
            d.cell(120 + c * 52, y, 52, 34, f"{value:.0f}", kind=kind)
        target = rows_y + token_id * h + h / 2 - 4
        if token_id == 3:
            d.swing((230, y + 17), (392, target), "a line")
        else:
            d.swing((230, y + 17), (470, target), "b line")
    meet = rows_y + 3 * h + h / 2 - 4
    d.tint(396, meet - 12, 24, 24, "a", 0.2, round_=12)
    d.text(408, meet + 6, "+", "large a")
    d.arrow((424, meet), (470, meet), "a line")
    for row in range(5):
        y, kind = rows_y + row * h, kinds.get(row, "soft")
        for c, value in enumerate(gradient[row].tolist()):
            d.cell(500 + c * 64, y, 64, h - 8, kind=kind)
            d.text(500 + c * 64 + 32, y + 23, f"{value:.0f}", "number" if value else "number muted")
        d.text(492, y + 23, str(row), f"small mono {kinds.get(row, 'muted')}", at="end")
    notes = {1: "one position", 3: "two positions: the sum"}
    for row in range(5):
        d.text(
            638,
            rows_y + row * h + 16,
            notes.get(row, "zero").split(": ")[0],
            f"small {kinds.get(row, 'muted')}",
            at="start",
        )
    d.text(638, rows_y + 3 * h + 32, "their sum", "small a", at="start")
    d.text(8, 294, "the forward pass read row 3 twice, so row 3 gets both gradients", "small muted", at="start")
    return d


def adam_values() -> dict[str, list[float]]:
    """Track the first value of row 1, looked up in step 1 only, and of row 2, never looked up, over five steps."""

    def run(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], row: int) -> list[float]:
        table = nn.Embedding(3, 1)
        with torch.no_grad():
            table.weight.fill_(1.0)
        optimizer, values = make([table.weight]), [1.0]
        for step in range(5):
            optimizer.zero_grad()
            table(torch.tensor([1 if step == 0 else 0])).sum().backward()
            optimizer.step()
            values.append(table.weight[row].item())
        return values

    return {
        "SGD": run(lambda p: torch.optim.SGD(p, lr=0.1), 1),
        "Adam": run(lambda p: torch.optim.Adam(p, lr=0.1), 1),
        "AdamW": run(lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01), 2),
    }


def adam_moves() -> Drawing:
    values = adam_values()
    d = Drawing(720, 360, "A row keeps moving after its lookup")
    left, right, top, bottom = 56, 476, 44, 300

    def at(step: float, value: float) -> tuple[float, float]:
        return left + step * (right - left) / 5, top + (1.0 - value) * (bottom - top) / 0.35

    d.tint(left, 20, (right - left) / 5, bottom - 20, "a", 0.1)
    d.text(left + (right - left) / 10, 34, "looked up", "small a")
    d.text(left + (right - left) * 0.6, 34, "no gradient", "small muted")
    for value in (1.0, 0.9, 0.8, 0.7):
        d.line(at(0, value), at(5, value), kind="faint line thin")
        d.text(left - 10, at(0, value)[1] + 4, f"{value:.1f}", "small muted", at="end")
    for step in range(6):
        d.text(at(step, 1)[0], bottom + 20, str(step), "small muted")
    d.text((left + right) / 2, bottom + 42, "step", "small muted")
    names = {
        "AdamW": ("b", "never looked up, AdamW", f"weight decay only: {values['AdamW'][-1]:.3f}"),
        "SGD": ("muted", "SGD", f"stays at {values['SGD'][-1]:.1f}"),
        "Adam": ("a", "Adam", f"keeps moving to {values['Adam'][-1]:.2f}"),
    }
    for name, (kind, title, about) in names.items():
        points = [at(step, value) for step, value in enumerate(values[name])]
        d.line(*points, kind=f"{kind} line thick")
        for x, y in points:
            d.circle(x, y, 3.5, f"{kind} fill")
        d.text(right + 16, points[-1][1] + 2, title, f"{kind} strong", at="start")
        d.text(right + 16, points[-1][1] + 20, about, f"small {kind}", at="start")
    return d


def tied() -> Drawing:
    d = Drawing(760, 428, "One table, used twice")
    x, y, w, h, rows = 318, 92, 124, 30, 6
    picked, target = (1, 4), 2
    d.text(x + w / 2, 58, "one table E", "strong")
    d.text(x + w / 2, 78, f"V {TIMES} D", "small mono muted")
    for row in range(rows):
        if row in picked:
            d.tint(x, y + row * h, w, h - 4, "a", 0.25)
        elif row == target:
            d.tint(x, y + row * h, w, h - 4, "good", 0.22)
        else:
            d.tint(x, y + row * h, w, h - 4, "soft", 1.0)
        d.box(x, y + row * h, w, h - 4, "faint line thin")
        d.text(x + w / 2, y + row * h + 18, f"row {row}", "small mono")
    middle = y + rows * h / 2 - 2

    d.text(8, 26, "input", "strong", at="start")
    d.text(8, 46, "ids select rows", "small muted", at="start")
    d.text(752, 26, "output", "strong", at="end")
    d.text(752, 46, "hidden state · every row = V logits", "small muted", at="end")
    for n, row in enumerate(picked):
        chip = y + row * h
        d.tint(8, chip, 60, 26, "a", 0.14)
        d.box(8, chip, 60, 26, "a line thin")
        d.text(38, chip + 18, f"id {row}", "small mono")
        d.arrow((74, chip + 13), (x - 8, chip + 13), "a line")
        if n == 0:
            d.text(190, chip + 5, "look up", "small a")
    box_y = middle - 26
    d.tint(500, box_y, 86, 52, "b", 0.14)
    d.box(500, box_y, 86, 52, "b line thin")
    d.lines(543, box_y + 22, ["hidden", "state"], "small mono", by=16)
    for row in range(rows):
        d.line((x + w + 5, y + row * h + 13), (496, middle), kind="b line thin")
    d.arrow((592, middle), (640, middle), "b line")
    for row in range(rows):
        d.box(650, y + row * h + 2, 40, h - 8, "good line" if row == target else "b line thin", round_=2)
    d.text(698, y + target * h + 17, "target", "small good", at="start")

    below = y + rows * h
    d.path(f"M{x + w / 2} {below} C{x + w / 2} {below + 44} 543 {below + 44} 543 {box_y + 60}", "a line")
    d.head(543, box_y + 58, -math.pi / 2, "a line")
    d.text(560, 290, "rows, through the blocks", "small a", at="start")
    base = 322
    d.line((0, base), (760, base), kind="faint line thin")
    d.text(8, base + 26, "backward", "strong", at="start")
    for n, (name, hit) in enumerate((("from the lookup", set(picked)), ("from the head", set(range(rows))))):
        left = 130 if n == 0 else 420
        d.text(left, base + 26, name, "small strong", at="start")
        for row in range(rows):
            cx = left + row * 34
            kind = "soft" if row not in hit else "a" if n == 0 else "good" if row == target else "b"
            d.cell(cx, base + 38, 30, 24, kind=kind)
            d.text(cx + 15, base + 55, str(row), "number" if row in hit else "number muted")
    d.text(130, base + 84, f"{len(picked)} of {rows} rows: those the ids selected", "small a", at="start")
    d.text(420, base + 84, f"{rows} of {rows} rows: the target is pulled toward", "small good", at="start")
    d.text(420, base + 100, "the hidden state, all others are pushed away", "small b", at="start")
    return d


def tied_bytes() -> Drawing:
    models = [  # name, rows, width, tied, parameters of the whole model
        ("Kimi-K2", 163_840, 7_168, False, 1_026_470_731_056),
        ("DeepSeek-V3", 129_280, 7_168, False, None),
        ("Llama-3.1-8B", 128_256, 4_096, False, None),
        ("Llama-3.2-1B", 128_256, 2_048, True, 1_235_814_400),
    ]
    d = Drawing(740, 330, "Table and head of four models")
    left, scale = 138, 232.0
    for step in range(6):
        at = left + step * 0.5 * scale
        d.line((at, 288), (at, 294), kind="muted line thin")
        d.text(at, 308, f"{step * 0.5:g}", "small muted")
    d.line((left, 288), (left + 2.5 * scale, 288), kind="muted line thin")
    d.text(left - 12, 308, "billion parameters", "small muted", at="end")
    for n, (name, rows, width, is_tied, whole) in enumerate(models):
        y = 20 + n * 68
        numbers = rows * width / 1e9
        w = numbers * scale
        d.text(8, y + 16, name, "small strong", at="start")
        d.text(8, y + 33, "tied" if is_tied else "untied", "small muted", at="start")
        d.tint(left, y, w, 34, "a", 0.3, round_=2)
        d.box(left, y, w, 34, "a line thin", round_=2)
        label = f"table {numbers:.2f}"
        if w > 100:
            d.text(left + 8, y + 22, label, at="start")
        else:
            d.text(left + w + 10, y + 22, f"{label}, also used as the head" if is_tied else label, at="start")
        if not is_tied:
            d.hatched(left + w + 3, y, w, 34, "b")
            d.tint(left + w + 8, y + 6, 84, 22, "soft", 1.0)
            d.text(left + w + 14, y + 22, f"head {numbers:.2f}", at="start")
        about = f"{rows:,} {TIMES} {width:,}"
        if whole:
            share = 100 * rows * width / whole
            size = f"{whole / 1e12:.3f} trillion" if whole > 1e12 else f"{whole / 1e9:.3f} billion"
            about += f"; one table is {share:.2g}% of the model's {size}"
        d.text(left, y + 50, about, "small muted", at="start")
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    draw.__name__: draw for draw in (repeated_ids, adam_moves, tied, tied_bytes)
}
