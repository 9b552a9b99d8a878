"""Other tables in a walk: n-gram memories, per-layer and value embeddings, and the experts of each token.

text -> ids -> [rows of other tables] -> hidden states, vectors of each block
- n-gram memories: the rows that each n-gram of the text reads, and n-grams that share rows. An n-gram's text ends where
  its look-back ends. Only the recorded range is shown, but n-grams reach back to the tokens before it
- per-layer embeddings (Gemma): the terminal shows norms, and the page shows heat strips
- row indices and vectors come from the layer: `ngram_memories`, `per_layer`, and `value_embeddings`
Part of step 4 of trace/terminal.py. Tested in tests/trace/test_ngrams.py and tests/trace/test_per_layer.py.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text
from torch import Tensor

from inlayer.checkpoint.model import Model
from inlayer.checkpoint.store import INTEGERS
from inlayer.formats.row_reader import FileRows
from inlayer.formats.tensor_info import TensorInfo
from inlayer.render.numbers import pluralize
from inlayer.tables import RowSource, StoredEmbedding, Table
from inlayer.tables.ngram_hash import NgramMemory, NgramSpec
from inlayer.tokenizers.base import text_of_bytes
from inlayer.trace.family_facts import (
    NgramFacts,
    NgramRead,
    PerLayerFacts,
    RoutingFacts,
    SharedNgrams,
    TokenIndex,
    ValueFacts,
)
from inlayer.trace.layout import Layout

if TYPE_CHECKING:
    from inlayer.trace.forward import ForwardPass


MAX_SHARED = 6  # groups of n-grams with the same rows shown in the terminal


def extra_tables(result: ForwardPass) -> dict[str, Any]:
    """Return the fields of a trace about other tables that the recorded tokens read; {} for a walk without ids."""
    pipeline, ids, history = result.pipeline, result.ids_BT, result.history
    if ids is None or history is None:
        return {"ngram_memories": [], "per_layer": None, "value_embeddings": None, "routing": []}
    return {
        "ngram_memories": [_ngrams(result, memory, ids, history) for memory in pipeline.layer.ngram_memories],
        "per_layer": _per_layer(result, ids),
        "value_embeddings": _value(result, ids),
        "routing": [_routing(pipeline.model, tensor, ids) for tensor in pipeline.routing_tables],
    }


def _ngrams(result: ForwardPass, memory: NgramMemory, ids: Tensor, history: Tensor) -> NgramFacts:
    rows = memory.row_ids(ids.numpy(), history.numpy(), result.mask_BS.long().numpy())
    spec, tensor, different = memory.spec, memory.tensors[0], len(np.unique(rows))
    heads = {order: np.flatnonzero(np.array(spec.orders) == order) for order in sorted(set(spec.orders))}

    def read(b: int, t: int, order: int) -> NgramRead:
        chosen = rows[b, t, heads[order]].tolist()
        text = _text(result, spec, b, t + result.recorded.first_token, order)
        return NgramRead(order=order, text=text, rows=chosen, offsets=[memory.locate(row)[1] for row in chosen])

    reads = [[[read(b, t, order) for order in heads] for t in range(result.n_shown)] for b in range(len(rows))]
    return NgramFacts(
        layer=spec.layer, tensor=tensor.name, n_tensors=len(memory.tensors), file=tensor.file, dtype=tensor.dtype,
        rows=spec.rows, width=spec.width, heads=spec.n_hash_heads,
        normalized=spec.compressed_vocab_size is not None, rows_read=different,
        bytes_read=different * memory.table.source.row_bytes, reads=reads,
        shared=_shared(reads, result.mask_BT.tolist())[: result.recorded.max_tokens],
    )  # fmt: skip


def _text(result: ForwardPass, spec: NgramSpec, b: int, index: int, order: int) -> str:
    """Return the tokens that an n-gram hashes, oldest first."""
    tokens, start = result.tokens[b], index
    if index >= len(tokens):
        return "<pad>"
    while start > max(0, index - order + 1) and tokens[start - 1].id not in spec.stop_ids:
        start -= 1
    parts = ((token.bytes, token.id) for token in tokens[start : index + 1])
    return "".join(text_of_bytes(data) if data else result.pipeline.token_text(token_id) for data, token_id in parts)


def _shared(reads: list[list[list[NgramRead]]], mask: list[list[int]]) -> list[SharedNgrams]:
    """Return tokens whose n-grams share all rows of an order, then tokens that share the row of one hash head."""
    tokens_of: dict[tuple[int, int | None, tuple[int, ...]], list[TokenIndex]] = defaultdict(list)
    for b, text in enumerate(reads):
        for t, token in enumerate(text):
            for order_index, read in enumerate(token if mask[b][t] else []):
                tokens_of[order_index, None, tuple(read.rows)].append((b, t))
                for head, row in enumerate(read.rows):
                    tokens_of[order_index, head, (row,)].append((b, t))
    shared = []
    for (order_index, one_head, rows), tokens in tokens_of.items():
        chosen = [reads[b][t][order_index] for b, t in tokens]
        is_collision = len({tuple(read.rows) for read in chosen}) > 1  # between different n-grams
        if is_collision or (one_head is None and len(tokens) > 1):
            texts = list(dict.fromkeys(read.text for read in chosen))
            order, heads = chosen[0].order, len(chosen[0].rows)
            shared.append(
                SharedNgrams(order=order, texts=texts, occurrences=tokens, n_shared_heads=len(rows), n_heads=heads)
            )
    return sorted(shared, key=lambda group: group.n_shared_heads < group.n_heads)


def _per_layer(result: ForwardPass, ids: Tensor) -> PerLayerFacts | None:
    layer, extra = result.pipeline.layer, result.pipeline.layer.per_layer_embedding
    if extra is None:
        return None
    vectors = layer.per_layer(ids).float()
    return PerLayerFacts(
        rows=0 if extra.table is None else extra.table.num_embeddings, layers=extra.n_layers, width=extra.width,
        norms=vectors.norm(dim=-1).tolist(), vectors=vectors[..., : result.recorded.dims].tolist(),
        **_stored(extra.table, ids),
    )  # fmt: skip


def _value(result: ForwardPass, ids: Tensor) -> ValueFacts | None:
    layer, table = result.pipeline.layer, result.pipeline.layer.value_embedding
    if table is None:
        return None
    vectors = layer.value_embeddings(ids).float()[..., result.recorded.channels]
    return ValueFacts(
        rows=table.num_embeddings, width=table.embedding_dim, layers=list(layer.value_layers),
        vectors=vectors.tolist(), **_stored(table, ids),
    )  # fmt: skip


def _routing(model: Model | None, tensor: TensorInfo, ids: Tensor) -> RoutingFacts:
    assert model is not None
    source = model.store.open_rows(tensor)
    values = source.take(ids.flatten().numpy()).view(INTEGERS[tensor.dtype])
    experts = values.reshape(*ids.shape, tensor.shape[1]).tolist()
    return RoutingFacts(rows=tensor.shape[0], experts=experts, **_place(tensor.name, source, ids))


def _stored(table: Table | StoredEmbedding | None, ids: Tensor) -> dict[str, Any]:
    if not isinstance(table, StoredEmbedding):
        return {"tensor": "", "row_bytes": None, "offsets": None}
    return _place(table.table.name, table.table.source, ids)


def _place(name: str, source: RowSource, ids: Tensor) -> dict[str, Any]:
    """Return the name of a stored table, the row size, and, for a local file, each row's first byte."""
    offsets = None
    if isinstance(source, FileRows):
        offsets = (source.offset + ids.clamp(0, source.rows - 1) * source.row_bytes).tolist()
    return {"tensor": name, "row_bytes": source.row_bytes, "offsets": offsets}


