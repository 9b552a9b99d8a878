"""Other tables in a walk: per-layer embeddings (Gemma), value embeddings (NeoMME) and the experts of each token.

text -> ids -> [rows of the second table] -> vectors of each block
- the vectors come from `Embeddings.per_layer` and `.value_embeddings`. For per-layer vectors, the terminal shows norms,
  and the page shows heat strips
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_per_layer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text
from torch import Tensor

from inlayer.checkpoint.store import INTEGERS
from inlayer.formats.row_reader import FileRows
from inlayer.render.numbers import count
from inlayer.tables import RowSource, StoredEmbedding, Table
from inlayer.trace.family_facts import PerLayerFacts, RoutingFacts, ValueFacts
from inlayer.trace.layout import Layout

if TYPE_CHECKING:
    from inlayer.trace.facts import TokenTrace
    from inlayer.trace.forward import Forward


def per_layer_facts(result: Forward) -> PerLayerFacts | None:
    """Return the second table and what the shown tokens read; None for a model without one, or a walk without ids."""
    layer, ids = result.pipeline.layer, result.ids_BT
    extra = layer.per_layer_embedding
    if extra is None or ids is None:
        return None
    vectors = layer.per_layer(ids).float()
    return PerLayerFacts(
        rows=0 if extra.table is None else extra.table.num_embeddings, layers=extra.layers, width=extra.width,
        norms=vectors.norm(dim=-1).tolist(), vectors=vectors[..., : result.recorded.dims].tolist(),
        **_stored(extra.table, ids),
    )  # fmt: skip


def value_facts(result: Forward) -> ValueFacts | None:
    """Value embeddings of the shown tokens; None for a model without them, or a walk without ids."""
    layer, ids = result.pipeline.layer, result.ids_BT
    table = layer.value_embedding
    if table is None or ids is None:
        return None
    vectors = layer.value_embeddings(ids).float()[..., result.recorded.channels]
    return ValueFacts(
        rows=table.num_embeddings, width=table.embedding_dim, layers=list(layer.value_layers),
        vectors=vectors.tolist(), **_stored(table, ids),
    )  # fmt: skip


def routing_facts(result: Forward) -> list[RoutingFacts]:
    """Return the experts of the shown tokens in every block with a routing table; empty for a walk without ids."""
    model, ids, facts = result.pipeline.model, result.ids_BT, list[RoutingFacts]()
    if model is None or ids is None:
        return facts
    for tensor in result.pipeline.routing_tables:
        source = model.store.open_rows(tensor)
        values = source.take(ids.flatten().numpy()).view(INTEGERS[tensor.dtype])
        experts = values.reshape(*ids.shape, tensor.shape[1]).tolist()
        facts.append(RoutingFacts(rows=tensor.shape[0], experts=experts, **_place(tensor.name, source, ids)))
    return facts


def _stored(table: Table | StoredEmbedding | None, ids: Tensor) -> dict[str, Any]:
    if not isinstance(table, StoredEmbedding):
        return {"tensor": "", "row_bytes": None, "offsets": None}
    return _place(table.table.name, table.table.source, ids)


def _place(name: str, source: RowSource, ids: Tensor) -> dict[str, Any]:
    """Return the name of a stored table, the size of a row and, in a local file, the first byte of each row."""
    offsets = None
    if isinstance(source, FileRows):
        offsets = (source.offset + ids.clamp(0, source.rows - 1) * source.row_bytes).tolist()
    return {"tensor": name, "row_bytes": source.row_bytes, "offsets": offsets}


def per_layer_lines(layout: Layout, facts: PerLayerFacts) -> Iterator[Text]:
    """Yield the second table, and one line per token: the byte of its row, and the norm of each block's vector."""
    title, size = "per-layer embeddings: projections of the token's own row", ""
    if facts.rows:
        title = f"per-layer table: {facts.tensor or 'in memory'}"
        size = f"{facts.rows:,} {layout.glyphs.times} {facts.layers * facts.width:,}: "
    blocks = f"{facts.layers} blocks of {facts.width} channels"
    yield from layout.table_title(title, f"{size}{blocks}{_reads(facts)}; norms of the blocks' vectors")

    def lines(b: int, t: int, token: TokenTrace) -> Iterator[Text]:
        place = "" if facts.offsets is None else f"  byte {facts.offsets[b][t]:,}"
        norms = " ".join(f"{norm:.3g}" for norm in facts.norms[b][t])
        yield layout.head(t, token).append(place, style="cyan").append(f"  {norms}", style="dim")

    yield from layout.each_token(lines)


def value_lines(layout: Layout, facts: ValueFacts) -> Iterator[Text]:
    """Yield the table of value embeddings, and one line per token: the byte of its row, and its first channels."""
    blocks = f"attention of blocks {' and '.join(map(str, facts.layers))} adds them to its values"
    size = f"{facts.rows:,} {layout.glyphs.times} {facts.width:,}"
    title = f"value embeddings: {facts.tensor or 'in memory'}"
    yield from layout.table_title(title, f"{size}{_reads(facts)}; {blocks}")
    grid = layout.grid([vector for text in facts.vectors for vector in text], facts.width)
    yield layout.grid_heading(grid)
    yield from layout.each_token(lambda b, t, token: [layout.vector(layout.head(t, token), facts.vectors[b][t], grid)])


def _reads(facts: PerLayerFacts | ValueFacts) -> str:
    return "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"


def routing_lines(layout: Layout, tables: list[RoutingFacts]) -> Iterator[Text]:
    """Yield the routing tables, and one line per token: its experts in each block."""
    first, *others = tables
    more, of_each = (f" and {count(len(others), 'more table')}", " of each") if others else ("", "")
    experts = count(len(first.experts[0][0]) if first.experts[0] else 0, "expert")
    read = f"a token reads {first.row_bytes:,} bytes{of_each}"
    about = f"{first.rows:,} rows of {experts}; {read}; the experts of each token, by block"
    yield from layout.table_title(f"routing: {first.tensor}{more}", about)
    bar = f" {layout.glyphs.bar} "

    def experts_of(b: int, t: int) -> str:
        return bar.join(" ".join(map(str, table.experts[b][t])) for table in tables)

    yield from layout.each_token(lambda b, t, token: [layout.head(t, token).append(f"  {experts_of(b, t)}")])
