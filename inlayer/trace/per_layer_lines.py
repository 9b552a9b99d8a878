"""Per-layer embeddings in a walk: the row of the second table that each token reads, and the vector of every block.

text -> ids -> [rows of the second table] -> vectors of each block
- the vectors are those of `Embeddings.per_layer`; their norms are shown, one per block
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_per_layer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from rich.text import Text

from inlayer.formats.row_file import FileRows
from inlayer.tables import StoredEmbedding
from inlayer.trace.layout import Layout
from inlayer.trace.ngram_facts import PerLayerFacts

if TYPE_CHECKING:
    from inlayer.trace.forward import Forward


def per_layer_facts(result: Forward) -> PerLayerFacts | None:
    """The second table and what the shown tokens read; None for a model without one, or a walk without ids."""
    extra = result.pipeline.layer.per_layer_embedding
    if extra is None or result.ids_BT is None:
        return None
    ids = result.ids_BT[:, result.window.first_token :][:, : result.count]
    with torch.no_grad():
        norms = result.pipeline.layer.per_layer(ids).float().norm(dim=-1)
    stored = extra.table.table if isinstance(extra.table, StoredEmbedding) else None
    source = None if stored is None else stored.source
    offsets = None
    if isinstance(source, FileRows):
        inside = ids.clamp(0, source.rows - 1)
        offsets = (source.offset + inside * source.row_bytes).tolist()
    return PerLayerFacts(
        tensor="" if stored is None else stored.name, rows=extra.table.num_embeddings, layers=extra.layers,
        width=extra.width, offsets=offsets, row_bytes=None if source is None else source.row_bytes,
        norms=norms.double().tolist(),
    )  # fmt: skip


def per_layer_lines(layout: Layout, facts: PerLayerFacts) -> Iterator[Text]:
    """The second table, and one line per token: the byte of its row, and the norm of each block's vector."""
    times = layout.glyphs.times
    yield Text()
    yield from layout.note(f"per-layer table: {facts.tensor or 'in memory'}", style="bold")
    size = f"{facts.rows:,} {times} {facts.layers * facts.width:,}: {facts.layers} blocks of {facts.width} channels"
    read = "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"
    yield from layout.note(f"{size}{read}; norms of the blocks' vectors")
    texts = iter(range(len(layout.trace.texts)))

    def text_lines(number: int) -> Iterator[Text]:
        text = layout.trace.texts[number]
        tokens = layout.tokens(text)
        for index, token in enumerate(tokens):
            line = layout.head(index, token)
            if facts.offsets is not None:
                line.append(f"  byte {facts.offsets[number][index]:,}", style="cyan")
            norms = "".join(f" {norm:.3g}" for norm in facts.norms[number][index])
            available = max(1, layout.columns - len(line.plain) - 1)
            if len(norms) > available:
                norms = norms[: available - len(layout.glyphs.more)] + layout.glyphs.more
            yield line.append(f" {norms}", style="dim")
        yield from layout.omitted_tokens(text, len(tokens))

    yield from layout.each_text(lambda _text: text_lines(next(texts)))
