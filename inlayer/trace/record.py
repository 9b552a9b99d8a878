"""One walk: run a batch through a pipeline and record every step as facts.

text -> bytes -> pre-tokens -> ids -> rows -> (+ positions) -> hidden states -> backward pass
- every number is read from the objects that do the work; none is recomputed
- runs on one thread: sums do not depend on the machine, and parallel walks do not wait for each other's threads
- see also: the tensors (trace/forward.py, trace/backward.py), the fields (trace/facts.py)
Tested against the library call by call in tests/trace/test_walk.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inlayer.embeddings import Embeddings
from inlayer.errors import InputError
from inlayer.layer_stage import LayerStage
from inlayer.tensors import one_thread
from inlayer.trace.backward import backward
from inlayer.trace.extra_table_facts import per_layer_facts, routing_facts, value_facts
from inlayer.trace.facts import Change, Gather, Positions, StageFacts, StageValue, TokenTrace, Trace
from inlayer.trace.forward import Forward, RecordedRange
from inlayer.trace.ngrams import ngram_facts
from inlayer.trace.position_schemes import scheme_of
from inlayer.trace.relative_positions import relative_facts
from inlayer.trace.steps import describe_steps

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

MAX_COMPARED = 2**26  # values of a table that is multiplied by one-hot vectors as a whole
MAX_BLOCK_BYTES = 64  # bytes shown of a quantized row


@one_thread()
@torch.no_grad()
def record_walk(
    pipeline: Pipeline,
    texts: Sequence[str] | None,
    inputs_embeds: Tensor | None,
    recorded: RecordedRange,
    change: Change,
) -> Trace:
    """Run a batch of texts, or vectors instead of texts."""
    if (texts is None) == (inputs_embeds is None):
        raise InputError("pass either texts or inputs_embeds" + ("" if texts is None else ", not both"))
    result = Forward(pipeline, change, recorded)
    result = result.run_texts(texts) if inputs_embeds is None else result.run_vectors(inputs_embeds)
    layer, width = result.active.layer, result.width
    stages = [
        StageFacts(
            name=stage.name,  # type: ignore[arg-type]  # every name but "row"
            note=_stage_note(layer, stage),
            table=pipeline.table_of(stage.name, layer),
        )
        for stage in result.stages[1:]
    ]
    trace = Trace(
        steps=[],
        source=pipeline.source,
        note=pipeline.note,
        family=pipeline.family,
        tokenizer=None if pipeline.tokenizer is None else repr(pipeline.tokenizer).partition("(")[0],
        vocab_size=None if pipeline.tokenizer is None else pipeline.tokenizer.get_vocab_size(),
        shape=(len(result.mask_BT), result.length, width),
        dims=max(0, min(recorded.dims, width - recorded.first_channel)),
        max_tokens=recorded.tokens,
        first_token=recorded.first_token,
        first_channel=recorded.first_channel,
        input="text" if inputs_embeds is None else "inputs_embeds",
        change=change,
        texts=[
            replace(text, n_padding=result.length - text.n_tokens, tokens=traced)
            for text, traced in zip(result.texts, _tokens(result, stages), strict=True)
        ],
        table=pipeline.table,
        gather=_gather(result),
        stages=stages,
        positions=_positions(result),
        padding=pipeline.padding(recorded.first_channel, recorded.dims),
        n_streams=pipeline.layer.n_streams,
        ngram_memories=ngram_facts(result),
        per_layer=per_layer_facts(result),
        value=value_facts(result),
        routing=routing_facts(result),
        backward=backward(result) if result.unique is not None and result.count else None,
    )
    return replace(trace, steps=describe_steps(trace))


def _tokens(result: Forward, stages: list[StageFacts]) -> list[list[TokenTrace]]:
    """Record every token of every text."""
    pipeline, channels = result.pipeline, result.recorded.channels
    # Whole tensors are converted at once: one token at a time would take a second for every few thousand.
    rows, *outputs = [values_of(stage.output, channels) for stage in result.stages]
    added = [
        None if stage.added is None else values_of(stage.added.expand_as(stage.output), channels)
        for stage in result.stages[1:]
    ]
    first_row = getattr(pipeline.layer.position_embedding, "offset", 0)  # OPT's table starts with two unused rows
    positions, masks = result.position_BT.tolist(), result.mask_BT.long().tolist()
    ids = None if result.unique is None else result.unique.ids_U[result.unique.inverse_BT].tolist()
    used = [] if result.unique is None else result.unique.ids_U.tolist()
    raw = [] if result.unique is None else pipeline.raw_rows(used, result.unique.rows_UD)
    hexes = {i: stored_hex(row, pipeline.table.itemsize, channels) for i, row in zip(used, raw, strict=True)}

    def stage_value(index: int, b: int, t: int) -> StageValue:
        table, vectors = stages[index].table, added[index]
        row = offset = None
        if table is not None:
            row = positions[b][t] + first_row if stages[index].name == "position" else 0
            offset = table.offset + row * table.row_bytes
        return StageValue(added=vectors and vectors[b][t], row=row, offset=offset, output=outputs[index][b][t])

    def trace_token(b: int, t: int) -> TokenTrace:
        values = [stage_value(index, b, t) for index in range(len(stages))]
        token_id, token = (None, None) if ids is None else (ids[b][t], result.token(b, t))
        return TokenTrace(
            id=token_id,
            token=None if token_id is None else pipeline.spelling(token_id),
            label=f"vector {t + result.recorded.first_token}" if token_id is None else result.label(b, t, token_id),
            bytes="" if token is None else token.bytes.hex(),
            span=None if token is None else token.span,
            special=token.special if token is not None else token_id is not None,
            mask=masks[b][t],
            position=positions[b][t],
            offset=None if token_id is None else pipeline.offset_of(token_id),
            stored_hex=[] if token_id is None else hexes[token_id],
            row=rows[b][t],
            stages=values,
            hidden=values[-1].output if values else rows[b][t],
            rotations=[rotations[t] for _, rotations in result.rotary],
        )

    return [[trace_token(b, t) for t in range(result.count)] for b in range(len(masks))]


def values_of(vectors: Tensor, channels: slice) -> Any:
    """Convert some channels to Python floats, which hold every dtype exactly."""
    return vectors[..., channels].double().tolist()


def stored_hex(row: bytes, itemsize: int | None, channels: slice) -> list[str]:
    """Format some values of a stored row, most significant byte first; for a quantized row, its first bytes."""
    if itemsize is None:
        return [f"{byte:02x}" for byte in row[: min(MAX_BLOCK_BYTES, 8 * (channels.stop - channels.start))]]
    offsets = range(channels.start * itemsize, min(len(row), channels.stop * itemsize), itemsize)
    return [row[offset : offset + itemsize][::-1].hex() for offset in offsets]


def _gather(result: Forward) -> Gather:
    """Compare the gathered rows with a one-hot matrix product."""
    rows_BTD, unique, table = result.stages[0].output, result.unique, result.pipeline.table
    shape = (rows_BTD.shape[0], result.length, rows_BTD.shape[2])
    if unique is None:
        note = "no lookup: the vectors were given"
        return Gather(shape=shape, compared_rows=0, whole_table=False, equal=True, note=note)
    one_hot_values = len(unique.ids_U) * table.shape[0]
    compare_all = max(result.pipeline.values(), 4 * one_hot_values) <= MAX_COMPARED and not table.remote
    if compare_all:
        product_UD = result.pipeline.one_hot_product(unique.ids_U.tolist())
    else:
        product_UD = torch.eye(len(unique.ids_U)) @ unique.rows_UD.float()
    equal = torch.equal(product_UD[unique.inverse_BT], rows_BTD.float())
    note = "" if compare_all else "only the rows in use were compared, because the table is too large"
    if not equal:
        note = "the table contains non-finite values, and 0 x infinity is NaN"
    compared = table.shape[0] if compare_all else len(unique.ids_U)
    return Gather(shape=shape, compared_rows=compared, whole_table=compare_all, equal=equal, note=note)


def _stage_note(layer: Embeddings, stage: LayerStage) -> str:
    return {
        "scale": f"each row is multiplied by {layer.scale:g}",
        "n-grams": "the rows of the n-grams that end at the token are "
        + ("added" if layer.ngrams and layer.ngrams[0].added == "sum" else "projected, and all are averaged with it"),
        "multiplier": f"each vector is multiplied by {layer.multiplier:g}",
        "projection": f"each vector is projected to width {stage.output.shape[-1]:,}",
        "token type": "the embedding of segment 0 is added, because there is only one segment",
        "position": "the embedding of the token's position is added",
        "norm": "each vector is normalized over its channels",
        "mask": "vectors of padding are set to zero",
    }[stage.name]


def _positions(result: Forward) -> Positions:
    layer, from_model, note = result.active
    if not note and layer.block_size is not None and result.length > layer.block_size:
        note = f"{result.length:,} tokens exceed the model's context length of {layer.block_size:,}"
    return Positions(
        scheme=scheme_of(layer),  # type: ignore[arg-type]
        from_model=from_model,
        block_size=layer.block_size if from_model else None,
        note=note,
        rotary=[facts for facts, _ in result.rotary],
        relative=relative_facts(result) if from_model else None,
    )