# ---- in the terminal


def add_extra_tables(layout: Layout) -> None:
    """Add each of the other tables, and one line per token with the rows that it reads."""
    trace = layout.trace
    for memory in trace.ngram_memories:
        _add_memory(layout, memory)
    if trace.per_layer is not None:
        _add_per_layer(layout, trace.per_layer)
    if trace.value_embeddings is not None:
        _add_value_embeddings(layout, trace.value_embeddings)
    if trace.routing:
        _add_routing(layout, trace.routing)


def _add_memory(layout: Layout, memory: NgramFacts) -> None:
    use, done = "added to the rows", "read"
    if memory.layer is not None:
        use, done = f"read by layer {memory.layer}", "located"  # a walk ends before the decoder layers
    parts = "" if memory.n_tensors == 1 else f" and {pluralize(memory.n_tensors - 1, 'more tensor')}"
    size = f"{memory.rows:,} {layout.glyphs.times} {memory.width:,} {memory.dtype}, {memory.heads} hash heads"
    rows_used = f"{pluralize(memory.rows_read, 'row')} {done}, {pluralize(memory.bytes_read, 'byte')}"
    layout.table_title(f"n-gram memory, {use}: {memory.tensor}{parts}", f"{size}; {rows_used}")
    shown = [read for text in memory.reads for token in text for read in token]
    rows = max([len("row"), *(len(f"{read.rows[0]:,}") for read in shown)])
    offsets = max([len("byte"), *(len(f"{read.offsets[0]:,}") for read in shown)])
    heading = f"  n  {'row':>{rows}}  {'byte':>{offsets}}  heads  n-gram"
    layout.add(Text(" " * layout.head_width + heading, style="dim"))
    for text_index, index, token in layout.each_token():
        for order, read in enumerate(memory.reads[text_index][index]):
            line = layout.head(index, token) if order == 0 else Text(" " * layout.head_width)
            line.append(f"  {read.order}", style="dim").append(f"  {read.rows[0]:>{rows},}", style="cyan")
            line.append(f"  {read.offsets[0]:>{offsets},}").append(f"  {len(read.rows):>5}", style="dim")
            available = layout.columns - len(line.plain) - 2
            layout.add(line.append(f"  {layout.glyphs.truncate(read.text, max(1, available))}", style="dim"))
    for group in memory.shared[:MAX_SHARED]:
        layout.note(_sharing(layout, group), max_lines=2)
    layout.more(len(memory.shared) - MAX_SHARED, "group")


