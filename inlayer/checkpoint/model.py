"""load: the embedding layer, head and tokenizer of a checkpoint, each read when it is asked for.

Store -> [Model] -> tokenizer, embeddings, head
- opening finds the table and reads nothing of it; rows come from the file when they are looked up
- the small parts (positions, token types, norm, projection) are read whole and take the table's dtype
- a file without a config opens as rows alone, without positions; a config of an unknown family does not: its rows can
  be looked up in `table`, but what its layer adds to them is not guessed
- a head is there where the checkpoint has one: a tensor of its own, or the table where the config ties them and the
  model's class has a head at all. Tied by the config and yet different in the files, it is not tied, as in transformers
- everything is frozen and in evaluation mode; `embeddings.token_embedding.in_memory()` makes rows that can learn
Checked against transformers on checkpoints it wrote in tests/checkpoint/test_parity.py.
"""

from __future__ import annotations

import os
import re
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inlayer.checkpoint.open import DEFAULT, open_store
from inlayer.checkpoint.store import Store
from inlayer.embeddings import Embeddings
from inlayer.errors import CheckpointError, ConfigError, DtypeError, InlayerError
from inlayer.families import LayerSpec, describe
from inlayer.families.weights import HEADS, TABLES, choose_head, choose_part, table_candidates
from inlayer.formats.safetensors import TensorInfo
from inlayer.head import Head
from inlayer.paths import quoted
from inlayer.tables import StoredTable
from inlayer.tokenizers import Tokenizer

__all__ = ["Model", "load"]

WITH_HEAD = re.compile(r"LMHead|DoubleHeads|For(CausalLM|MaskedLM|ConditionalGeneration|PreTraining)|LM$")
LARGEST_PART = 256 << 20  # bytes; the largest learned positions have some 100 MB
COMPARED_ROWS = 4096  # at once
FETCHED_ROWS = 64  # of a remote head, to tell whether it is the table


