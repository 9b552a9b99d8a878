"""Steps 5 to 8 on the terminal: rows, positions, hidden states and the way back, as numbers and as strips.

- one line a token where there is one vector; what comes about in parts is shown part by part for the first tokens
- a batch is shown step by step, each text a block; padding stands where it is, with mask 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from inlayer.render.glyphs import NUMBER, number
from inlayer.trace.facts import Cell, RowGradient, Trace, Turning, Vector
from inlayer.trace.terminal.page import INDENT, Page, Parts, count, padded

__all__ = ["backward_step", "hidden_step", "positions_step", "rows_step"]

MAX_SUMS = 4  # tokens that are shown in parts, of a text
MAX_SUMS_OF_MANY = 2
MAX_TURNS = 6  # tokens whose angles are shown
MAX_SHARES = 3  # rows whose gradient is shown in parts


def rows_step(page: Page) -> Iterator[Text]:
    """Step 5: the gathered rows, and whether a product with one-hot vectors gives the same."""
    gather = page.trace.gather
    yield from _token_table(page, lambda cell: cell.row, gather.shape[2])
    if page.trace.entered == "text":
        line = Text(f"{' ' * INDENT}one_hot @ table is ", style="dim")
        line.append("equal" if gather.equal else "not equal", style="bold green" if gather.equal else "bold yellow")
        which = (
            f"all {gather.checked_rows:,} rows" if gather.whole else f"the {count(gather.checked_rows, 'row')} in use"
        )
        yield line.append(f" to these, over {which}", style="not bold dim")
        if gather.note:
            yield from page.note(gather.note)


def positions_step(page: Page) -> Iterator[Text]:
    """Step 6: what is added, in three lines a token; or the angles that are prepared; or nothing."""
    positions = page.trace.positions
    if positions.scheme == "rotary":
        for which, turning in enumerate(positions.turnings):
            yield from _turning(page, which, turning)
        return
    names = [stage.name for stage in page.trace.stages]
    if "position" not in names:
        return
    place = names.index("position")
    blocks = [
        (text, heading, [(cell, _added(page.trace, cell, place)) for cell in page.cells(text)[: _most_sums(page)]])
        for _, text, heading in page.texts()
    ]
    grid = page.parts_grid([parts for _, _, block in blocks for _, parts in block], page.trace.shape[2])
    yield page.grid_heading(grid)
    for text, heading, block in blocks:
        yield from heading
        for token, (cell, parts) in enumerate(block):
            yield from page.parts(token, page.label(cell), parts, grid)
        yield from page.tokens_left_out(text, len(block))
    yield from page.texts_left_out()


def hidden_step(page: Page) -> Iterator[Text]:
    """Step 7: the other stages by name, the hidden states, and what padding and mask make of the batch."""
    trace = page.trace
    if any(stage.name != "position" for stage in trace.stages):
        yield from _stages(page)
    yield from _token_table(page, lambda cell: cell.hidden, trace.shape[2])
    if not any(text.n_padding for text in trace.texts):
        return
    yield from _masks(page)
    padding = trace.padding
    if padding.id is None:
        return
    kind = "the table keeps it for padding" if padding.is_row else "a token like others"
    line = f"padding is row {padding.id:,}: {kind}, its values are {'all zero' if padding.zero else 'not zero'}"
    if padding.zero and any(any(cell.hidden) for text in trace.texts for cell in text.cells if not cell.mask):
        line += "; what is there now was added on the way"
    yield from page.note(line)


def backward_step(page: Page) -> Iterator[Text]:
    """Step 8: the rows that receive a gradient, the shares of lookup and head, the padding row."""
    backward = page.trace.backward
    if backward is None:
        return
    yield Text(f"{' ' * INDENT}loss ", style="dim").append(number(backward.value), style="not dim bold")
    yield from _gradients(page, backward.rows[: page.most_tokens], backward.padding_without_guard)


# ---- tables


def _token_table(page: Page, vector: Callable[[Cell], Vector], channels: int, *, name: str = "token") -> Iterator[Text]:
    """One vector a token, for every text that is shown."""
    texts = list(page.texts())
    shown = [[vector(cell) for cell in page.cells(text)] for _, text, _ in texts]
    grid = page.grid([one for block in shown for one in block], channels)
    yield page.grid_heading(grid, name)
    for (_, text, heading), block in zip(texts, shown, strict=True):
        yield from heading
        for place, values in enumerate(block):
            cell = text.cells[place]
            yield page.vector(page.head(place, cell), values, grid, style="" if cell.mask else "dim")
        yield from page.tokens_left_out(text, len(block))
    yield from page.texts_left_out()


def _added(trace: Trace, cell: Cell, place: int) -> Parts:
    before = cell.stages[place - 1].after if place else cell.row
    stage = cell.stages[place]
    added = [] if stage.added is None else [(f"+ position {cell.position}", stage.added)]
    name = f"after {trace.stages[place - 1].name}" if place else "row"
    return [(name, before), *added, ("= after", stage.after)]


def _turning(page: Page, which: int, turning: Turning) -> Iterator[Text]:
    """How fast the pairs turn, and for the first tokens of the longest text: angle, cosine, sine."""
    signs = page.signs
    kind = "" if turning.layer_type is None else f"{turning.layer_type}: "
    scaling = "unscaled" if turning.scaling is None else f"scaled by {turning.scaling}"
    factor = "" if turning.factor == 1 else f", cos and sin {signs.times} {number(turning.factor)}"
    said = f"theta {turning.theta:,.10g}, {count(turning.pairs, 'pair')} of a head's {turning.head_dim} channels"
    yield from page.note(f"{kind}{said} ({turning.pairing}), {scaling}{factor}")
    longest = max(page.trace.texts, key=lambda text: text.n_tokens)
    cells = [cell for cell in longest.cells if cell.mask][:MAX_TURNS]
    if not cells:
        return
    turns = [cell.turns[which] for cell in cells]
    blocks = [("angle", [turn.angles for turn in turns])]
    if turning.scaling is not None and turning.frequencies == turning.plain_frequencies:
        yield from page.note("the scaling leaves these pairs as they are")
    elif turning.scaling is not None:
        blocks.append(("unscaled", [turn.plain_angles for turn in turns]))
    blocks += [("cos", [turn.cos for turn in turns]), ("sin", [turn.sin for turn in turns])]
    head = max(page.head_width, *(page.name_width(name) for name, _ in blocks))
    for name, vectors in blocks:
        grid = page.grid(vectors, turning.pairs, head=head)
        yield page.grid_heading(grid, name, thing="pair ")
        for cell, values in zip(cells, vectors, strict=True):
            yield page.vector(page.head(cell.position, cell), values, grid)
    yield from page.tokens_left_out(longest, len(cells))


def _stages(page: Page) -> Iterator[Text]:
    """What the layer does to a row, by name; and the first token on its way."""
    trace = page.trace
    for stage in trace.stages:
        if stage.note:
            yield from page.note(f"{stage.name}: {stage.note}", most=2)
    cell = next((cell for text in trace.texts for cell in text.cells if cell.mask), None)
    if cell is None:
        return
    parts: list[tuple[str, Vector]] = [("row", cell.row)]
    for stage, value in zip(trace.stages, cell.stages, strict=True):
        if value.added is not None:
            parts.append((f"+ {stage.name}", value.added))
        else:
            parts.append((stage.name, value.after))
    grid = page.parts_grid([parts], trace.shape[2])
    yield page.grid_heading(grid)
    yield from page.parts(0, page.label(cell), parts, grid)


def _masks(page: Page) -> Iterator[Text]:
    """The mask of every text, one digit a token."""
    name = len(f"text {len(page.trace.texts)}")
    for place, text, _ in page.texts():
        line = padded(Text(f"{' ' * INDENT}text {place + 1}", style="dim"), INDENT + name)
        line.append("  mask")
        room = (page.columns - INDENT - name - 6 - len(page.signs.more) - 1) // 2
        for cell in text.cells[:room]:
            line.append(f" {cell.mask}", style="not dim" if cell.mask else "dim")
        if len(text.cells) < text.n_tokens + text.n_padding or len(text.cells) > room:
            line.append(f" {page.signs.more}")
        yield line


def _gradients(page: Page, rows: Sequence[RowGradient], unguarded: Vector | None) -> Iterator[Text]:
    backward = page.trace.backward
    assert backward is not None
    labels = [_row_label(page, row) for row in rows]
    names = max([len("token"), *(cell_len(label.plain) for label in labels)])
    ids = max([2, *(len(str(row.id)) for row in rows)])
    times = max([len("uses"), *(len(f"{row.count:,}") for row in rows)])
    head = INDENT + names + ids + times + NUMBER + 6
    channels = page.trace.table.shape[1]
    grid = page.grid([row.total for row in rows], channels, head=head)
    title = f"{'token':<{names}}  {'id':>{ids}}  {'uses':>{times}}  {'norm':>{NUMBER}}"
    yield page.grid_heading(grid, title, indent=INDENT)
    for row, label in zip(rows, labels, strict=True):
        line = padded(Text(" " * INDENT).append_text(label), INDENT + names)
        line.append(f"  {row.id:>{ids}}", style="cyan")
        line.append(f"  {row.count:>{times},}", style="bold yellow" if row.count > 1 else "dim")
        line.append(f"  {number(row.norm):>{NUMBER}}")
        yield page.vector(line, row.total, grid)
    yield from page.more(backward.n_rows - len(rows), "row")
    shares = [
        (label, [("lookup", row.lookup), ("+ head", row.head), ("= total", row.total)])
        for row, label in zip(rows, labels, strict=True)
        if row.head is not None and not row.is_padding
    ][:MAX_SHARES]
    if shares:
        grid = page.parts_grid([parts for _, parts in shares], channels)
        yield page.grid_heading(grid)
        for label, parts in shares:
            yield from page.parts(None, label, parts, grid)
    if unguarded is not None:
        yield from page.note("the padding row stays untouched; without its guard it would have received")
        grid = page.grid([unguarded], channels, head=max(page.head_width, page.name_width("padding")))
        yield page.vector(page.named("padding"), unguarded, grid)


def _row_label(page: Page, row: RowGradient) -> Text:
    """As its first token is shown; by its name where that is not on the page."""
    for text, token in row.places:
        if text < len(page.trace.texts) and token < len(page.trace.texts[text].cells):
            return page.label(page.trace.texts[text].cells[token])
    return Text(page.signs.fold(row.label, page.widest_label))


def _most_sums(page: Page) -> int:
    return MAX_SUMS if len(page.trace.texts) == 1 else MAX_SUMS_OF_MANY
