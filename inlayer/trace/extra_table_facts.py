"""Other tables in a walk: per-layer embeddings (Gemma), value embeddings (NeoMME) and the experts of each token.

text -> ids -> [rows of the second table] -> vectors of each block
- the vectors come from `Embeddings.per_layer` and `.value_embeddings`. For per-layer vectors, the terminal shows norms,
  and the page shows heat strips
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_per_layer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from rich.text import Text
from torch import Tensor

from inlayer.checkpoint.store import INTEGERS, Store
from inlayer.formats.row_reader import FileRows
from inlayer.formats.tensor_info import TensorInfo
from inlayer.render.numbers import pluralize
from inlayer.tables import RowSource, StoredEmbedding, Table
from inlayer.trace.family_facts import PerLayerFacts, RoutingFacts, ValueFacts
from inlayer.trace.layout import Layout

if TYPE_CHECKING:
    from inlayer.trace.facts import TokenTrace
    from inlayer.trace.forward import Forward


def per_layer_facts(result: Forward) -> PerLayerFacts | None:
    """Return the second table and what the shown tokens read; None for a model without one, or a walk without ids."""
    extra = result.pipeline.layer.per_layer_embedding
    if extra is None or result.ids_BT is None:
        return None
    ids = _shown_ids(result)
    with torch.no_grad():
        vectors = result.pipeline.layer.per_layer(ids).float()
    tensor, row_bytes, offsets = _stored(extra.table, ids)
    rows = 0 if extra.table is None else extra.table.num_embeddings
    return PerLayerFacts(
        tensor=tensor, rows=rows, layers=extra.n_layers, width=extra.width, offsets=offsets,
        row_bytes=row_bytes, norms=vectors.norm(dim=-1).tolist(),
        vectors=vectors[..., : result.recorded.dims].tolist(),
    )  # fmt: skip


def value_facts(result: Forward) -> ValueFacts | None:
    """Value embeddings of the shown tokens; None for a model without them, or a walk without ids."""
    layer = result.pipeline.layer
    if layer.value_embedding is None or result.ids_BT is None:
        return None
    ids = _shown_ids(result)
    tensor, row_bytes, offsets = _stored(layer.value_embedding, ids)
    with torch.no_grad():
        vectors = layer.value_embeddings(ids).float()
    return ValueFacts(
        tensor=tensor, rows=layer.value_embedding.num_embeddings, width=layer.value_embedding.embedding_dim,
        layers=list(layer.value_layers), row_bytes=row_bytes, offsets=offsets,
        vectors=vectors[..., result.recorded.channels].tolist(),
    )  # fmt: skip


def routing_facts(result: Forward) -> list[RoutingFacts]:
    """Return the experts of the shown tokens in every block with a routing table; empty for a walk without ids."""
    model = result.pipeline.model
    return (
        []
        if model is None or result.ids_BT is None
        else [_experts(model.store, tensor, _shown_ids(result)) for tensor in result.pipeline.routing_tables]
    )


def _experts(store: Store, tensor: TensorInfo, ids: Tensor) -> RoutingFacts:
    source, (rows, experts) = store.open_rows(tensor), tensor.shape
    values = source.take(ids.flatten().numpy()).view(INTEGERS[tensor.dtype]).reshape(*ids.shape, experts).tolist()
    return RoutingFacts(
        tensor=tensor.name, rows=rows, row_bytes=source.row_bytes, offsets=_offsets(source, ids), experts=values
    )


def _shown_ids(result: Forward) -> Tensor:
    assert result.ids_BT is not None
    return result.ids_BT[:, result.recorded.first_token :][:, : result.count]


def _stored(table: Table | StoredEmbedding | None, ids: Tensor) -> tuple[str, int | None, list[list[int]] | None]:
    """Return the name of a stored table, the size of a row, and the first byte of each row in its file."""
    if not isinstance(table, StoredEmbedding):
        return "", None, None
    source = table.table.source
    return table.table.name, source.row_bytes, _offsets(source, ids)


def _offsets(source: RowSource, ids: Tensor) -> list[list[int]] | None:
    if not isinstance(source, FileRows):
        return None
    offsets: list[list[int]] = (source.offset + ids.clamp(0, source.rows - 1) * source.row_bytes).tolist()
    return offsets


def per_layer_lines(layout: Layout, facts: PerLayerFacts) -> Iterator[Text]:
    """Yield the second table, and one line per token: the byte of its row, and the norm of each block's vector."""
    times = layout.glyphs.times
    yield Text()
    if facts.rows:
        yield from layout.note(f"per-layer table: {facts.tensor or 'in memory'}", style="bold")
        size = f"{facts.rows:,} {times} {facts.layers * facts.width:,}: "
    else:
        yield from layout.note("per-layer embeddings: projections of the token's own row", style="bold")
        size = ""
    size += f"{facts.layers} blocks of {facts.width} channels"
    read = "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"
    yield from layout.note(f"{size}{read}; norms of the blocks' vectors")

    def lines(text_index: int, index: int, token: TokenTrace) -> Iterator[Text]:
        line = layout.head(index, token)
        if facts.offsets is not None:
            line.append(f"  byte {facts.offsets[text_index][index]:,}", style="cyan")
        norms = "".join(f" {norm:.3g}" for norm in facts.norms[text_index][index])
        available = max(1, layout.columns - len(line.plain) - 1)
        if len(norms) > available:
            norms = norms[: available - len(layout.glyphs.more)] + layout.glyphs.more
        yield line.append(f" {norms}", style="dim")

    yield from layout.each_token(lines)


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

    def lines(text_index: int, index: int, token: TokenTrace) -> Iterator[Text]:
        yield layout.vector(layout.head(index, token), facts.vectors[text_index][index], grid)

    yield from layout.each_token(lines)


def routing_lines(layout: Layout, tables: list[RoutingFacts]) -> Iterator[Text]:
    """Yield the routing tables, and one line per token: its experts in each block."""
    first, *others = tables
    yield Text()
    more = f" and {pluralize(len(others), 'more table')}" if others else ""
    yield from layout.note(f"routing: {first.tensor}{more}", style="bold")
    experts = pluralize(len(first.experts[0][0]) if first.experts[0] else 0, "expert")
    read = f"a token reads {first.row_bytes:,} bytes of each" if others else f"a token reads {first.row_bytes:,} bytes"
    yield from layout.note(f"{first.rows:,} rows of {experts}; {read}; the experts of each token, by block")

    def lines(text_index: int, index: int, token: TokenTrace) -> Iterator[Text]:
        groups = (" ".join(map(str, table.experts[text_index][index])) for table in tables)
        line = layout.head(index, token).append("  " + f" {layout.glyphs.bar} ".join(groups))
        line.truncate(layout.columns, overflow="ellipsis")
        yield line

    yield from layout.each_token(lines)
