"""N-gram memories in a walk: which n-gram of the text reads which row, and which n-grams share rows.

text -> ids -> [rows of n-gram memories] -> hidden states
- row indices come from `Embeddings.ngram_ids`; the text of an n-gram ends where its look-back ends
- only rows of the recorded range are shown, but n-grams reach back to the tokens before it
Part of step 4 of trace/terminal.py. Tested against the library in tests/trace/test_ngrams.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from inlayer.render.numbers import pluralize
from inlayer.tables.ngram_hash import NgramMemory, NgramSpec
from inlayer.tokenizers.base import text_of_bytes
from inlayer.trace.family_facts import NgramFacts, NgramRead, SharedNgrams, TokenIndex
from inlayer.trace.layout import Layout

if TYPE_CHECKING:
    from inlayer.trace.facts import TokenTrace
    from inlayer.trace.forward import Forward

MAX_SHARED = 6  # groups of n-grams with the same rows

Reads = list[list[list[NgramRead]]]


def ngram_facts(result: Forward) -> list[NgramFacts]:
    """Return the facts of every n-gram memory of a walk that started from a text."""
    if result.ids_BT is None:
        return []
    return [_facts(result, memory) for memory in result.pipeline.layer.ngram_memories]


def _facts(result: Forward, memory: NgramMemory) -> NgramFacts:
    spec = memory.spec
    assert result.ids_BT is not None
    first = result.recorded.first_token
    end = first + result.count
    ids, mask = result.ids_BT[:, :end].numpy(), result.whole_mask_BT[:, :end].long().numpy()
    rows = memory.row_ids(ids[:, first:], ids[:, :first], mask)
    heads = {
        order: [head for head, head_order in enumerate(spec.orders) if head_order == order]
        for order in sorted(set(spec.orders))
    }

    def read(b: int, t: int, order: int) -> NgramRead:
        chosen = rows[b, t, heads[order]].tolist()
        text = _text(result, spec, b, t + first, order)
        return NgramRead(order=order, text=text, rows=chosen, offsets=[memory.locate(row)[1] for row in chosen])

    reads = [[[read(b, t, order) for order in heads] for t in range(result.count)] for b in range(len(rows))]
    different = len(np.unique(rows))
    tensor = memory.tensors[0]
    return NgramFacts(
        layer=spec.layer, tensor=tensor.name, n_tensors=len(memory.tensors), file=tensor.file, dtype=tensor.dtype,
        rows=spec.rows, width=spec.width, heads=spec.n_hash_heads,
        normalized=spec.compressed_vocab_size is not None, rows_read=different,
        bytes_read=different * memory.table.source.row_bytes, reads=reads,
        shared=_shared(reads, result.mask_BT.tolist())[: result.recorded.tokens],
    )  # fmt: skip


def _text(result: Forward, spec: NgramSpec, b: int, index: int, order: int) -> str:
    """Return the tokens that an n-gram hashes, oldest first."""
    tokens, start = result.tokens[b], index
    if index >= len(tokens):
        return "<pad>"
    while start > max(0, index - order + 1) and tokens[start - 1].id not in spec.stop_ids:
        start -= 1
    parts = ((token.bytes, token.id) for token in tokens[start : index + 1])
    return "".join(text_of_bytes(data) if data else result.pipeline.spelling(token_id) for data, token_id in parts)


def _shared(reads: Reads, mask: list[list[int]]) -> list[SharedNgrams]:
    """Return tokens whose n-grams share all rows of an order, then tokens that share the row of one hash head."""
    whole: dict[tuple[int, tuple[int, ...]], list[TokenIndex]] = defaultdict(list)
    single: dict[tuple[int, int, int], list[TokenIndex]] = defaultdict(list)
    for b, text in enumerate(reads):
        for t, token in enumerate(text):
            for order_index, read in enumerate(token if mask[b][t] else []):
                whole[order_index, tuple(read.rows)].append((b, t))
                for head, row in enumerate(read.rows):
                    single[order_index, head, row].append((b, t))
    groups = [(order_index, tokens, len(rows)) for (order_index, rows), tokens in whole.items() if len(tokens) > 1]
    for (order_index, _, _), tokens in single.items():
        if len({tuple(reads[b][t][order_index].rows) for b, t in tokens}) > 1:  # a collision of different n-grams
            groups.append((order_index, tokens, 1))
    shared = []
    for order_index, tokens, shared_heads in groups:
        chosen = [reads[b][t][order_index] for b, t in tokens]
        texts = list(dict.fromkeys(read.text for read in chosen))
        order, order_heads = chosen[0].order, len(chosen[0].rows)
        shared.append(
            SharedNgrams(
                order=order, texts=texts, occurrences=tokens, shared_heads=shared_heads, order_heads=order_heads
            )
        )
    return shared


def memory_lines(layout: Layout, memory: NgramFacts) -> Iterator[Text]:
    """Yield the lines of an n-gram memory: where it is, one line per token and order, and what shares rows."""
    glyphs = layout.glyphs
    where = "added to the rows" if memory.layer is None else f"read by layer {memory.layer}"
    parts = "" if memory.n_tensors == 1 else f" and {pluralize(memory.n_tensors - 1, 'more tensor')}"
    yield Text()
    yield from layout.note(f"n-gram memory, {where}: {memory.tensor}{parts}", style="bold")
    size = f"{memory.rows:,} {glyphs.times} {memory.width:,} {memory.dtype}"
    done = "read" if memory.layer is None else "located"  # a walk ends before the layers
    rows_used = f"{pluralize(memory.rows_read, 'row')} {done}, {pluralize(memory.bytes_read, 'byte')}"
    yield from layout.note(f"{size}, {memory.heads} hash heads; {rows_used}")
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
            yield line.append(f"  {layout.glyphs.truncate(read.text, max(1, available))}", style="dim")

    yield from layout.each_token(lines)
    for group in memory.shared[:MAX_SHARED]:
        yield from layout.note(_sharing(layout, group), max_lines=2)
    yield from layout.more(len(memory.shared) - MAX_SHARED, "group")


def _sharing(layout: Layout, group: SharedNgrams) -> str:
    first, several = layout.trace.first_token, layout.is_batch
    places = ", ".join(f"{t + first} of text {b + 1}" if several else str(t + first) for b, t in group.occurrences)
    names = " and ".join(repr(layout.glyphs.truncate(text, layout.widest_label)) for text in group.texts[:3])
    shares_all = group.shared_heads == group.order_heads
    heads = "all" if shares_all else f"{group.shared_heads} of {group.order_heads}"
    heads += " hash heads" if shares_all else " hash heads, by collision"
    return f"the same rows for {names} at tokens {places} (n = {group.order}, {heads})"