def load(source: str | os.PathLike[str] | None = None, *, dtype: torch.dtype | None = None) -> Model:
    """Open a checkpoint's embedding layer without loading the model: only what is asked for is read.

    `source` is a folder, a .safetensors, .gguf or old .bin file, a hub id (`org/name`, `org/name@revision`), or a
    sample's name; without one it is the sample that inlayer carries. Rows keep the dtype of the file, unless `dtype`
    asks for another.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise DtypeError(f"dtype is {dtype!r}; give a floating point torch dtype, such as torch.float32")
    source = DEFAULT if source is None else source
    model = Model(open_store(source), dtype)
    model._recipe = source, dtype
    return model


class Model:
    """A checkpoint's embedding layer. `source` says where it is, `note` what to say of it wherever it shows."""

    _recipe: tuple[str | os.PathLike[str], torch.dtype | None]

    def __init__(self, store: Store, dtype: torch.dtype | None = None) -> None:
        self.store, self.source, self.note, self.config = store, store.where, store.note, store.config
        self._dtype = dtype
        self.stored = find_table(store, self.spec)

    @cached_property
    def spec(self) -> LayerSpec | None:
        """What the config says of the layer; None where there is no config, or one of an unknown family."""
        try:
            return None if self.config is None else describe(self.config)
        except ConfigError as error:
            self._refusal = error
            return None

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The checkpoint's own tokenizer; None where it has none."""
        return self.store.open_tokenizer()

    @cached_property
    def table(self) -> StoredTable:
        """The rows alone, on demand. The same module as `embeddings.token_embedding`."""
        spec, rows = self.spec, self.stored.shape[0]
        padding_idx = spec.padding_idx if spec is not None and (spec.padding_idx or 0) < rows else None
        table = self.store.table(self.stored.name, padding_idx)
        return table if self._dtype is None else table.to(self._dtype)

    @cached_property
    def embeddings(self) -> Embeddings:
        """The whole input layer: rows, positions, and what else the family has."""
        rows, width = self.stored.shape
        if self.spec is None and self.config is not None:
            raise ConfigError(f"{self._refusal}. Its rows can be looked up all the same: load(...).table(ids)")
        if self.config is None:
            layer = Embeddings(rows, width, positions="none", device="meta")
        else:
            layer = Embeddings.from_config(self.config, device="meta")
            if layer.token_embedding.embedding_dim != width:
                raise CheckpointError(
                    f"{self.source}: the table {quoted(self.stored.name)} is {rows:,} x {width:,}, but its config asks "
                    f"for rows of width {layer.token_embedding.embedding_dim:,}"
                )
        layer.set_input_embeddings(self.table)
        parts = {part: self._read(part, like) for part, like in layer.state_dict().items()}
        layer.load_state_dict(parts, assign=True)
        return layer.requires_grad_(False).eval()

    @cached_property
    def head(self) -> Head | None:
        """The head, or None where the checkpoint has none."""
        own, tied = self.head_name, self.spec is not None and self.spec.head.tied
        if own is not None and tied and self._equals_table(own):
            own = None
        if own is None and not (tied and self._has_head()):
            return None
        if self.config is None or self.spec is None:
            head = Head(self.stored.shape[1], self.stored.shape[0], device="meta", dtype=self.table.dtype)
        else:
            head = self.embeddings.head_from_config(self.config, tied=own is None, device="meta")
        if own is not None:
            rows = self.store.table(own)
            if (rows.num_embeddings, rows.embedding_dim) != (head.vocab_size, head.n_embd):
                raise CheckpointError(
                    f"{self.source}: the head {quoted(own)} is {rows.num_embeddings:,} x {rows.embedding_dim:,}, the "
                    f"table {head.vocab_size:,} x {head.n_embd:,}"
                )
            head.store(rows.to(self._dtype or rows.dtype))
        if head.bias is not None:
            head.bias = nn.Parameter(self._read("head.bias", head.bias))
        return head.requires_grad_(False).eval()

    @cached_property
    def candidates(self) -> list[str]:
        """Every tensor that could be the table, the likeliest first; reads the headers of all files."""
        return candidates_of(self.store, *_size(self.spec), tied=self.spec is not None and self.spec.head.tied)

    @cached_property
    def head_name(self) -> str | None:
        """The tensor of a head in the files, whatever the config says of it."""
        usual = self.store.first_of(HEADS)
        return choose_head(self.store.names()) if usual is None and not self.store.remote else usual

    def _equals_table(self, name: str) -> bool:
        """Is a tied model's head in the files the table again? If not, it counts, as it does for transformers."""
        stored = self.store.find(name)
        if stored.shape != self.stored.shape:
            return False
        rows, head, table = stored.shape[0], self.store.table(name), self.store.table(self.stored.name)
        if self.store.remote:  # not two whole tables for one answer
            some = np.linspace(0, rows - 1, FETCHED_ROWS).astype(np.int64)
            return _same_bytes(head.read(some), table.read(some))
        pairs = zip(head.blocks(COMPARED_ROWS), table.blocks(COMPARED_ROWS), strict=True)
        return all(_same_bytes(one, other) for (_, one), (_, other) in pairs)

    def _has_head(self) -> bool:
        """Was the model saved with its head? Its class says so; a masked-language head also has a bias in the files."""
        classes = (self.config or {}).get("architectures")
        if isinstance(classes, list) and classes and not any(WITH_HEAD.search(str(name)) for name in classes):
            return False
        biased = self.spec is not None and self.spec.head.bias
        return not biased or choose_part("head.bias", self.store.names(), self.stored.name) is not None

    def find_part(self, part: str) -> TensorInfo | None:
        """Where a small part of the layer lies, by its name in `embeddings.state_dict()`."""
        name = choose_part(part, self.store.names(), self.stored.name)
        return None if name is None else self.store.find(name)

    def _read(self, part: str, like: Tensor) -> Tensor:
        """A small part of the layer, which must have the shape the config gives it."""
        stored = self.find_part(part)
        if stored is None:
            raise CheckpointError(f"{self.source} holds no tensor for {part}, which its config asks for")
        name = stored.name
        if stored.shape != tuple(like.shape):
            raise CheckpointError(
                f"{self.source}: tensor {quoted(name)} has shape {quoted(stored.shape)}; its config asks for "
                f"{tuple(like.shape)}"
            )
        if stored.nbytes > LARGEST_PART:
            raise CheckpointError(
                f"{self.source}: tensor {quoted(name)} has {stored.nbytes:,} bytes; of a part that is read whole up to "
                f"{LARGEST_PART:,} are believed"
            )
        return self.store.read(name).to(self.table.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        source, dtype = self._recipe
        return partial(load, dtype=dtype), (source,)  # it names the source; nothing that was read goes with it

    def __repr__(self) -> str:
        rows, width = self.stored.shape
        family = self.spec.family if self.spec is not None else "unknown family"
        return f"Model({self.source!r}, {family}, {rows:,} x {width:,} {self.stored.dtype})"


def find_table(store: Store, spec: LayerSpec | None) -> TensorInfo:
    """The table of token rows: under its usual name if it has the size the config asks for, else the likeliest."""
    rows, width = _size(spec)
    tied = spec is not None and spec.head.tied
    usual = store.first_of(TABLES)
    if usual is not None:
        stored = store.find(usual)
        if len(stored.shape) == 2 and (spec is None or stored.shape == (rows, width)):
            return _checked(store, stored)
    candidates = candidates_of(store, rows, width, tied=tied)
    if not candidates:
        raise CheckpointError(
            f"{store.where} holds no embedding table: no tensor has a table's name, or its size and no head's name; is "
            "a shard missing?"
        )
    return _checked(store, store.find(candidates[0]))


def candidates_of(store: Store, rows: int | None, width: int | None, *, tied: bool) -> list[str]:
    """Every tensor that could be the table, the likeliest first."""
    shapes: dict[str, tuple[int, ...]] = {}
    refusal = None
    for name in store.names():
        try:
            shapes[name] = store.find(name).shape
        except InlayerError as error:  # noqa: PERF203  # of one file, or one tensor: the table may be another
            refusal = refusal or error
    found = table_candidates(shapes, rows, width, tied=tied)
    if not found and refusal is not None:
        raise refusal
    return found


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def _size(spec: LayerSpec | None) -> tuple[int | None, int | None]:
    """Rows and width of the table as the config has them."""
    return (None, None) if spec is None else (spec.vocab_size, spec.row_width or spec.n_embd)


def _checked(store: Store, stored: TensorInfo) -> TensorInfo:
    if len(stored.shape) != 2 or 0 in stored.shape:
        raise CheckpointError(
            f"{store.where}: tensor {quoted(stored.name)} has shape {stored.shape}; a table is (V, D)"
        )
    return stored
