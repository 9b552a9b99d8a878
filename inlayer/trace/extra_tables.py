"""Second tables in a walk: per-layer embeddings (Gemma) and value embeddings (NeoMME), with the bytes of their rows.

text -> ids -> [rows of the second table] -> vectors of each block
- the vectors are those of `Embeddings.per_layer` and `.value`; the terminal shows norms of the former, the page shows
  heat strips
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_per_layer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from rich.text import Text
from torch import Tensor

from inlayer.formats.row_reader import FileRows
from inlayer.tables import StoredEmbedding, Table
from inlayer.trace.family_facts import PerLayerFacts, ValueFacts
from inlayer.trace.layout import Layout

if TYPE_CHECKING:
    from inlayer.trace.facts import TextTrace
    from inlayer.trace.forward import Forward


def per_layer_facts(result: Forward) -> PerLayerFacts | None:
    """Return the second table and what the shown tokens read; None for a model without one, or a walk without ids."""
    extra = result.pipeline.layer.per_layer_embedding
    if extra is None or extra.table is None or result.ids_BT is None:
        return None
    ids = result.ids_BT[:, result.window.first_token :][:, : result.count]
    with torch.no_grad():
        vectors = result.pipeline.layer.per_layer(ids).float()
    tensor, row_bytes, offsets = _stored(extra.table, ids)
    return PerLayerFacts(
        tensor=tensor, rows=extra.table.num_embeddings, layers=extra.layers, width=extra.width, offsets=offsets,
        row_bytes=row_bytes, norms=vectors.norm(dim=-1).tolist(),
        vectors=vectors[..., : result.window.dims].tolist(),
    )  # fmt: skip


def value_facts(result: Forward) -> ValueFacts | None:
    """Value embeddings of the shown tokens; None for a model without them, or a walk without ids."""
    layer = result.pipeline.layer
    if layer.value_embedding is None or result.ids_BT is None:
        return None
    ids = result.ids_BT[:, result.window.first_token :][:, : result.count]
    tensor, row_bytes, offsets = _stored(layer.value_embedding, ids)
    with torch.no_grad():
        vectors = layer.value_embeddings(ids).float()
    return ValueFacts(
        tensor=tensor, rows=layer.value_embedding.num_embeddings, width=layer.value_embedding.embedding_dim,
        layers=list(layer.value_layers), row_bytes=row_bytes, offsets=offsets,
        vectors=vectors[..., result.window.channels].tolist(),
    )  # fmt: skip


def _stored(table: Table | StoredEmbedding, ids: Tensor) -> tuple[str, int | None, list[list[int]] | None]:
    """Return the name of a stored table, the size of a row, and the first byte of each row in its file."""
    if not isinstance(table, StoredEmbedding):
        return "", None, None
    source, offsets = table.table.source, None
    if isinstance(source, FileRows):
        offsets = (source.offset + ids.clamp(0, source.rows - 1) * source.row_bytes).tolist()
    return table.table.name, source.row_bytes, offsets


def per_layer_lines(layout: Layout, facts: PerLayerFacts) -> Iterator[Text]:
    """Yield the second table, and one line per token: the byte of its row, and the norm of each block's vector."""
    times = layout.glyphs.times
    yield Text()
    yield from layout.note(f"per-layer table: {facts.tensor or 'in memory'}", style="bold")
    size = f"{facts.rows:,} {times} {facts.layers * facts.width:,}: {facts.layers} blocks of {facts.width} channels"
    read = "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"
    yield from layout.note(f"{size}{read}; norms of the blocks' vectors")

    def token_line(line: Text, text_index: int, index: int) -> Text:
        if facts.offsets is not None:
            line.append(f"  byte {facts.offsets[text_index][index]:,}", style="cyan")
        norms = "".join(f" {norm:.3g}" for norm in facts.norms[text_index][index])
        available = max(1, layout.columns - len(line.plain) - 1)
        if len(norms) > available:
            norms = norms[: available - len(layout.glyphs.more)] + layout.glyphs.more
        return line.append(f" {norms}", style="dim")

    yield from _each_token(layout, token_line)


def value_lines(layout: Layout, facts: ValueFacts) -> Iterator[Text]:
    """Yield the table of value embeddings, and one line per token: the byte of its row, and its first channels."""
    yield Text()
    yield from layout.note(f"value embeddings: {facts.tensor or 'in memory'}", style="bold")
    read = "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"
    blocks = " and ".join(map(str, facts.layers))
    size = f"{facts.rows:,} {layout.glyphs.times} {facts.width:,}"
    yield from layout.note(f"{size}{read}; attention of blocks {blocks} adds them to its values")
    grid = layout.grid([vector for text in facts.vectors for vector in text], facts.width)
    yield layout.grid_heading(grid)
    yield from _each_token(
        layout, lambda line, text_index, index: layout.vector(line, facts.vectors[text_index][index], grid)
    )


def _each_token(layout: Layout, token_line: Callable[[Text, int, int], Text]) -> Iterator[Text]:
    """The lines of all texts; `token_line` completes that of a token, given the index of its text and its own index."""
    text_indices = iter(range(len(layout.trace.texts)))

    def text_lines(text: TextTrace) -> Iterator[Text]:
        text_index, tokens = next(text_indices), layout.tokens(text)
        for index, token in enumerate(tokens):
            yield token_line(layout.head(index, token), text_index, index)
        yield from layout.omitted_tokens(text, len(tokens))

    yield from layout.each_text(text_lines)
