"""Everything a walk passes through, made ready once: tokenizer, layer, head, and where the rows lie.

text -> ids -> rows -> (+ positions) -> hidden states -> head
- nothing here is changed by a walk, so that several threads can walk at once
- other positions can be put in place of the model's own, to see what they change
- not here: the walk itself (trace/run.py)
Checked in tests/trace/test_line.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from inlayer.checkpoint import Model
from inlayer.embeddings import SCHEMES, Embeddings
from inlayer.errors import ConfigError, InputError
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.safetensors import TensorInfo
from inlayer.head import Head
from inlayer.paths import last_part
from inlayer.positions import Angles, LearnedPositions, PositionIdRule, RotaryPositions, SinusoidalPositions
from inlayer.tables import StoredEmbedding
from inlayer.tensors import to_tensor
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.names import spelled
from inlayer.trace.facts import Merge, ModelFacts, TableFacts
from inlayer.trace.order import Turned, turn

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Order", "Parts", "Used", "scheme_of"]

HELD_VALUES = 2**24  # of a table that is kept in float32 between walks: 64 MB
BLOCK_VALUES = 2**24  # of a larger one, read at once
NEWBORN_POSITIONS = 2048  # learned positions put in place of a model's own
ADDED = {"token type": "token_type_embedding.weight", "position": "position_embedding.weight"}
USUAL_HEAD = 64  # channels of an attention head, where the model does not say


class Order(NamedTuple):
    """The layer with the positions of a walk."""

    layer: Embeddings
    own: bool
    note: str


class Used(NamedTuple):
    """The different ids of a batch, each with its row."""

    ids_U: Tensor
    places_BT: Tensor  # where in ids_U each id of the batch is
    rows_UD: Tensor

    @classmethod
    def of(cls, ids_BT: Tensor, rows_BTD: Tensor) -> Used:
        """Without the repeats."""
        ids_U, places_BT = torch.unique(ids_BT, return_inverse=True)
        flat = places_BT.flatten()
        last_U = torch.zeros_like(ids_U).index_copy_(0, flat, torch.arange(len(flat)))  # one place of each
        return cls(ids_U, places_BT, rows_BTD.flatten(0, 1)[last_U])


class Parts:
    """A model made ready. `name` is what it is called where several are to choose from."""

    def __init__(self, model: Model, *, name: str = "", tokenizer: Tokenizer | None = None) -> None:
        spec, stored = model.spec, model.table_info
        self._prepare(
            name=name or model.source,
            source=model.source,
            note=model.note,
            family=None if spec is None else spec.family,
            tokenizer=model.tokenizer if tokenizer is None else tokenizer,
            layer=model.embeddings,
            head=model.head if not model.store.remote else None,  # its rows are all needed for one logit
        )
        self.init_std = 0.02 if spec is None else spec.init_std
        for part in ADDED.values():
            found = model.find_part(part) if part in self.layer.state_dict() else None
            if found is not None:
                self.small[part] = _stored_facts(found, dtype_name(self.layer.dtype), model.store.remote)
        self.table = _stored_facts(stored, model.table.dtype.name, model.store.remote)

    @classmethod
    def of_layer(
        cls, tokenizer: Tokenizer | None, layer: Embeddings, head: Head | None = None, *, source: str, note: str = ""
    ) -> Self:
        """The same around a layer in memory."""
        parts = cls.__new__(cls)
        parts._prepare(
            name=source, source=source, note=note, family=None, tokenizer=tokenizer, layer=layer.eval(), head=head
        )
        for name in ADDED.values():
            if name in layer.state_dict():
                parts.small[name] = _in_memory(name, layer.state_dict()[name])
        table = layer.token_embedding
        parts.init_std = float(getattr(table, "init_std", 0.02))
        parts.table = _in_memory("token_embedding.weight", table.weight)
        return parts

    def _prepare(
        self,
        *,
        name: str,
        source: str,
        note: str,
        family: str | None,
        tokenizer: Tokenizer | None,
        layer: Embeddings,
        head: Head | None,
    ) -> None:
        self.name, self.source, self.note, self.family = name, source, note, family
        self.tokenizer, self.layer, self.head = tokenizer, layer, head
        self.small: dict[str, TableFacts] = {}  # the tables of the stages that add a row
        self.order = lru_cache(maxsize=32)(self._order)
        self.wide = lru_cache(maxsize=4)(self._wide)
        self.turned = lru_cache(maxsize=64)(self._turned)
        self.spelled = lru_cache(maxsize=65_536)(partial(spelled, tokenizer))
        self.merges = lru_cache(maxsize=4_096)(self._merges)

    def facts(self) -> ModelFacts:
        """What to choose it by."""
        return ModelFacts(
            name=self.name,
            source=self.source,
            note=self.note,
            family=self.family,
            shape=self.table.shape,
            dtype=self.table.dtype,
            positions=scheme_of(self.layer),
            padding_id=self.padding_id,
            tied=None if self.head is None else self.head.tied,
        )

    @cached_property
    def title(self) -> str:
        """What to call its source where others may read it: of a path its last part, not where it lies here."""
        path = Path(self.source)
        return last_part(path) if path.exists() or path.is_absolute() else self.source

    @cached_property
    def padding_row(self) -> Tensor | None:
        if self.padding_id is None:
            return None
        row_D: Tensor = self.layer.token_embedding(torch.tensor([self.padding_id]))[0].detach()
        return row_D

    @cached_property
    def padding_id(self) -> int | None:
        """What fills up shorter texts: the table's padding row, else the tokenizer's padding token if it has a row."""
        if self.layer.padding_idx is not None:
            return self.layer.padding_idx
        named = None if self.tokenizer is None else self.tokenizer.pad_id
        return named if named is not None and named < self.layer.vocab_size else None

    # ---- rows

    def raw_rows(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of rows as they are stored."""
        table = self.layer.token_embedding
        if isinstance(table, StoredEmbedding):
            raw = np.empty((len(ids), table.table.source.row_bytes), np.uint8)
            table.table.source.read(np.array(ids, np.int64), raw)
        else:
            rows = table.weight.detach()[torch.tensor(list(ids), dtype=torch.int64)].cpu()
            raw = rows.contiguous().view(torch.uint8).numpy().reshape(len(ids), self.table.row_bytes)
        return [row.tobytes() for row in raw]

    def offset_of(self, token_id: int) -> int:
        """Where a row's first byte lies in the table's file, or in the table where that is in no file."""
        return self.table.offset + token_id * self.table.row_bytes

    def table_of(self, stage: str, layer: Embeddings) -> TableFacts | None:
        """The table whose rows a stage of this layer adds; None where it adds none, or where they were put in place of
        the model's own.
        """
        part = getattr(layer, ADDED.get(stage, "").partition(".")[0], None)
        own = part is not None and part is getattr(self.layer, ADDED[stage].partition(".")[0])
        return self.small.get(ADDED[stage]) if own else None

    def values(self) -> int:
        """How many values the table has."""
        rows, width = self.table.shape
        return rows * width

    @cached_property
    def _held(self) -> Tensor:
        return self.layer.token_embedding.weight.detach().float()

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """The whole table in float32, part by part, each with the id of its first row."""
        table = self.layer.token_embedding
        rows = max(1, BLOCK_VALUES // table.embedding_dim)
        if self.values() <= HELD_VALUES:
            yield 0, self._held
        elif isinstance(table, StoredEmbedding):
            yield from ((start, to_tensor(block).float()) for start, block in table.table.blocks(rows))
        else:
            weight = table.weight.detach()
            yield from ((start, weight[start : start + rows].float()) for start in range(0, len(weight), rows))

    @cached_property
    def _held_head(self) -> Tensor:
        assert self.head is not None
        return self.head.weight.detach().float()

    def head_rows(self) -> Tensor:
        """The rows of the head in float32; those of the table where it is tied."""
        assert self.head is not None
        if self.values() > HELD_VALUES:
            return self.head.weight.detach().float()
        return self._held if self.head.tied else self._held_head

    # ---- positions

    def _order(self, scheme: str | None, theta: float | None) -> Order:
        """The layer as it is, or with other positions: `scheme` for its own, `theta` for the base of the angles."""
        own = self.layer.position_embedding
        if scheme is not None and scheme not in SCHEMES:
            raise ConfigError(f"unknown positions {scheme!r}; choose one of {', '.join(SCHEMES)}")
        wanted = scheme or scheme_of(self.layer)
        if theta is not None and (not isinstance(theta, (int, float)) or isinstance(theta, bool)):
            raise InputError(f"theta is {theta!r}; it is a number above 0, such as 10000")
        if theta is not None and wanted not in ("sinusoidal", "rotary"):
            raise InputError(
                f"theta is the base of sinusoidal and rotary positions; these are {wanted}"
                + ("" if scheme else ": say which positions to put in their place")
            )
        if wanted == scheme_of(self.layer) and theta is None:
            return Order(self.layer, True, "")
        width = self.layer.n_embd if self.layer.project == "rows" else self.layer.token_embedding.embedding_dim
        base = 10_000.0 if theta is None else theta
        note = "put in place of the model's own for this walk"
        module: nn.Module | None
        if wanted == "none":
            module = None
        elif wanted == "learned":
            module = LearnedPositions(NEWBORN_POSITIONS, width, init_std=self.init_std, seed=0, dtype=self.layer.dtype)
            note = "newborn: random, and " + note
        elif wanted == "sinusoidal":
            module = SinusoidalPositions(width, theta=base)
        elif isinstance(own, RotaryPositions):
            angles = own.angles
            turned = (
                replace(angles, theta=base)
                if isinstance(angles, Angles)
                else {name: replace(one, theta=base) for name, one in angles.items()}
            )
            module = RotaryPositions(own.head_dim, turned, pairing=own.pairing, layout=own.layout, float32=own.float32)
        else:
            module = RotaryPositions(min(USUAL_HEAD, width - width % 2), Angles(theta=base))
        layer = with_modules(self.layer, position_embedding=module)
        layer.position_id_rule = (
            PositionIdRule()
        )  # the model's own may number padding in a way that is for its own table only
        return Order(layer, False, note)

    def _wide(self, scheme: str | None, theta: float | None) -> Embeddings:
        """The layer of `order` with its small parts in float32, to run backwards with."""
        layer = self.order(scheme, theta).layer
        parts = {name: part for name, part in layer._modules.items() if name != "token_embedding"}
        return with_modules(layer, **{name: part and copy.deepcopy(part).float() for name, part in parts.items()})

    def _merges(self, ids: tuple[int, ...]) -> list[Merge] | None:
        """How the bytes of one split became these ids."""
        told = None if self.tokenizer is None else self.tokenizer.merges(ids)
        if told is None:
            return None
        return [Merge(left=one.left.hex(), right=one.right.hex(), rank=one.rank, id=one.id) for one in told]

    def _turned(self, scheme: str | None, theta: float | None, shown: int, length: int, dims: int) -> list[Turned]:
        """What rotary positions prepare for the first tokens of a text of `length`: the same for every such text."""
        return turn(self.order(scheme, theta).layer, torch.arange(shown), length, dims)

    def __repr__(self) -> str:
        rows, width = self.table.shape
        return f"{type(self).__name__}({self.source!r}, {rows:,} x {width:,} {self.table.dtype})"


def with_modules(layer: Embeddings, **modules: nn.Module | None) -> Embeddings:
    """The same layer with some of its parts replaced; the rest is shared, not copied."""
    twin = copy.copy(layer)
    twin._modules = dict(layer._modules)
    for name, module in modules.items():
        setattr(twin, name, module)
    return twin.eval()


def _in_memory(name: str, weight: Tensor) -> TableFacts:
    rows, width = weight.shape
    dtype = dtype_name(weight.dtype)
    return TableFacts(
        name=name, file=None, remote=False, dtype=dtype, row_dtype=dtype, shape=(rows, width), offset=0,
        row_bytes=width * weight.itemsize, itemsize=weight.itemsize,
    )  # fmt: skip


def _stored_facts(stored: TensorInfo, row_dtype: str, remote: bool) -> TableFacts:
    rows, width = stored.shape
    row_bytes = stored.nbytes // rows
    plain = stored.dtype in SAFETENSORS_DTYPES
    return TableFacts(
        name=stored.name, file=stored.file, remote=remote, dtype=stored.dtype, row_dtype=row_dtype,
        shape=(rows, width), offset=stored.offset, row_bytes=row_bytes, itemsize=row_bytes // width if plain else None,
    )  # fmt: skip


def scheme_of(layer: Embeddings) -> str:
    position = layer.position_embedding
    return "none" if position is None else type(position).__name__.removesuffix("Positions").lower()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
