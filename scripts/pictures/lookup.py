"""Pictures for the lessons text, table and forward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import inlayer
from inlayer import ByteTokenizer, Embeddings
from scripts.pictures.drawing import Drawing

SPACE = "\N{OPEN BOX}"
DOTS = "\N{VERTICAL ELLIPSIS}"
TIMES = "\N{MULTIPLICATION SIGN}"

# the worked example "I love dogs": ids of a word-level tokenizer, rows 8 wide
WORDS = {"I": 73, "love": 786, "dogs": 2934}
ROWS = {
    0: [0.11, -0.07, 0.45, 0.02, -0.33, 0.19, -0.48, 0.05],
    1: [-0.21, 0.34, -0.11, -0.08, 0.27, -0.39, 0.17, -0.43],
    73: [0.22, -0.51, 0.36, 0.08, -0.44, 0.19, -0.09, 0.27],
    786: [-0.13, 0.42, 0.07, -0.36, 0.55, -0.22, 0.18, 0.04],
    2934: [0.31, -0.14, -0.25, 0.49, -0.07, 0.61, -0.12, -0.33],
}


def text_three_ways() -> Drawing:
    text = "I love dogs"
    tokenizer = inlayer.load("default").tokenizer
    byte_ids = ByteTokenizer().encode(text)
    subwords = [(token.span, token.id) for token in tokenizer.tokens(text)]
    words, start = [], 0
    for word, token_id in WORDS.items():
        start = text.index(word, start)
        words.append(((start, start + len(word)), token_id))
    d = Drawing(720, 296, "One text, split three ways")
    left, step = 186, 47

    def strip(y: float, name: str, about: str, tokens: list[tuple[tuple[int, int], int]]) -> None:
        d.text(8, y + 20, name, "strong", at="start")
        d.text(8, y + 38, about, "small muted", at="start")
        for (begin, end), token_id in tokens:
            x, w = left + begin * step + 2, (end - begin) * step - 4
            d.tint(x, y, w, 48, "a", 0.12)
            d.box(x, y, w, 48, "a line thin")
            d.text(x + w / 2, y + 20, text[begin:end].replace(" ", SPACE), "mono")
            d.text(x + w / 2, y + 39, str(token_id), "number muted")

    for index, character in enumerate(text):
        d.text(left + (index + 0.5) * step, 30, character.replace(" ", SPACE), "large mono")
    d.text(8, 30, "the text", "strong", at="start")
    d.line((left, 44), (left + 11 * step, 44), kind="faint line thin")
    strip(62, "bytes", f"256 ids, {len(byte_ids)} tokens", [((n, n + 1), b) for n, b in enumerate(byte_ids)])
    strip(140, "words", f"one row per word, {len(words)} tokens", words)
    strip(218, "subwords", f"{tokenizer.get_vocab_size():,} ids, {len(subwords)} tokens", subwords)
    return d


def text_utf8() -> Drawing:
    d = Drawing(720, 208, "Characters and their UTF-8 bytes")
    d.text(8, 44, "character", "strong", at="start")
    d.text(8, 122, "bytes", "strong", at="start")
    d.text(8, 160, "ids", "strong", at="start")
    x, w = 120.0, 74.0
    total = 0
    for character in ("H", "é", "🙂"):
        ids = ByteTokenizer().encode(character)
        wide, middle = len(ids) * w, x + len(ids) * w / 2
        d.tint(x, 12, wide, 66, "a", 0.12)
        d.box(x, 12, wide, 66, "a line thin")
        if character == "🙂":  # drawn as shapes, because not every font has the emoji
            d.circle(middle, 36, 14, "muted line")
            d.circle(middle - 5, 32, 1.5, "muted fill")
            d.circle(middle + 5, 32, 1.5, "muted fill")
            d.path(f"M{middle - 7} 40 Q{middle} 47 {middle + 7} 40")
        else:
            d.text(middle, 42, character, "large mono")
        d.text(middle, 70, f"U+{ord(character):04X}", "small mono muted")
        for index, byte in enumerate(ids):
            left = x + index * w
            d.line((left + w / 2, 82), (left + w / 2, 96), kind="muted line thin")
            d.cell(left + 3, 100, w - 6, 34, f"{byte:02x}", kind="soft")
            d.text(left + w / 2, 160, str(byte), "number")
        x += wide + 24
        total += len(ids)
    d.text(120, 196, f"3 characters, {total} ids", "muted", at="start")
    return d


def text_merge() -> Drawing:
    word, pair, new = "banana", (97, 110), 256
    before = list(word.encode())
    after: list[int] = []
    index, merged = 0, []
    while index < len(before):
        if tuple(before[index : index + 2]) == pair:
            merged.append((index, len(after)))
            after.append(new)
            index += 2
        else:
            after.append(before[index])
            index += 1
    d = Drawing(720, 250, "One merge of banana")
    w, x, y1, y2 = 64, 30, 36, 164

    def row(y: float, ids: list[int]) -> None:
        for n, token_id in enumerate(ids):
            letters = "an" if token_id == new else chr(token_id)
            d.cell(x + n * w + 2, y, w - 4, 50, kind="a" if token_id == new else "soft")
            d.text(x + (n + 0.5) * w, y + 21, letters, "mono")
            d.text(x + (n + 0.5) * w, y + 41, str(token_id), "number muted")

    row(y1, before)
    row(y2, after)
    for begin, end in merged:
        left, right = x + begin * w + 4, x + (begin + 2) * w - 4
        d.brace(left, right, y1 + 56, "a line")
        d.swing(((left + right) / 2, y1 + 63), (x + (end + 0.5) * w, y2 - 5), "a line", down=True)
    d.text(x, 22, f"{len(before)} ids", "muted", at="start")
    d.text(x, y2 + 74, f"{len(after)} ids", "muted", at="start")
    d.text(450, 62, "the pair 97 110 occurs", at="start")
    d.text(450, 82, "twice", "strong", at="start")
    d.text(450, 184, "both become one new id, 256:", at="start")
    d.text(450, 204, "the first free id", at="start")
    return d


def table_init() -> Drawing:
    torch.manual_seed(0)
    table = nn.Embedding(6, 4, padding_idx=0)
    moments = [table.weight.detach().clone()]
    nn.init.normal_(table.weight, std=0.02)
    moments.append(table.weight.detach().clone())
    with torch.no_grad():
        table.weight[0].zero_()
    moments.append(table.weight.detach().clone())

    d = Drawing(776, 252, "Three stages of a new table")
    heads = [
        ("1. after nn.Embedding", "nn.Embedding, padding_idx=0", 2),
        ("2. the model's own init", "normal_(weight, std=0.02)", 3),
        ("3. zero the padding row again", "weight[0].zero_()", 3),
    ]
    w, h, top = 54, 30, 66
    for n, (weight, (name, code, digits)) in enumerate(zip(moments, heads, strict=True)):
        x = 24 + n * 254
        zero = not weight[0].any()
        d.text(x, 22, name, "strong", at="start")
        d.text(x, 44, code, "small mono muted", at="start")
        d.grid(x, top, weight[:4].tolist(), w=w, h=h, digits=digits, words="small mono")
        for row in range(4):
            d.text(x - 8, top + row * h + 19, str(row), "small muted", at="end")
        d.box(x - 2, top - 2, 4 * w + 4, h + 4, "good line thick" if zero else "bad line thick dashed")
        d.text(x + 2 * w, top + 4 * h + 16, DOTS, "muted")
        d.text(
            x,
            top + 4 * h + 42,
            "row 0 is zero" if zero else "row 0 is overwritten",
            f"{'good' if zero else 'bad'} strong",
            at="start",
        )
        d.text(x, top + 4 * h + 60, f"the others: N(0, {'1' if n == 0 else '0.02'})", "small muted", at="start")
    return d


def table_sizes() -> Drawing:
    tables = [  # name, dtype, rows, width, bytes per value, untied
        ("OLMo-2-7B", "float32", 100_352, 4_096, 4, True),
        ("OLMo-2-7B", "bfloat16", 100_352, 4_096, 2, True),
        ("DeepSeek-V3", "bfloat16", 129_280, 7_168, 2, True),
        ("Kimi-K2", "bfloat16", 163_840, 7_168, 2, True),
    ]
    d = Drawing(720, 262, "Bytes of four tables")
    left, scale = 186, 101.0
    for gigabytes in range(6):
        x = left + gigabytes * scale
        d.line((x, 226), (x, 232), kind="muted line thin")
        d.text(x, 246, f"{gigabytes}" + (" GB" if gigabytes == 5 else ""), "small muted")
    d.line((left, 226), (left + 5 * scale, 226), kind="muted line thin")
    for n, (name, dtype, rows, width, size, untied) in enumerate(tables):
        y = 22 + n * 52
        d.text(8, y + 14, f"{name}, {dtype}", "small strong", at="start")
        d.text(8, y + 31, f"{rows:,} {TIMES} {width:,}", "small muted", at="start")
        gigabytes_here = rows * width * size / 1e9
        w = gigabytes_here * scale
        d.tint(left, y, w, 32, "a", 0.3, round_=2)
        d.box(left, y, w, 32, "a line thin", round_=2)
        d.text(left + 8, y + 21, f"{gigabytes_here:.2f} GB", at="start")
        if untied:
            d.hatched(left + w + 3, y, w, 32, "a")
            d.tint(left + w + 8, y + 5, 158, 22, "soft", 1.0)
            d.text(left + w + 14, y + 21, f"{gigabytes_here:.2f} GB head, untied", "small", at="start")
    return d


def small_table(
    d: Drawing, x: float, y: float, rows: list[int | None], values: torch.Tensor, marked: dict[int, str]
) -> dict[int, float]:
    """Draw a table 4 wide by its colors; None is a gap. Return the vertical center of each row."""
    middles, w, h = {}, 22, 18
    for row in rows:
        if row is None:
            d.text(x + 2 * w, y + 13, DOTS, "muted")
        else:
            d.grid(x, y, [values[row].tolist()], w=w, h=h, digits=None, most=float(values.abs().max()) * 0.8)
            d.text(x - 8, y + 13, str(row), "small mono " + (marked.get(row, "muted")), at="end")
            if row in marked:
                d.box(x - 1, y - 1, 4 * w + 2, h + 2, f"{marked[row]} line", round_=2)
            middles[row] = y + h / 2
        y += h + 2
    return middles


def table_two_phases() -> Drawing:
    layer = Embeddings(vocab_size=256, block_size=8, n_embd=4, seed=0)
    token, position = layer.token_embedding.weight.detach(), layer.position_embedding.weight.detach()
    d = Drawing(740, 420, "Once, and every time")
    d.tint(0, 0, 236, 420, "soft", 0.6, round_=8)
    d.text(20, 28, "once: initialization", "strong", at="start")
    d.text(20, 58, f"token table, 256 {TIMES} 4", "small muted", at="start")
    of_token = small_table(d, 100, 70, [0, None, 72, None, 105, None, 255], token, {72: "a", 105: "a"})
    d.text(20, 236, f"position table, 8 {TIMES} 4", "small muted", at="start")
    of_position = small_table(d, 100, 248, [0, 1, 2, 3, 4, 5, 6, 7], position, {0: "b", 1: "b"})

    d.text(268, 28, "every time: the forward pass", "strong", at="start")
    d.text(
        268,
        58,
        "\N{LEFT DOUBLE QUOTATION MARK}Hi\N{RIGHT DOUBLE QUOTATION MARK} \N{RIGHTWARDS ARROW} ids [72, 105]",
        "a",
        at="start",
    )
    d.text(268, 400, "their positions [0, 1]", "b", at="start")
    x, w, h = 340, 26, 26
    most_token, most_position = float(token.abs().max()) * 0.8, float(position.abs().max()) * 0.8
    y_token, y_position, y_sum = 110, 280, 195
    d.grid(x, y_token, token[[72, 105]].tolist(), w=w, h=h, digits=None, most=most_token)
    d.grid(x, y_position, position[[0, 1]].tolist(), w=w, h=h, digits=None, most=most_position)
    for row, index in ((72, 0), (105, 1)):
        d.swing((194, of_token[row]), (x - 6, y_token + (index + 0.5) * h), "a line")
    for row, index in ((0, 0), (1, 1)):
        d.swing((194, of_position[row]), (x - 6, y_position + (index + 0.5) * h), "b line")
    both = (token[[72, 105]] + position[[0, 1]]).tolist()
    d.circle(510, y_sum + h, 13, "muted line")
    d.line((503, y_sum + h), (517, y_sum + h), kind="line")
    d.line((510, y_sum + h - 7), (510, y_sum + h + 7), kind="line")
    d.swing((x + 4 * w + 6, y_token + h), (500, y_sum + h - 12), "a line")
    d.swing((x + 4 * w + 6, y_position + h), (500, y_sum + h + 12), "b line")
    d.arrow((528, y_sum + h), (564, y_sum + h))
    d.grid(572, y_sum, both, w=w, h=h, digits=None, most=max(most_token, most_position))
    d.text(572 + 2 * w, y_sum - 12, "hidden states", "small muted")
    d.text(572 + 2 * w, y_sum + 2 * h + 22, "(1, 2, 4)", "mono")
    return d


def forward_gather() -> Drawing:
    d = Drawing(740, 312, "Three ids select three rows")
    table_x, w, h = 172, 18, 20
    d.text(8, 26, "ids", "strong", at="start")
    d.text(table_x, 26, "the table, 8 wide", "strong", at="start")
    most = 0.61
    y = 40.0
    middles: dict[int, float] = {}
    for row in (0, 1, None, 73, None, 786, None, 2934, None):
        if row is None:
            d.text(table_x + 4 * w, y + 15, DOTS, "muted")
        else:
            d.grid(table_x, y, [ROWS[row]], w=w, h=h, digits=None, most=most)
            d.text(table_x - 8, y + 15, str(row), "small mono " + ("a" if row > 1 else "muted"), at="end")
            if row > 1:
                d.box(table_x - 1, y - 1, 8 * w + 2, h + 2, "a line", round_=2)
            middles[row] = y + h / 2
        y += h + 4
    out_x, ow, oh, out_y = 392, 42, 34, 100
    d.text(out_x, 26, "stacked: the hidden states", "strong", at="start")
    d.grid(out_x, out_y, [ROWS[i] for i in WORDS.values()], w=ow, h=oh, most=most, words="small mono")
    for n, (word, token_id) in enumerate(WORDS.items()):
        chip_y = middles[token_id] - 13
        d.tint(8, chip_y, 96, 26, "a", 0.12)
        d.box(8, chip_y, 96, 26, "a line thin")
        d.text(16, chip_y + 18, word, at="start")
        d.text(96, chip_y + 18, str(token_id), "number muted", at="end")
        d.arrow((108, middles[token_id]), (128, middles[token_id]), "a line")
        d.swing((table_x + 8 * w + 6, middles[token_id]), (out_x - 8, out_y + (n + 0.5) * oh), "a line")
    d.brace(out_x, out_x + 8 * ow, out_y + 3 * oh + 6)
    d.text(out_x + 4 * ow, out_y + 3 * oh + 34, "(3, 8)", "mono")
    d.text(out_x + 4 * ow, out_y + 3 * oh + 58, "as a batch of one: (1, 3, 8)", "muted")
    return d


def brackets(d: Drawing, x: float, y: float, w: float, h: float) -> None:
    """Draw the square brackets of a matrix."""
    for edge, side in ((x - 5, 1), (x + w + 5, -1)):
        d.line((edge + 6 * side, y - 4), (edge, y - 4), (edge, y + h + 4), (edge + 6 * side, y + h + 4))


def forward_one_hot() -> Drawing:
    ids, table = torch.tensor([2, 0, 2]), torch.tensor([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    one_hot = nn.functional.one_hot(ids, 4)
    product = one_hot.float() @ table
    kinds = {2: "a", 0: "b"}
    d = Drawing(700, 276, "A lookup as a matrix product")
    s = 40

    def matrix(x: float, y: float, rows: list[list[int]], tints: list[list[str]]) -> None:
        for r, row in enumerate(rows):
            for c, value in enumerate(row):
                d.cell(x + c * s, y + r * s, s, s, str(value), kind=tints[r][c])
        brackets(d, x, y, len(rows[0]) * s, len(rows) * s)

    top = 56
    d.lines(24, top + 25, ["id 2", "id 0", "id 2"], "muted", at="start", by=s)
    matrix(
        76,
        top,
        one_hot.tolist(),
        [[kinds[i] if v else "" for v in row] for i, row in zip(ids.tolist(), one_hot.tolist(), strict=True)],
    )
    d.text(276, top + 1.5 * s + 6, TIMES, "large")
    matrix(330, top - s / 2, table.int().tolist(), [[kinds.get(r, "")] * 2 for r in range(4)])
    for r in range(4):
        d.text(312, top - s / 2 + r * s + 25, str(r), "small " + kinds.get(r, "muted"))
    d.text(446, top + 1.5 * s + 6, "=", "large")
    matrix(486, top, product.int().tolist(), [[kinds[i]] * 2 for i in ids.tolist()])
    d.lines(584, top + 25, ["row 2", "row 0", "row 2"], "muted", at="start", by=s)
    d.text(76 + 2 * s, 26, "one-hot (3, 4)", "small mono muted")
    d.text(330 + s, 26, "table (4, 2)", "small mono muted")
    d.text(486 + s, 26, "(3, 2)", "small mono muted")
    products, zeros = one_hot.numel() * 2, int((one_hot == 0).sum()) * 2
    by_product = f"the product: 3 {TIMES} 4 {TIMES} 2 = {products} multiplications, {zeros} of them by zero"
    d.text(24, 232, by_product, at="start")
    d.text(24, 256, f"the lookup: {len(ids)} rows copied, no multiplications", at="start")
    return d


def forward_two_inputs() -> Drawing:
    d = Drawing(720, 318, "One forward pass, two inputs")

    def plate(x: float, y: float, w: float, name: str, shape: str, kind: str) -> None:
        d.tint(x, y, w, 54, kind, 0.14)
        d.box(x, y, w, 54, f"{kind} line thin")
        d.text(x + w / 2, y + 23, name, "mono strong")
        d.text(x + w / 2, y + 43, shape, "small mono muted")

    plate(8, 14, 150, "input_ids", "(B, T)", "a")
    plate(8, 112, 150, "inputs_embeds", "(B, T, D)", "b")
    plate(520, 62, 190, "hidden states", "(B, T, D)", "muted")
    d.box(252, 8, 150, 66, "muted line")
    for column in range(8):
        for row in range(3):
            d.tint(
                262 + column * 16.5,
                16 + row * 10,
                14,
                8,
                "a" if row == 1 else "muted",
                0.5 if row == 1 else 0.15,
                round_=1,
            )
    d.text(327, 64, "look up the rows", "small")
    d.arrow((162, 41), (246, 41), "a line")
    d.swing((406, 41), (514, 80), "a line")
    d.swing((162, 139), (514, 100), "b line")
    d.text(356, 148, "skips the table", "small b")
    columns, top = (8, 160, 330), 196
    d.line((8, top + 24), (640, top + 24), kind="faint line")
    for x, name in zip(columns, ("input_ids", "inputs_embeds", "what happens"), strict=True):
        d.text(x, top + 15, name, "small muted", at="start")
    outcomes = [
        ("given", "none", "the rows of the ids", "good"),
        ("none", "given", "the vectors, unchanged", "good"),
        ("given", "given", "ValueError: ambiguous", "bad"),
        ("none", "none", "ValueError: no input", "bad"),
    ]
    for n, (ids, embeds, happens, kind) in enumerate(outcomes):
        y = top + 44 + n * 22
        d.text(columns[0], y, ids, "muted" if ids == "none" else "", at="start")
        d.text(columns[1], y, embeds, "muted" if embeds == "none" else "", at="start")
        d.text(columns[2], y, happens, kind, at="start")
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    draw.__name__: draw
    for draw in (
        text_three_ways, text_utf8, text_merge, table_init, table_sizes, table_two_phases, forward_gather,
        forward_one_hot, forward_two_inputs,
    )
}  # fmt: skip
