"""N-gram memories on the terminal: the rows that the n-grams of each token read, and the n-grams that share rows.

trace -> [terminal] -> console
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_ngrams.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from inlayer.render.numbers import count
from inlayer.trace.facts import TokenTrace
from inlayer.trace.family_facts import NgramFacts, SharedNgrams
from inlayer.trace.layout import Layout

MAX_SHARED = 6  # groups of n-grams with the same rows


def memory_lines(layout: Layout, memory: NgramFacts) -> Iterator[Text]:
    """One n-gram memory: where it is, one line per token and order, and what shares rows."""
    glyphs = layout.glyphs
    where = "added to the rows" if memory.layer is None else f"read by layer {memory.layer}"
    parts = "" if memory.n_tensors == 1 else f" and {count(memory.n_tensors - 1, 'more tensor')}"
    yield Text()
    yield from layout.note(f"n-gram memory, {where}: {memory.tensor}{parts}", style="bold")
    size = f"{memory.rows:,} {glyphs.times} {memory.width:,} {memory.dtype}"
    read = f"{count(memory.rows_read, 'row')} read, {count(memory.bytes_read, 'byte')}"
    yield from layout.note(f"{size}, {memory.heads} hash heads; {read}")
    shown = [read for text in memory.reads for token in text for read in token]
    rows = max([len("row"), *(len(f"{read.rows[0]:,}") for read in shown)])
    offsets = max([len("byte"), *(len(f"{read.offsets[0]:,}") for read in shown)])
    heading = f"  n  {'row':>{rows}}  {'byte':>{offsets}}  heads  n-gram"
    yield Text(" " * layout.head_width + heading, style="dim")

    def lines(text_index: int, index: int, token: TokenTrace) -> Iterator[Text]:
        for order, read in enumerate(memory.reads[text_index][index]):
            line = layout.head(index, token) if order == 0 else Text(" " * layout.head_width)
            line.append(f"  {read.order}", style="dim").append(f"  {read.rows[0]:>{rows},}", style="cyan")
            line.append(f"  {read.offsets[0]:>{offsets},}").append(f"  {len(read.rows):>5}", style="dim")
            available = layout.columns - len(line.plain) - 2
            yield line.append(f"  {layout.glyphs.fold(read.text, max(1, available))}", style="dim")

    yield from layout.each_token(lines)
    for group in memory.shared[:MAX_SHARED]:
        yield from layout.note(_sharing(layout, group), max_lines=2)
    yield from layout.more(len(memory.shared) - MAX_SHARED, "group")


def _sharing(layout: Layout, group: SharedNgrams) -> str:
    first, several = layout.trace.first_token, layout.is_batch
    places = ", ".join(f"{t + first} of text {b + 1}" if several else str(t + first) for b, t in group.occurrences)
    names = " and ".join(repr(layout.glyphs.fold(text, layout.widest_label)) for text in group.texts[:3])
    shares_all = group.shared_heads == group.order_heads
    heads = "all" if shares_all else f"{group.shared_heads} of {group.order_heads}"
    heads += " hash heads" if shares_all else " hash heads, by collision"
    return f"the same rows for {names} at tokens {places} (n = {group.order}, {heads})"
