"""Terminal output of a trace: eight steps with aligned numbers and heat strips.

trace -> [terminal] -> console
- color is used only if the terminal supports it, and no step relies on it; the output is ASCII if the terminal needs it
- no line is wider than the terminal or ends in spaces, and no text can control the terminal
- see also: columns and kinds of lines (trace/layout.py), formatting characters and numbers (render/glyphs.py)
Tested at three widths, against snapshots and with malicious texts, in tests/trace/test_terminal.py.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from inlayer.errors import InputError
from inlayer.render.glyphs import NUMBER, number, with_spaces
from inlayer.render.numbers import pluralize
from inlayer.trace.extra_table_facts import add_extra_tables
from inlayer.trace.facts import Backward, PreToken, RotaryFacts, TextTrace, TokenTrace, Trace, Vector
from inlayer.trace.layout import INDENT, Layout, NamedVectors, padded
from inlayer.trace.relative_positions import add_relative_positions
from inlayer.trace.steps import setup_code

FIRST_WITH_STRIPS = 5
MAX_MERGED = 6  # pre-tokens per text whose merges are shown
MAX_SUMS = 4  # tokens per text shown term by term
MAX_BATCH_SUMS = 2  # limit per text of a batch
MAX_ROTATIONS = 6  # tokens whose angles are shown
MAX_GRADIENT_SUMS = 3  # rows whose gradient is shown term by term


def show(
    trace: Trace,
    console: Console,
    *,
    step: int | None = None,
    max_tokens: int | None = None,
    tokenizer: str | None = None,
    embeds: str | None = None,
) -> None:
    """Print all steps, or one of them.

    `max_tokens` limits the tokens shown per text; the default fits a screen. `tokenizer` is the path of a tokenizer
    that replaced the model's, and `embeds` is the path of the vectors; both are for the printed code.
    """
    if step is not None and not 1 <= step <= len(STEPS):
        raise InputError(f"step is {step}; it must be in 1..{len(STEPS)}")
    color = console.color_system is not None and not console.no_color
    layout = Layout(trace, console.width, console.encoding, color=color, max_tokens=max_tokens)
    _add_lines(layout, step, setup_code(trace, step, tokenizer, embeds))
    for line in layout.lines:
        if cell_len(line.plain) > layout.columns:
            line.truncate(layout.columns - len(layout.glyphs.more))
            line.rstrip()
            line.append(layout.glyphs.more)
        line.rstrip()
    console.print(*layout.lines, sep="\n", no_wrap=True, overflow="crop", crop=True)


def _add_lines(layout: Layout, only_step: int | None, setup: list[str]) -> None:
    _model(layout)
    if layout.trace.input == "text" and not any(text.n_bytes + text.n_tokens for text in layout.trace.texts):
        layout.note("an empty text has no tokens, so the steps below are empty", indent=0)
    for line in setup:
        layout.code(line, indent=0)
    has_tokens = layout.trace.input != "text" or any(text.n_tokens + text.n_padding for text in layout.trace.texts)
    if has_tokens and (only_step is None or only_step >= FIRST_WITH_STRIPS):
        layout.legend()
    for step in layout.trace.steps:
        if only_step in (None, step.number):
            layout.add(Text())
            layout.heading(step)
            if has_tokens and (layout.trace.input == "text" or step.number >= FIRST_WITH_STRIPS):
                STEPS[step.number - 1](layout)


def _model(layout: Layout) -> None:
    trace = layout.trace
    name = f"{trace.source} ({trace.note})" if trace.note else trace.source
    layout.note(name, style="bold", indent=0)
    change = trace.change
    changes = [
        f"positions {change.positions}" if change.positions else "",
        f"theta {change.theta:,.10g}" if change.theta is not None else "",
        f"tokens {change.swap[0]} and {change.swap[1]} swapped" if change.swap else "",
        f"{pluralize(change.pad, 'padding token')} added" if change.pad else "",
    ]
    if any(changes):
        layout.note(f"experiment: {', '.join(filter(None, changes))}", style="yellow", indent=0)


def bytes_step(layout: Layout) -> None:
    """Step 1: each character above its bytes."""
    cut, as_hex = layout.glyphs.truncate, layout.glyphs.hex
    for text in layout.each_text():
        units = [
            (cut(char.text, 12), as_hex(char.bytes, 24), "cyan" if len(char.bytes) > 2 else "dim")
            for char in text.characters
        ]
        layout.bands(units, " ", text.n_characters, "character")
        if not text.n_bytes:
            layout.add(Text(" " * INDENT + " (no bytes)", style="dim"))


def pre_tokens_step(layout: Layout) -> None:
    """Step 2: the same bytes, divided into pre-tokens."""
    available = layout.columns - INDENT - 2
    if all(text.pre_tokens is None for text in layout.trace.texts):
        return
    for text in layout.each_text():
        units = [
            (layout.glyphs.truncate_bytes(part.bytes, available), layout.glyphs.hex(part.bytes, available), "dim")
            for part in text.pre_tokens or []
        ]
        layout.bands(units, layout.glyphs.bar, text.n_pre_tokens, "pre-token")


def ids_step(layout: Layout) -> None:
    """Step 3: the id of each token, and the merges that produced it."""
    digits = max([2, *(len(str(token.id)) for token in layout.shown_tokens)])
    for index, text in enumerate(layout.texts, start=1):
        if text.normalized is not None:
            name = f"text {index}" if layout.is_batch else "this text"
            layout.note(f"the tokenizer normalizes {name} to: {text.normalized}")
    layout.add(_token_heading(layout).append(f"  {'id':>{digits}}  bytes"))
    for text in layout.each_text():
        tokens = layout.tokens(text)
        for index, token in enumerate(tokens):
            mark = "  special" if token.special and token.mask else "" if token.mask or token.bytes else "  padding"
            available = layout.columns - layout.head_width - digits - 4 - len(mark)
            data = layout.glyphs.hex(token.bytes, available)
            line = layout.head(index, token)
            line.append(f"  {token.id:>{digits}}", style="bold cyan" if token.mask else "dim")
            line.append(f"  {data}" if data else "", style="dim").append(mark, style="magenta")
            if is_respelled(text, token):
                line.append(f"  in vocabulary: {layout.words(token.token or '')}")
            layout.add(line)
        layout.omitted_tokens(text, len(tokens))
        _merges(layout, text, len(tokens))


def stored_rows_step(layout: Layout) -> None:
    """Step 4: the byte offset of each row, and its first values as stored."""
    table, glyphs, tokens = layout.trace.table, layout.glyphs, layout.shown_tokens
    size, start = f"{table.row_bytes:,}", "" if table.offset == 0 else f"{table.offset:,} + "
    layout.note(f"row i starts at byte {start}i {glyphs.times} {size} and is {size} bytes long")
    digits = max([2, *(len(str(token.id)) for token in tokens)])
    offsets = max([len("byte"), *(len(f"{token.offset:,}") for token in tokens)])
    available = layout.columns - (layout.head_width + digits + offsets + 6)
    title = glyphs.truncate(f"first {'values' if table.itemsize else 'block'} in hex", available, blank=" ")
    layout.add(_token_heading(layout).append(f"  {'id':>{digits}}  {'byte':>{offsets}}  {title}"))
    for _, index, token in layout.each_token():
        line = layout.head(index, token).append(f"  {token.id:>{digits}}", style="cyan")
        line.append(f"  {token.offset:>{offsets},}  ")
        data = " ".join(token.stored_hex)
        if len(data) > available:
            whole = data[: max(0, available - len(glyphs.more))].rpartition(" ")
            data = "".join([*whole[:2], glyphs.more])[: max(0, available)]
        layout.add(line.append(data, style="dim"))
    add_extra_tables(layout)


def rows_step(layout: Layout) -> None:
    """Step 5: the gathered rows, and whether a one-hot matrix product gives the same."""
    gather = layout.trace.gather
    _token_table(layout, lambda token: token.row, gather.shape[2])
    if layout.trace.input == "text" and any(text.n_tokens for text in layout.trace.texts):
        rows = pluralize(gather.compared_rows, "row")
        over = f"all {rows}" if gather.whole_table else f"the {rows} in use"
        result = f"one_hot @ table is {'equal' if gather.equal else 'not equal'} to these rows, compared over {over}"
        layout.note(result, style="dim" if gather.equal else "bold yellow")
        if gather.note:
            layout.note(gather.note)


def positions_step(layout: Layout) -> None:
    """Step 6: the sum of row and position for each token, rotary angles, or the bias of relative positions."""
    for which, rotary in enumerate(layout.trace.positions.rotary):
        _rotary(layout, which, rotary)
    if layout.trace.positions.relative is not None:
        add_relative_positions(layout, layout.trace.positions.relative)
    stages = [stage.name for stage in layout.trace.stages]
    if "position" not in stages:
        return
    stage = stages.index("position")

    def parts(token: TokenTrace) -> NamedVectors:
        before = (f"after {stages[stage - 1]}", token.stages[stage - 1].output) if stage else ("row", token.row)
        value = token.stages[stage]
        return [before, (f"+ position {token.position}", value.added or []), ("= sum", value.output)]

    shown = MAX_BATCH_SUMS if layout.is_batch else MAX_SUMS
    tokens = [token for text in layout.texts for token in layout.tokens(text)[:shown]]
    grid = layout.named_grid([parts(token) for token in tokens], layout.trace.shape[2])
    for _, index, token in layout.each_token(shown):
        layout.named_vectors(index, layout.label(token), parts(token), grid)


def hidden_step(layout: Layout) -> None:
    """Step 7: the other stages, the hidden states, the mask, and the padding row."""
    trace = layout.trace
    if any(stage.name != "position" for stage in trace.stages):
        _stages(layout)
    _token_table(layout, lambda token: token.hidden, trace.shape[2])
    padding = trace.padding
    if padding.id is None or not any(text.n_padding for text in trace.texts):
        return
    _masks(layout)
    kind = "the table's padding_idx" if padding.is_padding_idx else "an ordinary token"
    line = f"the padding row is {padding.id}, {kind}; its values are {'all zero' if padding.is_zero else 'not zero'}"
    if padding.is_zero and any(any(token.hidden) for text in trace.texts for token in text.tokens if not token.mask):
        line += ", and the values shown here were added by later stages"
    layout.note(line)


def backward_step(layout: Layout) -> None:
    """Step 8: the gradients of the rows, through the lookup and the tied head, and the padding row."""
    backward, channels = layout.trace.backward, layout.trace.table.shape[1]
    if backward is None:
        return
    line = f"loss {number(backward.loss)}"
    if backward.uniform_loss is not None:
        line += f"; uniform guess over {layout.trace.table.shape[0]:,} tokens: {number(backward.uniform_loss)}"
    layout.note(line)
    _gradients(layout, backward, channels)
    if (unmasked := backward.unmasked_padding_gradient) is not None:
        layout.note("the padding row receives no gradient; without padding_idx it would receive")
        name = layout.head(None).append("padding", style="dim")
        grid = layout.columns_of([unmasked], channels, head=max(layout.head_width, len(name)))
        layout.vector(name, unmasked, grid)


STEPS: list[Callable[[Layout], None]] = [
    bytes_step, pre_tokens_step, ids_step, stored_rows_step, rows_step, positions_step, hidden_step, backward_step,
]  # fmt: skip


# ---- text and ids


def _token_heading(layout: Layout) -> Text:
    return padded(Text(" " * layout.label_start + "token", style="dim"), layout.head_width)


def is_respelled(text: TextTrace, token: TokenTrace) -> bool:
    """Return whether a token's text is spelled differently in the vocabulary, because the tokenizer normalized it."""
    if text.normalized is None or token.special or not token.bytes:
        return False
    return with_spaces(token.label).strip() not in with_spaces(token.token or "")


