"""Pictures for the lessons position and padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from inlayer import Ragged, mean_pool
from inlayer.positions import sinusoidal_encoding
from scripts.pictures.drawing import Drawing, shown

DOTS = "\N{VERTICAL ELLIPSIS}"
TIMES = "\N{MULTIPLICATION SIGN}"
ARROW = "\N{RIGHTWARDS ARROW}"

# the worked example "Hi": the rows used from a 256 x 4 and an 8 x 4 table
TOKENS = {72: [0.89, -0.45, 0.23, 0.34], 105: [0.33, 0.77, -0.11, 0.22]}
POSITIONS = {
    0: [0.22, -0.11, 0.44, -0.66],
    1: [0.77, 0.33, -0.88, 0.12],
    2: [0.99, -0.22, 0.55, 0.44],
    7: [0.66, 0.44, -0.77, 0.88],
}

# the worked batch of the padding lesson: bytes, padded with the first id after them
TEXTS = ("Hi", "dogs", "I")
PAD = 256


def position_hi() -> Drawing:
    d = Drawing(760, 400, "Hi becomes hidden states")
    w, h, most = 44, 28, 1.1
    token_x, position_x = 60, 330

    def rows(
        x: float, listed: Sequence[int | None], values: dict[int, list[float]], kind: str, used: set[int]
    ) -> dict[int, float]:
        y, middles = 84.0, {}
        for row in listed:
            if row is None:
                d.text(x + 2 * w, y + 13, DOTS, "muted")
                y += 20
                continue
            name = f"small mono {kind}" if row in used else "small mono muted"
            d.text(x - 8, y + 19, str(row), name, at="end")
            if row in used:
                d.grid(x, y, [values[row]], w=w, h=h, most=most, words="small mono")
                d.box(x - 1, y - 1, 4 * w + 2, h + 2, f"{kind} line", round_=2)
            else:
                for c, value in enumerate(values[row]):
                    d.cell(x + c * w, y, w, h, shown(value, 2), words="small mono muted")
            middles[row] = y + h / 2
            y += h + 4
        return middles

    d.text(token_x, 26, f"token table, 256 {TIMES} 4", "strong", at="start")
    d.text(token_x, 48, "row selected by the id", "small a", at="start")
    d.text(position_x, 26, f"position table, 8 {TIMES} 4", "strong", at="start")
    d.text(position_x, 48, "row selected by the position", "small b", at="start")
    rows(token_x, [None, 72, None, 105, None], TOKENS, "a", {72, 105})
    rows(position_x, [0, 1, 2, None, 7], POSITIONS, "b", {0, 1})
    d.text(560, 26, "\N{LEFT DOUBLE QUOTATION MARK}Hi\N{RIGHT DOUBLE QUOTATION MARK}", "strong", at="start")
    d.text(560, 48, f"H {ARROW} id 72 at position 0", "small muted", at="start")
    d.text(560, 66, f"i {ARROW} id 105 at position 1", "small muted", at="start")

    top = 270
    d.line((0, top - 16), (760, top - 16), kind="faint line thin")
    for n, (token_id, letter) in enumerate(((72, "H"), (105, "i"))):
        y = top + 8 + n * 46
        d.text(28, y + 20, letter, "large mono")
        total = [a + b for a, b in zip(TOKENS[token_id], POSITIONS[n], strict=True)]
        for x, values, kind in ((50, TOKENS[token_id], "a"), (280, POSITIONS[n], "b"), (510, total, "")):
            d.grid(x, y, [values], w=w, h=h, most=most, words="small mono")
            if kind:
                d.box(x - 1, y - 1, 4 * w + 2, h + 2, f"{kind} line", round_=2)
        d.text(253, y + 20, "+", "large")
        d.text(483, y + 20, "=", "large")
    d.text(510 + 2 * w, top + 112, "hidden states, (1, 2, 4)", "muted")
    return d


def position_sinusoidal() -> Drawing:
    positions = torch.arange(0, 64.01, 0.25, dtype=torch.float64)
    whole = sinusoidal_encoding(torch.arange(65), 8)
    d = Drawing(720, 404, "Sinusoidal positions, width 8")
    left, scale, high = 184, 8.1, 32
    d.line((left, 366), (left + 64 * scale, 366), kind="faint line thin")
    for at in range(0, 65, 8):
        d.line((left + at * scale, 20), (left + at * scale, 366), kind="faint line thin")
        d.text(left + at * scale, 384, str(at), "small muted")
    d.text(left - 12, 384, "position", "small muted", at="end")
    for pair in range(4):
        middle = 56 + pair * 84
        step = 10_000 ** (-2 * pair / 8)
        period = 2 * math.pi / step
        length = f"{period:,.0f}" if period > 100 else f"{period:.3g}"
        d.text(8, middle - 6, f"channels {2 * pair}, {2 * pair + 1}", "strong", at="start")
        d.text(8, middle + 13, f"period {length} tokens", "small muted", at="start")
        d.line((left, middle), (left + 64 * scale, middle), kind="faint line thin")
        for f, channel, kind in ((torch.sin, 2 * pair, "a line"), (torch.cos, 2 * pair + 1, "b line dashed")):
            wave = f(positions * step)
            assert torch.allclose(
                wave[::4].float(), whole[:, channel], atol=1e-5
            )  # our own function, also between integer positions
            d.line(
                *(
                    (left + p * scale, middle - high * v)
                    for p, v in zip(positions.tolist(), wave.tolist(), strict=True)
                ),
                kind=kind,
            )
    d.line((8, 362), (34, 362), kind="a line")
    d.text(40, 366, "sin", "small", at="start")
    d.line((72, 362), (98, 362), kind="b line dashed")
    d.text(104, 366, "cos", "small", at="start")
    return d


def rotate(vector: tuple[float, float], angle: float) -> tuple[float, float]:
    x, y = vector
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def position_rotation() -> Drawing:
    query, key, rate = (2.0, 1.0), (1.0, 2.0), 0.5
    d = Drawing(720, 386, "A query and a key, rotated")
    unit, radius = 54.0, math.hypot(*query)
    for x, positions in ((180, (2, 3)), (540, (7, 8))):
        y = 188.0
        d.text(x, 24, f"positions {positions[0]} and {positions[1]}", "strong")
        d.line((x - 140, y), (x + 140, y), kind="faint line thin")
        d.line((x, y - 132), (x, y + 132), kind="faint line thin")
        d.circle(x, y, radius * unit, "faint line thin dashed")
        for vector, name in ((query, "q"), (key, "k")):
            end = (x + vector[0] * unit, y - vector[1] * unit)
            d.line((x, y), end, kind="faint line dashed")
            d.text(end[0] + 10, end[1] - 2, name, "small muted", at="start")
        q, k = rotate(query, rate * positions[0]), rotate(key, rate * positions[1])
        angles = [math.atan2(vector[1], vector[0]) for vector in (q, k)]
        arc = [(x + 40 * math.cos(a), y - 40 * math.sin(a)) for a in angles]
        d.path(f"M{arc[0][0]:.2f} {arc[0][1]:.2f} A40 40 0 0 0 {arc[1][0]:.2f} {arc[1][1]:.2f}", "muted line")
        between = (angles[1] - angles[0]) % (2 * math.pi)
        middle = angles[0] + between / 2
        d.text(x + 62 * math.cos(middle), y - 62 * math.sin(middle) + 4, f"{math.degrees(between):.0f}°", "small muted")
        for vector, name, position, kind in ((q, "q", positions[0], "a"), (k, "k", positions[1], "b")):
            end = (x + vector[0] * unit, y - vector[1] * unit)
            d.arrow((x, y), end, f"{kind} line thick")
            length = math.hypot(*vector)
            d.text(
                x + vector[0] / length * (radius * unit + 18),
                y - vector[1] / length * (radius * unit + 18) + 5,
                f"{name} at {position}",
                f"{kind} strong",
            )
        product = q[0] * k[0] + q[1] * k[1]
        d.text(x, 350, f"q · k = {product:.2f}", "mono")
    unrotated = query[0] * key[0] + query[1] * key[1]
    d.text(360, 377, f"dashed: before the rotation, q · k = {unrotated:.0f}", "small muted")
    return d


def position_pairs() -> Drawing:
    angles = [10_000 ** (-2 * pair / 8) for pair in range(4)]
    kinds = ("a", "b", "c", "d")
    d = Drawing(720, 326, "Eight channels, paired in two ways")
    left, w, h = 170, 62, 36
    layouts = (
        ("half-split", "i with i + 4", [(0, 4), (1, 5), (2, 6), (3, 7)], 96),
        ("interleaved", "2i with 2i + 1", [(0, 1), (2, 3), (4, 5), (6, 7)], 222),
    )
    for name, rule, pairs, y in layouts:
        d.text(8, y + 17, name, "strong", at="start")
        d.text(8, y + 35, rule, "small muted", at="start")
        for n, (first, second) in enumerate(pairs):
            x1, x2 = left + (first + 0.5) * w, left + (second + 0.5) * w
            high = 26 + 11 * n if name == "half-split" else 26
            d.path(
                f"M{x1} {y - 4} C{x1} {y - 4 - high * 1.25:.2f} {x2} {y - 4 - high * 1.25:.2f} {x2} {y - 4}",
                f"{kinds[n]} line",
            )
            for channel in (first, second):
                d.tint(left + channel * w + 2, y, w - 4, h, kinds[n], 0.2)
                d.box(left + channel * w + 2, y, w - 4, h, f"{kinds[n]} line thin")
                d.text(left + (channel + 0.5) * w, y + 24, str(channel), "mono")
    d.text(8, 302, "radians per token", "small muted", at="start")
    for n, angle in enumerate(angles):
        x = left + n * 124
        d.tint(x + 2, 288, 18, 18, kinds[n], 0.2)
        d.box(x + 2, 288, 18, 18, f"{kinds[n]} line thin")
        d.text(x + 28, 302, f"pair {n}: {angle:g}", "small", at="start")
    return d


def batch(side: str) -> tuple[list[list[int]], list[list[int]]]:
    ids, mask = Ragged.from_lists([list(text.encode()) for text in TEXTS]).padded(pad_id=PAD, side=side)
    return ids.tolist(), mask.int().tolist()


def padding_batch() -> Drawing:
    d = Drawing(740, 346, "Three texts become one padded batch")
    w, h, gap = 54, 32, 4
    d.text(8, 24, "texts", "strong", at="start")
    for n, text in enumerate(TEXTS):
        y = 40 + n * (h + gap)
        d.text(8, y + 21, f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}", at="start")
        d.text(70, y + 21, f"{len(text)} id{'s' if len(text) > 1 else ''}", "small muted", at="start")
    d.arrow((120, 40 + 1.5 * h + gap), (150, 40 + 1.5 * h + gap))
    for x, side in ((176, "right"), (476, "left")):
        ids, mask = batch(side)
        d.text(x, 24, f"padded on the {side}", "strong", at="start")
        d.text(x, 190, "mask", "small muted", at="start")
        for r in range(3):
            for c in range(4):
                real = bool(mask[r][c])
                y = 40 + r * (h + gap)
                d.cell(x + c * w, y, w - 3, h, kind="a" if real else "soft")
                d.text(x + c * w + (w - 3) / 2, y + 21, str(ids[r][c]), "number" if real else "number muted")
                y = 202 + r * (h + gap)
                d.cell(x + c * w, y, w - 3, h, kind="a" if real else "")
                d.text(x + c * w + (w - 3) / 2, y + 21, str(mask[r][c]), "number" if real else "number muted")
    d.text(8, 338, "the padding id is 256, which is not a byte", "small muted", at="start")
    return d


def padding_mean() -> Drawing:
    rows = torch.tensor([[0.0, 0], [1, 2], [3, 4], [5, 6], [7, 8]])
    ids = torch.tensor([[1, 2, 0], [3, 0, 4]])
    mask = ids != 0
    hidden = rows[ids]
    mean, over_all = mean_pool(hidden, mask), hidden.mean(1)
    d = Drawing(760, 290, "A mean over the real tokens")

    def number(value: float) -> str:
        return f"{value:.2f}".rstrip("0").rstrip(".")

    def pair(values: torch.Tensor) -> str:
        return f"({', '.join(number(v) for v in values.tolist())})"

    d.text(8, 24, "rows of the ids", "strong", at="start")
    d.text(308, 24, "sum", "strong")
    d.text(406, 24, "divided", "strong", at="start")
    for n in range(2):
        y = 44 + n * 124
        for position in range(3):
            real, x = bool(mask[n, position]), 8 + position * 80
            d.cell(x, y + 18, 72, 54, kind="a" if real else "soft")
            d.text(x + 36, y + 40, f"id {int(ids[n, position])}", "small" if real else "small muted")
            d.text(x + 36, y + 60, pair(hidden[n, position]), "number" if real else "number muted")
        d.arrow((250, y + 45), (264, y + 45))
        d.text(308, y + 50, pair(hidden[n].sum(0)), "mono")
        count = int(mask[n].sum())
        d.swing((348, y + 45), (396, y + 22), "good line")
        d.swing((348, y + 45), (396, y + 68), "bad line")
        d.text(406, y + 27, f"/ {count} real tokens", "good", at="start")
        d.text(532, y + 27, pair(mean[n]), "mono strong", at="start")
        d.text(644, y + 27, "the mean", "good", at="start")
        d.text(406, y + 73, f"/ {ids.shape[1]} positions", "bad", at="start")
        wrong = pair(over_all[n])
        d.text(532, y + 73, wrong, "mono muted", at="start")
        d.line((530, y + 68), (532 + len(wrong) * 8.5, y + 68), kind="bad line")
        d.text(644, y + 73, "too small", "bad", at="start")
    d.text(8, 282, "gray: the padding row, all zeros", "small muted", at="start")
    return d


def padding_positions() -> Drawing:
    ids, mask = batch("left")
    by_mask = [[max(0, sum(row[: position + 1]) - 1) for position in range(4)] for row in mask]
    d = Drawing(720, 334, "Positions in a left-padded batch")
    left, w, cell = 260, 108, 30
    d.text(8, 24, "padded on the left", "strong", at="start")
    for r, text in enumerate(TEXTS):
        y = 42 + r * 92
        d.text(8, y + 20, f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}", at="start")
        d.text(left - 12, y + 20, "ids", "small muted", at="end")
        d.text(left - 12, y + 46, "counted by index", "small bad", at="end")
        d.text(left - 12, y + 66, "counted by the mask", "small good", at="end")
        for c in range(4):
            real, x = bool(mask[r][c]), left + c * w
            d.cell(x, y, w - 6, cell, kind="a" if real else "soft")
            d.text(
                x + w / 2 - 3,
                y + 20,
                f"{chr(ids[r][c])}  {ids[r][c]}" if real else str(PAD),
                "number" if real else "number muted",
            )
            wrong = real and by_mask[r][c] != c
            d.text(x + w / 2 - 3, y + 46, str(c), "number " + ("bad strong" if wrong else "" if real else "muted"))
            d.text(
                x + w / 2 - 3,
                y + 66,
                str(by_mask[r][c]),
                "number " + ("good strong" if wrong else "" if real else "muted"),
            )
    d.text(8, 326, "gray: padding, its number does not matter", "small muted", at="start")
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    draw.__name__: draw
    for draw in (
        position_hi, position_sinusoidal, position_rotation, position_pairs, padding_batch, padding_mean,
        padding_positions,
    )
}  # fmt: skip
