"""The walk: texts through the parts of a model, taking down every step.

text -> bytes -> pieces -> ids -> rows -> (+ positions) -> hidden states, and backwards
- every number is read off the objects that do the work; none is made up here
- several texts make a batch: the shorter ones are padded behind. Vectors may come in place of ids: the walk then begins
  with the gathered rows
- of a long text the first tokens are told, with the positions they have in the whole
- on one thread: sums do not depend on how many a machine has, and parallel walks do not wait for each other's threads
- not here: what is told (trace/facts.py), how it looks (trace/terminal/, trace/html.py)
Checked against the library calls in tests/trace/test_walk.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.embeddings import LayerStage as Passed
from inlayer.errors import DtypeError, InputError
from inlayer.positions import LearnedPositions, SinusoidalPositions, make_position_ids
from inlayer.ragged import Ragged
from inlayer.tables import check_id_range
from inlayer.tensors import check_float, one_thread
from inlayer.tokenizers import Token
from inlayer.trace.backward import go_back
from inlayer.trace.facts import (
    Cell,
    Change,
    Gather,
    Padding,
    Positions,
    Stage,
    StageValue,
    TextTrace,
    Trace,
)
from inlayer.trace.names import label_of
from inlayer.trace.order import Turned
from inlayer.trace.parts import Parts, Used, scheme_of
from inlayer.trace.steps import describe_steps
from inlayer.trace.tokenization import Reading, read

__all__ = ["bits_of", "numbers", "take"]

MAX_CHECKED = 2**26  # values of a table that is multiplied by one-hot vectors as a whole
MAX_PADDING = 4096
SHOWN_BLOCK = 64  # bytes of a quantized row


class Batch(NamedTuple):
    """What walks: ids or vectors, and which of them are real."""

    readings: list[Reading]
    tokens: list[list[Token]]
    ids_BT: Tensor | None
    embeds_BTD: Tensor | None
    mask_BT: Tensor


@one_thread()
@torch.no_grad()
def take(
    parts: Parts,
    texts: Sequence[str] | None,
    *,
    inputs_embeds: Tensor | None = None,
    dims: int = 8,
    tokens: int = 256,
    change: Change | None = None,
) -> Trace:
    """One walk."""
    change = change or Change()
    _check(texts, inputs_embeds, dims, tokens, change)
    batch = _batch(parts, texts, tokens, change) if inputs_embeds is None else _vectors(parts, inputs_embeds, change)
    order = parts.order(change.positions, change.theta)
    layer = order.layer
    length = batch.mask_BT.shape[1]
    shown = min(length, tokens)

    position_BT = _positions(layer, batch)
    shown_BT = position_BT[:, :shown]
    if batch.ids_BT is not None:
        check_id_range(batch.ids_BT, layer.vocab_size)
    absolute = isinstance(layer.position_embedding, (LearnedPositions, SinusoidalPositions))
    if absolute and length > shown:
        assert layer.position_embedding is not None
        layer.position_embedding(position_BT.max())  # an error where the text is too long for the layer
    passed = layer.stages(
        None if batch.ids_BT is None else batch.ids_BT[:, :shown],
        None if batch.embeds_BTD is None else batch.embeds_BTD[:, :shown],
        shown_BT if absolute else None,
    )
    turned = parts.turned(change.positions, change.theta, shown, length, dims)

    used = None if batch.ids_BT is None else Used.of(batch.ids_BT[:, :shown], passed[0].after)
    names = {} if used is None else {token_id: parts.spelled(token_id) for token_id in used.ids_U.tolist()}
    returned = None
    if used is not None and shown:
        returned = go_back(
            parts,
            parts.wide(change.positions, change.theta),
            used,
            batch.mask_BT[:, :shown],
            shown_BT if absolute else None,
            _labels(parts, batch, names, shown),
            dims,
            tokens,
        )
    hidden_BTD = passed[-1].after
    stages = [
        Stage(name=stage.name, note=_note(layer, stage), table=parts.table_of(stage.name, layer))  # type: ignore[arg-type]
        for stage in passed[1:]
    ]
    cells = _cells(parts, batch, used, names, passed, stages, turned, shown_BT, dims)
    trace = Trace(
        steps=[],
        source=parts.source,
        note=parts.note,
        family=parts.family,
        tokenizer=None if parts.tokenizer is None else repr(parts.tokenizer).partition("(")[0],
        vocab_size=None if parts.tokenizer is None else parts.tokenizer.get_vocab_size(),
        shape=(len(batch.mask_BT), length, hidden_BTD.shape[2]),
        dims=min(dims, hidden_BTD.shape[2]),
        tokens=tokens,
        entered="text" if inputs_embeds is None else "inputs_embeds",
        change=change,
        texts=[_text(batch, b, row) for b, row in enumerate(cells)],
        table=parts.table,
        gather=_gather(parts, used, passed[0].after, length),
        stages=stages,
        positions=Positions(
            scheme=scheme_of(layer),  # type: ignore[arg-type]
            own=order.own,
            block_size=layer.block_size if order.own else None,
            note=order.note or _too_long(layer, length),
            turnings=[one.turning for one in turned],
        ),
        padding=_padding(parts, dims),
        backward=returned,
    )
    return replace(trace, steps=describe_steps(trace))


def _check(texts: object, inputs_embeds: Tensor | None, dims: int, tokens: int, change: Change) -> None:
    if (texts is None) == (inputs_embeds is None):
        raise InputError("give either texts or inputs_embeds to walk" + ("" if texts is None else ", not both"))
    if texts is not None:
        if isinstance(texts, (bytes, str)) or not isinstance(texts, Iterable):
            raise DtypeError(f"the texts are a {type(texts).__name__}; give a str, or a list of them")
        if not list(texts):
            raise InputError("there is no text to walk; give at least one")
    for name, value in (("dims", dims), ("tokens", tokens)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} is {value!r}; it is a whole number of at least 1")
    if not isinstance(change.pad, int) or not 0 <= change.pad <= MAX_PADDING:
        raise InputError(f"pad is {change.pad!r}; so many tokens of padding cannot be added, only 0..{MAX_PADDING:,}")


def _batch(parts: Parts, texts: Sequence[str] | None, tokens: int, change: Change) -> Batch:
    assert texts is not None
    if parts.tokenizer is None:
        raise InputError(f"{parts.source} has no tokenizer; name one, or give inputs_embeds")
    readings = [read(text, parts, tokens) for text in texts]
    pieces = [list(reading.tokens) for reading in readings]
    if change.swap is not None:
        first, second = _places(change.swap, len(pieces[0]))
        pieces[0][first], pieces[0][second] = pieces[0][second], pieces[0][first]
    ragged = Ragged.from_lists([[piece.id for piece in one] for one in pieces])
    padding = parts.padding_id
    if padding is None and (change.pad or len(set(ragged.counts.tolist())) > 1):
        raise InputError(f"{parts.source} has no padding row or token; walk texts of one length, or one text, unpadded")
    ids_BT, mask_BT = ragged.padded(padding or 0)
    if change.pad:
        ids_BT = functional.pad(ids_BT, (0, change.pad), value=padding)
        mask_BT = functional.pad(mask_BT, (0, change.pad))
    return Batch(readings, pieces, ids_BT, None, mask_BT)


def _places(swap: object, count: int) -> tuple[int, int]:
    if not (isinstance(swap, (tuple, list)) and len(swap) == 2 and all(type(place) is int for place in swap)):
        raise InputError(f"swap is {swap!r}; give the places of two tokens, such as (0, 1)")
    for place in swap:
        if not 0 <= place < count:
            there = f"the places 0..{count - 1}" if count else "no tokens"
            raise InputError(f"token {place} cannot be swapped: the first text has {there}")
    return swap[0], swap[1]


def _vectors(parts: Parts, inputs_embeds: object, change: Change) -> Batch:
    if change.swap is not None or change.pad:
        raise InputError("swap and pad change tokens, and vectors came in their place")
    width = parts.layer.token_embedding.embedding_dim
    vectors = check_float(inputs_embeds, "inputs_embeds", width=width)
    if vectors.dim() not in (2, 3):
        raise DtypeError(f"inputs_embeds has shape {tuple(vectors.shape)}; expected (B, T, D), or (T, D)")
    embeds_BTD = vectors if vectors.dim() == 3 else vectors[None]
    return Batch([], [], None, embeds_BTD, torch.ones(embeds_BTD.shape[:2], dtype=torch.int64))


def _positions(layer: Embeddings, batch: Batch) -> Tensor:
    """The position of every token (B, T), as the layer numbers them."""
    shape = batch.mask_BT.shape[0], batch.mask_BT.shape[1]
    if isinstance(layer.position_embedding, (LearnedPositions, SinusoidalPositions)):
        numbered = make_position_ids(layer.position_id_rule, shape, batch.mask_BT.device, batch.ids_BT, batch.mask_BT)
    else:
        numbered = torch.arange(shape[1])[None]
    return numbered.expand(shape)


def _padding(parts: Parts, dims: int) -> Padding:
    token_id = parts.padding_id
    if token_id is None:
        return Padding(id=None, is_row=False, zero=False, row=[])
    row_D = parts.padding_row
    assert row_D is not None
    return Padding(
        id=token_id,
        is_row=parts.layer.padding_idx is not None,
        zero=not bool(row_D.float().any()),
        row=numbers(row_D, dims),
    )


def _labels(parts: Parts, batch: Batch, names: dict[int, str], shown: int) -> dict[int, str]:
    """How to show each id of the batch: as it stands in the text where it first does, padding by its name."""
    labels: dict[int, str] = {}
    for piece in (piece for pieces in batch.tokens for piece in pieces[:shown]):
        if piece.id not in labels:
            labels[piece.id] = label_of(piece, names[piece.id])
    if parts.padding_id is not None and parts.padding_id in names and parts.padding_id not in labels:
        labels[parts.padding_id] = _padding_name(names, parts.padding_id)
    return labels


def _padding_name(names: dict[int, str], token_id: int) -> str:
    return "<pad>" if names[token_id] == f"#{token_id}" else names[token_id]


def _cells(
    parts: Parts,
    batch: Batch,
    used: Used | None,
    names: dict[int, str],
    passed: list[Passed],
    stages: list[Stage],
    turned: list[Turned],
    position_BT: Tensor,
    dims: int,
) -> list[list[Cell]]:
    # Whole tensors to lists at once: a cell at a time would cost a second every few thousand tokens.
    rows = numbers(passed[0].after, dims)
    after = [numbers(stage.after, dims) for stage in passed[1:]]
    added = [None if stage.added is None else numbers(stage.added.expand_as(stage.after), dims) for stage in passed[1:]]
    # OPT's table begins with two unused rows.
    first_position = getattr(parts.layer.position_embedding, "offset", 0)
    positions, masks = position_BT.tolist(), batch.mask_BT.long().tolist()
    ids, bits = [], {}
    if used is not None:
        ids = used.ids_U[used.places_BT].tolist()
        raw = parts.raw_rows(list(names))
        bits = {token_id: bits_of(row, parts.table.itemsize, dims) for token_id, row in zip(names, raw, strict=True)}

    def cell(b: int, t: int) -> Cell:
        piece = batch.tokens[b][t] if batch.tokens and t < len(batch.tokens[b]) else None
        token_id = ids[b][t] if ids else None
        values = []
        for stage, one, other in zip(stages, added, after, strict=True):
            table = stage.table
            row = None if table is None else (positions[b][t] + first_position if stage.name == "position" else 0)
            values.append(
                StageValue(
                    added=None if one is None else one[b][t],
                    row=row,
                    offset=None if table is None or row is None else table.offset + row * table.row_bytes,
                    after=other[b][t],
                )
            )
        if token_id is None:
            label = f"vector {t}"
        else:
            label = _padding_name(names, token_id) if piece is None else label_of(piece, names[token_id])
        return Cell(
            id=token_id,
            token=None if token_id is None else names[token_id],
            label=label,
            bytes="" if piece is None else piece.bytes.hex(),
            span=None if piece is None else piece.span,
            special=(piece is None and token_id is not None) or (piece is not None and piece.special),
            mask=masks[b][t],
            position=positions[b][t],
            offset=None if token_id is None else parts.offset_of(token_id),
            bits=[] if token_id is None else bits[token_id],
            row=rows[b][t],
            stages=values,
            hidden=values[-1].after if values else rows[b][t],
            turns=[one.turns[t] for one in turned],
        )

    return [[cell(b, t) for t in range(position_BT.shape[1])] for b in range(len(masks))]


def numbers(vectors: Tensor, dims: int) -> Any:
    """The first channels as Python has numbers: exactly these, whatever the dtype."""
    return vectors[..., :dims].double().tolist()


def bits_of(row: bytes, itemsize: int | None, dims: int) -> list[str]:
    """The first values as they are stored, most significant byte first; of a quantized row its first bytes."""
    if itemsize is None:
        return [f"{byte:02x}" for byte in row[: min(SHOWN_BLOCK, 8 * dims)]]
    return [row[at : at + itemsize][::-1].hex() for at in range(0, min(len(row), dims * itemsize), itemsize)]


def _text(batch: Batch, b: int, cells: list[Cell]) -> TextTrace:
    length = batch.mask_BT.shape[1]
    if not batch.readings:
        return TextTrace(
            text=None, n_characters=0, n_bytes=0, characters=[], splits=None, n_splits=0, n_tokens=length, n_padding=0,
            cells=cells,
        )  # fmt: skip
    reading = batch.readings[b]
    return TextTrace(
        text=reading.text,
        n_characters=reading.n_characters,
        n_bytes=reading.n_bytes,
        characters=reading.characters,
        splits=reading.splits,
        n_splits=reading.n_splits,
        n_tokens=len(reading.tokens),
        n_padding=length - len(reading.tokens),
        cells=cells,
    )


def _gather(parts: Parts, used: Used | None, rows_BTD: Tensor, length: int) -> Gather:
    shape = (rows_BTD.shape[0], length, rows_BTD.shape[2])
    if used is None:
        return Gather(
            shape=shape, checked_rows=0, whole=False, equal=True, note="vectors came in: nothing was looked up"
        )
    hot = len(used.ids_U) * parts.table.shape[0]
    whole = max(parts.values(), 4 * hot) <= MAX_CHECKED and not parts.table.remote
    if whole:
        product_UD = torch.zeros(used.rows_UD.shape)
        hot_UV = torch.zeros(len(used.ids_U), parts.table.shape[0]).scatter_(1, used.ids_U[:, None], 1.0)
        for start, block_ND in parts.blocks():
            product_UD += hot_UV[:, start : start + len(block_ND)] @ block_ND
    else:
        product_UD = torch.eye(len(used.ids_U)) @ used.rows_UD.float()
    equal = torch.equal(product_UD[used.places_BT], rows_BTD.float())
    note = "" if whole else "over the rows in use: the whole table is too large for it"
    if not equal:
        note = "0 x infinity is no number: the table holds values that are not finite"
    return Gather(
        shape=shape,
        checked_rows=parts.table.shape[0] if whole else len(used.ids_U),
        whole=whole,
        equal=equal,
        note=note,
    )


def _note(layer: Embeddings, stage: Passed) -> str:
    width = stage.after.shape[-1]
    return {
        "scale": f"every row times {layer.scale:g}",
        "multiplier": f"every vector times {layer.multiplier:g}",
        "projection": f"projected to width {width:,}",
        "token type": "the vector of segment 0 is added: there is one segment",
        "position": "the vector of the token's position is added",
        "norm": "each vector is normalized over its channels (LayerNorm)",
    }[stage.name]


def _too_long(layer: Embeddings, length: int) -> str:
    if layer.block_size is None or length <= layer.block_size:
        return ""
    return f"{length:,} tokens are more than the {layer.block_size:,} it was made for"