def _merges(layout: Layout, text: TextTrace, tokens: int) -> None:
    every = [pre_token for pre_token in text.pre_tokens or [] if pre_token.merges and pre_token.tokens[0] < tokens]
    merged = list({pre_token.bytes: pre_token for pre_token in every}.values())  # equal pre-tokens have equal merges
    if not merged:
        return
    names = [layout.glyphs.truncate_bytes(pre_token.bytes, layout.widest_label) for pre_token in merged[:MAX_MERGED]]
    columns = max(layout.head_width, layout.label_start + max(cell_len(name) for name in names))
    layout.note("merges, in the order they are applied", max_lines=1)
    for pre_token, name in zip(merged, names, strict=False):
        layout.add(_merge_line(layout, padded(Text(" " * layout.label_start + name), columns).append("  "), pre_token))
    if len(merged) > MAX_MERGED:
        layout.add(Text(f"{' ' * INDENT}{layout.glyphs.more} and those of the remaining pre-tokens", style="dim"))


def _merge_line(layout: Layout, line: Text, pre_token: PreToken) -> Text:
    merges = pre_token.merges or []
    for left_out, merge in zip(reversed(range(len(merges))), merges, strict=True):
        shown = "+".join(layout.glyphs.truncate_bytes(part, layout.widest_label) for part in (merge.left, merge.right))
        rest = f"  {layout.glyphs.more} {left_out} more" if left_out else ""
        if cell_len(line.plain + shown + rest) > layout.columns:
            return line.append(f"{layout.glyphs.more} {left_out + 1} more", style="dim")
        line.append(shown).append("  ")
    return line


