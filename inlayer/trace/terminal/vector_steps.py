"""Steps 5 to 8 in the terminal: rows, positions, hidden states and gradients, as numbers and heat strips.

- one line per token if it has one vector; sums are shown term by term for the first tokens
- a batch is shown text by text; padding is shown in index, with mask 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from inlayer.render.glyphs import NUMBER, number
from inlayer.trace.facts import RotaryFacts, RowGradient, TokenTrace, Trace, Vector
from inlayer.trace.terminal.layout import INDENT, Layout, NamedVectors, count, padded

__all__ = ["backward_step", "hidden_step", "positions_step", "rows_step"]

MAX_SUMS = 4  # tokens per text shown term by term
MAX_BATCH_SUMS = 2  # per text of a batch
MAX_ROTATIONS = 6  # tokens whose angles are shown
MAX_GRADIENT_SUMS = 3  # rows whose gradient is shown term by term


def rows_step(layout: Layout) -> Iterator[Text]:
    """Step 5: the gathered rows, and whether a one-hot matrix product gives the same."""
    gather = layout.trace.gather
    yield from _token_table(layout, lambda token: token.row, gather.shape[2])
    if layout.trace.input == "text":
        line = Text(f"{' ' * INDENT}one_hot @ table is ", style="dim")
        line.append("equal" if gather.equal else "not equal", style="bold green" if gather.equal else "bold yellow")
        rows = count(gather.compared_rows, "row")
        over = f"all {rows}" if gather.whole_table else f"the {rows} in use"
        yield line.append(f" to these rows, compared over {over}", style="not bold dim")
        if gather.note:
            yield from layout.note(gather.note)


def positions_step(layout: Layout) -> Iterator[Text]:
    """Step 6: the sum of row and position for each token, or the rotary angles."""
    positions = layout.trace.positions
    if positions.scheme == "rotary":
        for which, rotary in enumerate(positions.rotary):
            yield from _rotary(layout, which, rotary)
        return
    names = [stage.name for stage in layout.trace.stages]
    if "position" not in names:
        return
    stage = names.index("position")
    blocks = []
    for _, text, heading in layout.texts():
        shown = layout.tokens(text)[: MAX_SUMS if len(layout.trace.texts) == 1 else MAX_BATCH_SUMS]
        blocks.append((text, heading, [(token, _added(layout.trace, token, stage)) for token in shown]))
    grid = layout.named_grid([parts for _, _, block in blocks for _, parts in block], layout.trace.shape[2])
    yield layout.grid_heading(grid)
    for text, heading, block in blocks:
        yield from heading
        for index, (token, parts) in enumerate(block):
            yield from layout.named_vectors(index, layout.label(token), parts, grid)
        yield from layout.omitted_tokens(text, len(block))
    yield from layout.omitted_texts()


def hidden_step(layout: Layout) -> Iterator[Text]:
    """Step 7: the other stages, the hidden states, the mask and the padding row."""
    trace = layout.trace
    if any(stage.name != "position" for stage in trace.stages):
        yield from _stages(layout)
    yield from _token_table(layout, lambda token: token.hidden, trace.shape[2])
    if not any(text.n_padding for text in trace.texts):
        return
    yield from _masks(layout)
    padding = trace.padding
    if padding.id is None:
        return
    kind = "the table's padding_idx" if padding.is_padding_idx else "an ordinary token"
    line = f"the padding row is {padding.id:,}, {kind}; its values are {'all zero' if padding.is_zero else 'not zero'}"
    if padding.is_zero and any(any(token.hidden) for text in trace.texts for token in text.tokens if not token.mask):
        line += ", and the values shown here were added by later stages"
    yield from layout.note(line)


def backward_step(layout: Layout) -> Iterator[Text]:
    """Step 8: the gradients of the rows, through the lookup and the tied head, and the padding row."""
    backward = layout.trace.backward
    if backward is None:
        return
    yield Text(f"{' ' * INDENT}loss ", style="dim").append(number(backward.loss), style="not dim bold")
    yield from _gradients(layout, backward.rows[: layout.max_tokens], backward.unmasked_padding_gradient)


# ---- tables


def _token_table(layout: Layout, vector: Callable[[TokenTrace], Vector], channels: int) -> Iterator[Text]:
    """One vector per token, for each text shown."""
    texts = list(layout.texts())
    shown = [[vector(token) for token in layout.tokens(text)] for _, text, _ in texts]
    grid = layout.grid([one for block in shown for one in block], channels)
    yield layout.grid_heading(grid)
    for (_, text, heading), block in zip(texts, shown, strict=True):
        yield from heading
        for index, values in enumerate(block):
            token = text.tokens[index]
            yield layout.vector(layout.head(index, token), values, grid, style="" if token.mask else "dim")
        yield from layout.omitted_tokens(text, len(block))
    yield from layout.omitted_texts()


def _added(trace: Trace, token: TokenTrace, index: int) -> NamedVectors:
    before = token.stages[index - 1].after if index else token.row
    stage = token.stages[index]
    added = [] if stage.added is None else [(f"+ position {token.position}", stage.added)]
    name = f"after {trace.stages[index - 1].name}" if index else "row"
    return [(name, before), *added, ("= sum", stage.after)]


def _rotary(layout: Layout, which: int, rotary: RotaryFacts) -> Iterator[Text]:
    """The rotary frequencies, and the angle, cosine and sine for the first tokens of the longest text."""
    glyphs = layout.glyphs
    kind = "" if rotary.layer_type is None else f"{rotary.layer_type}: "
    scaling = "unscaled" if rotary.scaling is None else f"scaled by {rotary.scaling}"
    factor = "" if rotary.attention_factor == 1 else f", cos and sin {glyphs.times} {number(rotary.attention_factor)}"
    pairs = f"theta {rotary.theta:,.10g}, {count(rotary.n_pairs, 'pair')} of a head's {rotary.head_dim} channels"
    yield from layout.note(f"{kind}{pairs} ({rotary.pairing}), {scaling}{factor}")
    longest = max(layout.trace.texts, key=lambda text: text.n_tokens)
    tokens = [token for token in longest.tokens if token.mask][:MAX_ROTATIONS]
    if not tokens:
        return
    rotations = [token.rotations[which] for token in tokens]
    blocks = [("angle", [rotation.angles for rotation in rotations])]
    if rotary.scaling is not None and rotary.frequencies == rotary.unscaled_frequencies:
        yield from layout.note("the scaling does not change the pairs shown")
    elif rotary.scaling is not None:
        blocks.append(("unscaled", [rotation.unscaled_angles for rotation in rotations]))
    blocks += [("cos", [rotation.cos for rotation in rotations]), ("sin", [rotation.sin for rotation in rotations])]
    head = max(layout.head_width, *(layout.name_width(name) for name, _ in blocks))
    for name, vectors in blocks:
        grid = layout.grid(vectors, rotary.n_pairs, head=head)
        yield layout.grid_heading(grid, name, unit="pair ")
        for token, values in zip(tokens, vectors, strict=True):
            yield layout.vector(layout.head(token.position, token), values, grid)
    yield from layout.omitted_tokens(longest, len(tokens))


def _stages(layout: Layout) -> Iterator[Text]:
    """The stages of the layer, and the first token after each of them."""
    trace = layout.trace
    for stage in trace.stages:
        if stage.note:
            yield from layout.note(f"{stage.name}: {stage.note}", max_lines=2)
    token = next((token for text in trace.texts for token in text.tokens if token.mask), None)
    if token is None:
        return
    parts: list[tuple[str, Vector]] = [("row", token.row)]
    for stage, value in zip(trace.stages, token.stages, strict=True):
        if value.added is not None:
            parts.append((f"+ {stage.name}", value.added))
        else:
            parts.append((stage.name, value.after))
    grid = layout.named_grid([parts], trace.shape[2])
    yield layout.grid_heading(grid)
    yield from layout.named_vectors(0, layout.label(token), parts, grid)


def _masks(layout: Layout) -> Iterator[Text]:
    """The mask of each text, one digit per token."""
    name = len(f"text {len(layout.trace.texts)}")
    for index, text, _ in layout.texts():
        line = padded(Text(f"{' ' * INDENT}text {index + 1}", style="dim"), INDENT + name)
        line.append("  mask")
        available = (layout.columns - INDENT - name - 6 - len(layout.glyphs.more) - 1) // 2
        for token in text.tokens[:available]:
            line.append(f" {token.mask}", style="not dim" if token.mask else "dim")
        if len(text.tokens) < text.n_tokens + text.n_padding or len(text.tokens) > available:
            line.append(f" {layout.glyphs.more}")
        yield line


def _gradients(layout: Layout, rows: Sequence[RowGradient], unmasked: Vector | None) -> Iterator[Text]:
    backward = layout.trace.backward
    assert backward is not None
    labels = [_row_label(layout, row) for row in rows]
    names = max([len("token"), *(cell_len(label.plain) for label in labels)])
    ids = max([2, *(len(str(row.id)) for row in rows)])
    times = max([len("count"), *(len(f"{row.count:,}") for row in rows)])
    head = INDENT + names + ids + times + NUMBER + 6
    channels = layout.trace.table.shape[1]
    grid = layout.grid([row.total for row in rows], channels, head=head)
    title = f"{'token':<{names}}  {'id':>{ids}}  {'count':>{times}}  {'norm':>{NUMBER}}"
    yield layout.grid_heading(grid, title, indent=INDENT)
    for row, label in zip(rows, labels, strict=True):
        line = padded(Text(" " * INDENT).append_text(label), INDENT + names)
        line.append(f"  {row.id:>{ids}}", style="cyan")
        line.append(f"  {row.count:>{times},}", style="bold yellow" if row.count > 1 else "dim")
        line.append(f"  {number(row.norm):>{NUMBER}}")
        yield layout.vector(line, row.total, grid)
    yield from layout.more(backward.n_unique_ids - len(rows), "row")
    sums = [
        (label, [("lookup", row.lookup), ("+ head", row.head), ("= total", row.total)])
        for row, label in zip(rows, labels, strict=True)
        if row.head is not None and not row.is_padding
    ][:MAX_GRADIENT_SUMS]
    if sums:
        grid = layout.named_grid([parts for _, parts in sums], channels)
        yield layout.grid_heading(grid)
        for label, parts in sums:
            yield from layout.named_vectors(None, label, parts, grid)
    if unmasked is not None:
        yield from layout.note("the padding row receives no gradient; without padding_idx it would receive")
        grid = layout.grid([unmasked], channels, head=max(layout.head_width, layout.name_width("padding")))
        yield layout.vector(layout.named("padding"), unmasked, grid)


def _row_label(layout: Layout, row: RowGradient) -> Text:
    """The label of its first occurrence, if that is part of the trace."""
    for text, token in row.occurrences:
        if text < len(layout.trace.texts) and token < len(layout.trace.texts[text].tokens):
            return layout.label(layout.trace.texts[text].tokens[token])
    return Text(layout.glyphs.fold(row.label, layout.widest_label))
