"""One walk, recorded: every step of a forward pass as facts.

text -> bytes -> pre-tokens -> ids -> rows -> (+ positions) -> hidden states -> backward pass
- every number comes from an object used in the actual computation; none is recomputed
- see also: the tensors (trace/forward.py, trace/backward.py), the fields (trace/facts.py)
Tested against individual library calls in tests/trace/test_walk.py; steps 1 to 3 in tests/trace/test_tokenization.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from inlayer.layer_stage import LayerStage
from inlayer.tokenizers import Tokenizer
from inlayer.trace import facts
from inlayer.trace.backward import backward
from inlayer.trace.extra_table_facts import extra_tables
from inlayer.trace.forward import ForwardPass, RecordedRange, TokenizedText
from inlayer.trace.position_schemes import scheme_of
from inlayer.trace.relative_positions import relative_facts
from inlayer.trace.steps import describe_steps

MAX_MERGED_TOKENS = 256  # the merges of a longer pre-token are not recorded
MAX_COMPARED = 2**26  # largest table, in values, that is multiplied by one-hot vectors as a whole


def record_walk(result: ForwardPass) -> facts.Trace:
    """Convert a forward pass to facts, and add its backward pass."""
    pipeline, recorded, width = result.pipeline, result.recorded, result.width
    stages = [_stage(result, stage) for stage in result.stages[1:]]
    trace = facts.Trace(
        steps=[],
        source=pipeline.source,
        note=pipeline.note,
        family=pipeline.family,
        tokenizer=None if pipeline.tokenizer is None else repr(pipeline.tokenizer).partition("(")[0],
        vocab_size=None if pipeline.tokenizer is None else pipeline.tokenizer.get_vocab_size(),
        shape=(len(result.mask_BT), result.n_tokens, width),
        **recorded._replace(dims=max(0, min(recorded.dims, width - recorded.first_channel)))._asdict(),
        input="inputs_embeds" if result.ids_BT is None else "text",
        change=result.change,
        texts=[_text(result, b, tokens) for b, tokens in enumerate(_tokens(result, stages))],
        table=pipeline.table,
        gather=_gather(result),
        stages=stages,
        positions=_positions(result),
        padding=pipeline.padding(recorded.first_channel, recorded.dims),
        n_streams=pipeline.layer.n_streams,
        **extra_tables(result),
        backward=backward(result) if result.unique is not None and result.n_shown else None,
    )
    return replace(trace, steps=describe_steps(trace))


def _tokens(result: ForwardPass, stages: list[facts.StageFacts]) -> list[list[facts.TokenTrace]]:
    pipeline, channels = result.pipeline, result.recorded.channels
    # Whole tensors are converted in one call: token by token, a few thousand tokens would take a second.
    rows, *outputs = [values_of(stage.output, channels) for stage in result.stages]
    added = [
        None if stage.added is None else values_of(stage.added.expand_as(stage.output), channels)
        for stage in result.stages[1:]
    ]
    first_row = getattr(pipeline.layer.position_embedding, "offset", 0)  # OPT's table starts with two unused rows
    positions, masks = result.position_BT.tolist(), result.mask_BT.long().tolist()
    ids = None if result.ids_BT is None else result.ids_BT.tolist()
    hexes: dict[int, list[str]] = {}
    if result.unique is not None:
        used = result.unique.ids_U.tolist()
        hexes = dict(zip(used, pipeline.stored_hex(used, result.unique.rows_UD, channels), strict=True))

    def stage_value(index: int, b: int, t: int) -> facts.StageValue:
        table, vectors = stages[index].table, added[index]
        row = offset = None
        if table is not None:
            row = positions[b][t] + first_row if stages[index].name == "position" else 0
            offset = table.row_offset(row)
        return facts.StageValue(added=vectors and vectors[b][t], row=row, offset=offset, output=outputs[index][b][t])

    def trace_token(b: int, t: int) -> facts.TokenTrace:
        values = [stage_value(index, b, t) for index in range(len(stages))]
        token_id, token = (None, None) if ids is None else (ids[b][t], result.token(b, t))
        return facts.TokenTrace(
            id=token_id,
            token=None if token_id is None else pipeline.token_text(token_id),
            label=f"vector {t + result.recorded.first_token}" if token_id is None else result.label(b, t, token_id),
            bytes="" if token is None else token.bytes.hex(),
            span=None if token is None else token.span,
            special=token.special if token is not None else token_id is not None,
            mask=masks[b][t],
            position=positions[b][t],
            offset=None if token_id is None else pipeline.table.row_offset(token_id),
            stored_hex=[] if token_id is None else hexes[token_id],
            row=rows[b][t],
            stages=values,
            hidden=values[-1].output if values else rows[b][t],
            rotations=[rotations[t] for _, rotations in result.rotary],
        )

    return [[trace_token(b, t) for t in range(result.n_shown)] for b in range(len(masks))]


def _text(result: ForwardPass, b: int, tokens: list[facts.TokenTrace]) -> facts.TextTrace:
    """Record a text of the batch, given its recorded tokens."""
    if not result.texts:
        return facts.TextTrace(
            text=None, normalized=None, n_characters=0, n_bytes=0, characters=[], pre_tokens=None, n_pre_tokens=0,
            n_tokens=result.n_tokens, n_padding=0, tokens=tokens,
        )  # fmt: skip
    text = result.texts[b]
    part = _recorded_part(text, result.recorded)
    return facts.TextTrace(
        text=part,
        normalized=_normalized(result.pipeline.tokenizer, part),
        n_characters=len(text.text),
        n_bytes=len(text.text.encode()),
        characters=[facts.Character(text=character, bytes=character.encode().hex()) for character in part],
        pre_tokens=None if text.spans is None else list(_pre_tokens(result, text, text.spans)),
        n_pre_tokens=len(text.spans or ()),
        n_tokens=len(text.tokens),
        n_padding=result.n_tokens - len(text.tokens),
        tokens=tokens,
    )


def _normalized(tokenizer: Tokenizer | None, text: str) -> str | None:
    """Return a text as the tokenizer normalizes it, or None if only whitespace and its symbol differ."""
    normalized = text if tokenizer is None else tokenizer._normalize(text)
    is_same = "".join(normalized.replace("▁", "").split()) == "".join(text.replace("▁", "").split())
    return None if is_same else normalized


def _recorded_part(text: TokenizedText, recorded: RecordedRange) -> str:
    """Return the part of a text that its recorded tokens cover; a partly covered character is included."""
    source = text.text.encode()
    first, end = 0, len(source)
    if recorded.first_token:
        first = min((token.span[0] for token in text.tokens[recorded.first_token :]), default=end)
    if len(text.tokens) > recorded.end:
        end = max((token.span[1] for token in text.tokens[: recorded.end]), default=0)
    before, after = (part.decode(errors="ignore") for part in (source[:first], source[end:]))  # whole characters
    return text.text[len(before) : len(text.text) - len(after)]


def _pre_tokens(result: ForwardPass, text: TokenizedText, spans: list[facts.Span]) -> Iterator[facts.PreToken]:
    """Yield the pre-tokens that have a token in the recorded range."""
    recorded, tokens, source = result.recorded, text.tokens, text.text.encode()
    # Tokens that the tokenizer added around the text (BOS, EOS) cover no bytes and belong to no pre-token.
    body = [index for index, token in enumerate(tokens) if token.bytes or not token.special]
    next_first, stop = (body[0], body[-1] + 1) if body else (0, 0)
    starts, ends = ([token.span[edge] for token in tokens[:stop]] for edge in (0, 1))
    for start, end in spans:
        first = bisect_left(starts, start, next_first)
        next_first = bisect_right(ends, end, first)
        if first >= recorded.end:
            break
        if recorded.first_token and next_first <= recorded.first_token:
            continue
        ids = tuple(token.id for token in tokens[first:next_first])
        merges = result.pipeline.merges(ids) if len(ids) <= MAX_MERGED_TOKENS else None
        covered = max(first - recorded.first_token, 0), min(next_first, recorded.end) - recorded.first_token
        yield facts.PreToken(span=(start, end), bytes=source[start:end].hex(), tokens=covered, merges=merges)


def values_of(vectors: Tensor, channels: slice) -> Any:
    """Convert some channels to Python floats, which hold every dtype exactly."""
    return vectors[..., channels].double().tolist()


def _gather(result: ForwardPass) -> facts.Gather:
    """Compare the gathered rows with a one-hot matrix product."""
    rows_BTD, unique, table = result.stages[0].output, result.unique, result.pipeline.table
    shape = (rows_BTD.shape[0], result.n_tokens, rows_BTD.shape[2])
    if unique is None:
        note = "no lookup: the vectors were given"
        return facts.Gather(shape=shape, compared_rows=0, whole_table=False, equal=True, note=note)
    one_hot_values = len(unique.ids_U) * table.shape[0]
    compare_all = max(result.pipeline.numel(), 4 * one_hot_values) <= MAX_COMPARED and not table.remote
    if compare_all:
        product_UD = result.pipeline.one_hot_product(unique.ids_U.tolist())
    else:
        product_UD = torch.eye(len(unique.ids_U)) @ unique.rows_UD.float()
    equal = torch.equal(product_UD[unique.inverse_BT], rows_BTD.float())
    note = "" if compare_all else "only the rows in use were compared, because the table is too large"
    if not equal:
        note = "the table contains non-finite values, and 0 x infinity is NaN"
    compared = table.shape[0] if compare_all else len(unique.ids_U)
    return facts.Gather(shape=shape, compared_rows=compared, whole_table=compare_all, equal=equal, note=note)


def _stage(result: ForwardPass, stage: LayerStage) -> facts.StageFacts:
    layer = result.active.layer
    notes = {
        "scale": f"each row is multiplied by {layer.scale:g}",
        "n-grams": "the rows of the n-grams that end at the token are "
        + ("added" if layer.ngrams and layer.ngrams[0].added == "sum" else "projected, and all are averaged with it"),
        "multiplier": f"each vector is multiplied by {layer.input_multiplier:g}",
        "projection": f"each vector is projected to width {stage.output.shape[-1]:,}",
        "token type": "the embedding of segment 0 is added, because there is only one segment",
        "position": "the embedding of the token's position is added",
        "norm": "each vector is normalized over its channels",
        "mask": "vectors of padding are set to zero",
    }
    table = result.pipeline.stage_table(stage.name, layer)
    return facts.StageFacts(name=stage.name, note=notes[stage.name], table=table)  # type: ignore[arg-type]  # not "row"


def _positions(result: ForwardPass) -> facts.Positions:
    layer, from_model, note = result.active
    if not note and layer.block_size is not None and result.n_tokens > layer.block_size:
        note = f"{result.n_tokens:,} tokens exceed the model's context length of {layer.block_size:,}"
    return facts.Positions(
        scheme=scheme_of(layer),  # type: ignore[arg-type]
        from_model=from_model,
        block_size=layer.block_size if from_model else None,
        note=note,
        rotary=[rotary for rotary, _ in result.rotary],
        relative=relative_facts(result) if from_model else None,
    )