# ---- vectors


def _token_table(layout: Layout, vector: Callable[[TokenTrace], Vector], channels: int) -> None:
    grid = layout.grid([vector(token) for token in layout.shown_tokens], channels)
    for _, index, token in layout.each_token():
        layout.vector(layout.head(index, token), vector(token), grid, style="" if token.mask else "dim")


def _rotary(layout: Layout, which: int, rotary: RotaryFacts) -> None:
    """Add the rotary frequencies, and the angle, cosine, and sine for the first tokens of the longest text."""
    glyphs = layout.glyphs
    kind = "" if rotary.layer_type is None else f"{rotary.layer_type}: "
    scaling = "unscaled" if rotary.scaling is None else f"scaled by {rotary.scaling}"
    factor = "" if rotary.attention_factor == 1 else f", cos and sin {glyphs.times} {number(rotary.attention_factor)}"
    pairs = f"theta {rotary.theta:,.10g}, {pluralize(rotary.n_pairs, 'pair')} of a head's {rotary.head_dim} channels"
    layout.note(f"{kind}{pairs} ({rotary.pairing}), {scaling}{factor}")
    if (dtype := layout.trace.table.row_dtype) != "float32":
        layout.note(f"cos and sin are rounded to {dtype}, the model's dtype")
    longest = max(layout.trace.texts, key=lambda text: text.n_tokens)
    tokens = [token for token in longest.tokens if token.mask][:MAX_ROTATIONS]
    if not tokens:
        return
    blocks = {"angle": "angles", "unscaled": "unscaled_angles", "cos": "cos", "sin": "sin"}
    if rotary.scaling is None or rotary.frequencies == rotary.unscaled_frequencies:
        del blocks["unscaled"]
        if rotary.scaling is not None:
            layout.note("the scaling does not change the pairs shown")
    head = max(layout.head_width, *(layout.label_start + len(name) for name in blocks))
    for name, field in blocks.items():
        vectors = [getattr(token.rotations[which], field) for token in tokens]
        heading = " " * layout.label_start + name
        grid = layout.grid(vectors, rotary.n_pairs, head=head, heading=heading, unit="pair ")
        for token, values in zip(tokens, vectors, strict=True):
            layout.vector(layout.head(token.position - layout.trace.first_token, token), values, grid)
    layout.omitted_tokens(longest, len(tokens))