def _sharing(layout: Layout, group: SharedNgrams) -> str:
    first, several = layout.trace.first_token, layout.is_batch
    places = ", ".join(f"{t + first} of text {b + 1}" if several else str(t + first) for b, t in group.occurrences)
    names = " and ".join(repr(layout.glyphs.truncate(text, layout.widest_label)) for text in group.texts[:3])
    heads = "all hash heads"
    if group.n_shared_heads < group.n_heads:
        heads = f"{group.n_shared_heads} of {group.n_heads} hash heads, by collision"
    return f"the same rows for {names} at tokens {places} (n = {group.order}, {heads})"


def _add_per_layer(layout: Layout, facts: PerLayerFacts) -> None:
    title, size = "per-layer embeddings: projections of the token's row", ""
    if facts.rows:
        title = f"per-layer table: {facts.tensor or 'in memory'}"
        size = f"{facts.rows:,} {layout.glyphs.times} {facts.layers * facts.width:,}: "
    blocks = f"{facts.layers} blocks of {facts.width} channels"
    layout.table_title(title, f"{size}{blocks}{_reads(facts)}; norms of the blocks' vectors")
    for b, t, token in layout.each_token():
        place = "" if facts.offsets is None else f"  byte {facts.offsets[b][t]:,}"
        norms = " ".join(f"{norm:.3g}" for norm in facts.norms[b][t])
        layout.add(layout.head(t, token).append(place, style="cyan").append(f"  {norms}", style="dim"))


def _add_value_embeddings(layout: Layout, facts: ValueFacts) -> None:
    blocks = f"attention of blocks {' and '.join(map(str, facts.layers))} adds them to its values"
    size = f"{facts.rows:,} {layout.glyphs.times} {facts.width:,}"
    title = f"value embeddings: {facts.tensor or 'in memory'}"
    layout.table_title(title, f"{size}{_reads(facts)}; {blocks}")
    grid = layout.grid([vector for text in facts.vectors for vector in text], facts.width)
    for b, t, token in layout.each_token():
        layout.vector(layout.head(t, token), facts.vectors[b][t], grid)


def _reads(facts: PerLayerFacts | ValueFacts) -> str:
    return "" if facts.row_bytes is None else f"; a token reads {facts.row_bytes:,} bytes"


def _add_routing(layout: Layout, tables: list[RoutingFacts]) -> None:
    first, *others = tables
    more, of_each = (f" and {pluralize(len(others), 'more table')}", " of each") if others else ("", "")
    experts = pluralize(len(first.experts[0][0]) if first.experts[0] else 0, "expert")
    read = f"a token reads {first.row_bytes:,} bytes{of_each}"
    about = f"{first.rows:,} rows of {experts}; {read}; the experts of each token, by block"
    layout.table_title(f"routing: {first.tensor}{more}", about)
    for b, t, token in layout.each_token():
        experts = f" {layout.glyphs.bar} ".join(" ".join(map(str, table.experts[b][t])) for table in tables)
        layout.add(layout.head(t, token).append(f"  {experts}"))