def _stages(layout: Layout) -> None:
    trace = layout.trace
    for stage in trace.stages:
        layout.note(f"{stage.name}: {stage.note}", max_lines=2)
    token = next((token for text in trace.texts for token in text.tokens if token.mask), None)
    if token is None:
        return
    parts: list[tuple[str, Vector]] = [("row", token.row)]
    for stage, value in zip(trace.stages, token.stages, strict=True):
        parts.append((stage.name, value.output) if value.added is None else (f"+ {stage.name}", value.added))
    grid = layout.named_grid([parts], trace.shape[2])
    layout.named_vectors(0, layout.label(token), parts, grid)


def _masks(layout: Layout) -> None:
    before = INDENT + len(f"text {len(layout.trace.texts)}")
    available = (layout.columns - before - len(f"  mask {layout.glyphs.more}")) // 2
    for index, text in enumerate(layout.texts, start=1):
        line = padded(Text(f"{' ' * INDENT}text {index}", style="dim"), before).append("  mask")
        for token in text.tokens[:available]:
            line.append(f" {token.mask}", style="not dim" if token.mask else "dim")
        is_cut = len(text.tokens[:available]) < text.n_tokens + text.n_padding
        layout.add(line.append(f" {layout.glyphs.more}" if is_cut else ""))


def _gradients(layout: Layout, backward: Backward, channels: int) -> None:
    """Add the gradient of each row, and for some rows of a tied model the two gradients that it sums."""
    rows = backward.rows[: layout.max_tokens]
    firsts = [row.occurrences[0] for row in rows]
    labels = [layout.label(layout.trace.texts[text].tokens[token]) for text, token in firsts]
    names = max([len("token"), *(cell_len(label.plain) for label in labels)])
    ids = max([2, *(len(str(row.id)) for row in rows)])
    times = max([len("count"), *(len(f"{row.count:,}") for row in rows)])
    heading = f"{' ' * INDENT}{'token':<{names}}  {'id':>{ids}}  {'count':>{times}}  {'norm':>{NUMBER}}"
    grid = layout.grid([row.total for row in rows], channels, head=len(heading), heading=heading)
    for row, label in zip(rows, labels, strict=True):
        line = padded(Text(" " * INDENT).append_text(label), INDENT + names)
        line.append(f"  {row.id:>{ids}}", style="cyan")
        line.append(f"  {row.count:>{times},}", style="bold yellow" if row.count > 1 else "dim")
        line.append(f"  {number(row.norm):>{NUMBER}}")
        layout.vector(line, row.total, grid)
    layout.more(backward.n_unique_ids - len(rows), "row")
    sums = [
        (label, [("lookup", row.lookup), ("+ head", row.head), ("= total", row.total)])
        for row, label in zip(rows, labels, strict=True)
        if row.head is not None and not row.is_padding
    ][:MAX_GRADIENT_SUMS]
    if sums:
        grid = layout.named_grid([parts for _, parts in sums], channels)
        for label, parts in sums:
            layout.named_vectors(None, label, parts, grid)
