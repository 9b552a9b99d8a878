"""The pipeline of a walk: tokenizer, layer, head, and the location of every table, prepared once.

text -> ids -> rows -> (+ positions) -> hidden states -> head
- a walk does not modify its pipeline, so several threads can share one
- a random pipeline has a randomly initialized table, to show what a table looks like before training
- see also: the walk (trace/record.py), replacing the position scheme (trace/position_schemes.py)
Tested in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from inlayer.checkpoint import load
from inlayer.checkpoint.layer import find_part
from inlayer.checkpoint.model import Model
from inlayer.checkpoint.store import INTEGERS
from inlayer.embeddings import Embeddings
from inlayer.errors import InputError
from inlayer.families.spec import PositionScheme
from inlayer.families.tensor_names import table_role
from inlayer.files import base_name
from inlayer.formats.dtypes import SAFETENSORS_DTYPES, as_float_dtype
from inlayer.formats.tensor_info import TensorInfo
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.head import Head
from inlayer.tables import StoredEmbedding
from inlayer.tables.stored_table import StoredTable
from inlayer.tensors import dtype_name, one_thread, to_tensor
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import check_text, check_texts, check_tokenizer, token_label
from inlayer.trace.facts import Change, MergeFacts, ModelFacts, Padding, TableFacts, Trace
from inlayer.trace.forward import ForwardPass, RecordedRange, TokenizedText
from inlayer.trace.position_schemes import (
    RANDOM_POSITIONS,
    ActiveLayer,
    Rotary,
    rotate,
    scheme_of,
    with_modules,
    with_positions,
)
from inlayer.trace.record import record_walk, values_of
from inlayer.trace.scene import TableScene, sample_table

MAX_CACHED_VALUES = 2**24  # largest table, in values, cached in float32 between walks: 64 MB
BLOCK_VALUES = 2**24  # values read at a time from a larger table
MAX_RANDOM_VALUES = 2**28  # largest random table, in values: 1 GB
MAX_BLOCK_BYTES = 64  # bytes shown of a quantized row
TOKEN_TABLE = "token_embedding.weight"
STAGE_TABLES = {"token type": "token_type_embedding.weight", "position": "position_embedding.weight"}
CACHE_SIZES = {  # methods whose latest results are cached with the pipeline, and how many
    "active_layer": 32, "float32_layer": 4, "float32_rows": 2, "rotations": 64, "token_text": 65_536, "merges": 4_096,
    "padding": 4,
}  # fmt: skip


class LayerInMemory(NamedTuple):
    """A layer that was not opened from a checkpoint, with the model attributes that a walk needs."""

    embeddings: Embeddings
    tokenizer: Tokenizer | None
    head: Head | None
    source: str
    note: str


class Pipeline:
    """A model prepared for walks. `name` identifies it if there are several to choose from."""

    def __init__(self, model: Model | LayerInMemory, *, name: str = "", tokenizer: Tokenizer | None = None) -> None:
        self.model = model if isinstance(model, Model) else None
        # A single logit needs every row of the head, so that of a remote model is not read.
        has_head = self.model is None or (self.model.has_head and not self.model.store.remote)
        self.head = model.head if has_head else None
        if tokenizer is None and (self.model is None or self.model.has_tokenizer):
            tokenizer = model.tokenizer
        self.tokenizer = None if tokenizer is None else check_tokenizer(tokenizer)
        self.layer, self.source, self.note = model.embeddings, model.source, model.note
        self.name = name or model.source
        spec = None if self.model is None else self.model.spec
        self.family = None if spec is None else spec.family
        self.init_std = float(getattr(self.layer.token_embedding, "init_std", 0.02)) if spec is None else spec.init_std
        self.tables = self._describe_tables()
        self.table = self.tables[TOKEN_TABLE]
        self._one_hot_products: dict[int, Tensor] = {}
        self._tokenized: dict[str, TokenizedText] = {}  # by text; used to size a random table, and kept until the walk
        for method, size in CACHE_SIZES.items():  # not decorators, whose caches would be shared by all pipelines
            setattr(self, method, lru_cache(size)(getattr(self, method)))

    @classmethod
    def from_layer(
        cls, layer: Embeddings, tokenizer: Tokenizer | None, head: Head | None = None, *, source: str, note: str = ""
    ) -> Pipeline:
        """Create a pipeline from a layer in memory."""
        return cls(LayerInMemory(layer.eval(), tokenizer, head, source, note))

    @classmethod
    def random(
        cls, texts: Sequence[str], tokenizer: Tokenizer, *, width: int = 8, positions: PositionScheme = "learned",
        seed: int = 0,
    ) -> Pipeline:  # fmt: skip
        """Create a randomly initialized pipeline with one row per token of the tokenizer, and a padding row."""
        tokenized = {text: TokenizedText(text, *tokenizer._analyze(text)) for text in check_texts(texts)}
        highest = max((token.id + 1 for text in tokenized.values() for token in text.tokens), default=0)
        padding_idx = max(tokenizer.get_vocab_size(), highest)  # ids may exceed the count if the vocabulary has gaps
        longest = max((len(text.tokens) for text in tokenized.values()), default=1)
        rows = padding_idx + 1
        if rows * width > MAX_RANDOM_VALUES:
            raise InputError(
                f"a random table of {rows:,} x {width:,} is too large; with this tokenizer, choose a width of at most "
                f"{MAX_RANDOM_VALUES // rows}"
            )
        block_size = None if positions in {"none", "rotary"} else max(longest, RANDOM_POSITIONS)
        layer = Embeddings(rows, width, block_size, positions=positions, padding_idx=padding_idx, seed=seed)
        head = Head(width, rows, padding_idx=padding_idx, device="meta")
        layer.tie(head)
        pipeline = cls.from_layer(layer, tokenizer, head, source="random", note=f"seed {seed}")
        pipeline._tokenized = tokenized
        return pipeline

    @one_thread()  # so sums do not depend on the machine, and parallel walks do not wait for each other's threads
    @torch.no_grad()
    def walk(
        self,
        texts: Sequence[str] | None,
        *,
        inputs_embeds: Tensor | None = None,
        dims: int = 8,
        max_tokens: int = 256,
        first_token: int = 0,
        first_channel: int = 0,
        change: Change | None = None,
    ) -> Trace:
        """Run a batch of texts, or vectors instead of texts. The arguments are the same as for `inlayer.walk`."""
        if (texts is None) == (inputs_embeds is None):
            raise InputError("pass either texts or inputs_embeds" + ("" if texts is None else ", not both"))
        recorded = RecordedRange(max_tokens, dims, first_token, first_channel)
        result = ForwardPass(self, change or Change(), recorded)
        return record_walk(result.run_texts(texts) if inputs_embeds is None else result.run_vectors(inputs_embeds))

    def facts(self) -> ModelFacts:
        """Summarize the model for a list of models."""
        return ModelFacts(
            name=self.name, source=self.source, note=self.note, family=self.family, shape=self.table.shape,
            dtype=self.table.dtype, positions=scheme_of(self.layer), padding_id=self.padding_id,
            tied=None if self.head is None else self.head.tied, tokenizer=self.tokenizer is not None,
        )  # fmt: skip

    @cached_property
    def title(self) -> str:
        """The source, as shown to other users: for a path on this machine, only its last part."""
        path = Path(self.source)
        return base_name(path) if path.exists() or path.is_absolute() else self.source

    @cached_property
    def padding_id(self) -> int | None:
        """The id that pads shorter texts: the table's padding_idx, else the tokenizer's pad token if it has a row."""
        if self.layer.padding_idx is not None:
            return self.layer.padding_idx
        pad_id = None if self.tokenizer is None else self.tokenizer.pad_id
        return pad_id if pad_id is not None and pad_id < self.layer.vocab_size else None

    # ---- rows

    def _describe_tables(self) -> dict[str, TableFacts]:
        """Describe the token table and the tables of stages that add a row, by the name of the parameter."""
        parameters, model = self.layer.state_dict(), self.model
        parts = [part for part in STAGE_TABLES.values() if part in parameters]
        if model is None:
            weights = {TOKEN_TABLE: self.layer.token_embedding.weight} | {part: parameters[part] for part in parts}
            return {part: _in_memory(part, weight) for part, weight in weights.items()}
        stored = {TOKEN_TABLE: model.table_info} | {part: find_part(model, part) for part in parts}
        row_dtype, remote = dtype_name(self.layer.dtype), model.store.remote
        return {part: _stored(tensor, row_dtype, remote) for part, tensor in stored.items() if tensor is not None}

    def stored_hex(self, ids: Sequence[int], rows_ND: Tensor, channels: slice) -> list[list[str]]:
        """Format values of looked-up rows as stored, most significant byte first; for quantized rows, the first bytes.

        Rows that the lookup converted are read again.
        """
        stored_dtype, itemsize = SAFETENSORS_DTYPES.get(self.table.dtype), self.table.itemsize or 1
        if stored_dtype is not None and stored_dtype.name == dtype_name(rows_ND.dtype):
            raw = rows_ND.contiguous().view(torch.uint8).numpy()
        else:
            raw = self.stored_table.source.take(np.array(ids, np.int64))
        if self.table.itemsize is None:
            channels = slice(0, min(MAX_BLOCK_BYTES, 8 * (channels.stop - channels.start)))
        values = raw.reshape(len(raw), self.table.row_bytes // itemsize, itemsize)[:, channels, ::-1]
        return [row.tobytes().hex(" ", itemsize).split() for row in values]

    def stage_table(self, stage: str, layer: Embeddings) -> TableFacts | None:
        """Return the table whose rows a stage of this layer adds, or None if there is none or it is not the model's."""
        part = STAGE_TABLES.get(stage, "")
        module = part.partition(".")[0]
        is_original = getattr(layer, module, None) is getattr(self.layer, module, None)
        return self.tables.get(part) if is_original else None

    @cached_property
    def table_scene(self) -> TableScene:
        """The table's values at evenly spaced rows and channels."""
        return sample_table(self)

    @cached_property
    def routing_tables(self) -> list[TensorInfo]:
        """The tables with the experts of each token. Those with too few rows are skipped; `inspect` reports them."""
        if self.model is None:
            return []
        store, tokens = self.model.store, self.table.shape[0]
        found = [store.find(name) for name in store.names() if table_role(name) == "routing"]
        shaped = [tensor for tensor in found if tensor.dtype in INTEGERS and len(tensor.shape) == 2]
        return [tensor for tensor in shaped if tensor.shape[0] >= tokens and tensor.shape[1] > 0]

    @cached_property
    def stored_table(self) -> StoredTable:
        """The table as a StoredTable, which geometry/ reads without torch; a table in memory shares its values."""
        table = self.layer.token_embedding
        if isinstance(table, StoredEmbedding):
            return table.table
        weight_VD = table.weight.detach().cpu().contiguous()
        rows_VD = weight_VD.view(torch.uint8).numpy().view(as_float_dtype(weight_VD.dtype))
        return StoredTable.from_array(rows_VD, table.padding_idx)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer, self.table.shape[0])

    def numel(self) -> int:
        """Return the number of values in the table."""
        return math.prod(self.table.shape)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the whole table in float32, block by block, each with the id of its first row."""
        if self.numel() <= MAX_CACHED_VALUES:
            yield 0, self.float32_rows(self.layer.token_embedding)
        else:
            blocks = self.stored_table.blocks(max(1, BLOCK_VALUES // self.table.shape[1]))
            yield from ((start, to_tensor(block).float()) for start, block in blocks)

    def one_hot_product(self, ids: Sequence[int]) -> Tensor:
        """Multiply the one-hot vectors of distinct ids by the whole table; products with a small table are cached."""
        products = self._one_hot_products if self.numel() <= MAX_CACHED_VALUES else {}
        if new := [token_id for token_id in ids if token_id not in products]:
            one_hot_NV = torch.zeros(len(new), self.table.shape[0])
            one_hot_NV[range(len(new)), new] = 1.0
            product_ND = torch.zeros(len(new), self.table.shape[1])
            for start, block in self.blocks():
                product_ND += one_hot_NV[:, start : start + len(block)] @ block
            products.update(zip(new, product_ND, strict=True))
        return torch.stack([products[token_id] for token_id in ids]) if ids else torch.zeros(0, self.table.shape[1])

    def head_rows(self) -> Tensor:
        """Return the head's rows (if it is tied, the table's rows) in float32."""
        assert self.head is not None
        if self.numel() > MAX_CACHED_VALUES:
            return self.head.weight.detach().float()
        return self.float32_rows(self.layer.token_embedding if self.head.tied else self.head)

    # ---- parts of a walk that many walks share

    def active_layer(self, scheme: str | None, theta: float | None) -> ActiveLayer:
        """Return the layer with a different position scheme or theta, or unchanged."""
        return with_positions(self.layer, scheme, theta, self.init_std)

    def float32_layer(self, scheme: str | None, theta: float | None) -> Embeddings:
        """Return the active layer with everything but the table in float32, for the backward pass."""
        layer = self.active_layer(scheme, theta).layer
        parts = {name: part for name, part in layer._modules.items() if name != "token_embedding"}
        return with_modules(layer, **{name: part and copy.deepcopy(part).float() for name, part in parts.items()})

    def float32_rows(self, module: nn.Embedding | StoredEmbedding | Head) -> Tensor:
        return module.weight.detach().float()

    def rotations(self, scheme: str | None, theta: float | None, shown: range, length: int, dims: int) -> list[Rotary]:
        """Return the rotary angles of the shown tokens, which are the same for every text of this length."""
        return rotate(self.active_layer(scheme, theta).layer, shown, length, dims)

    def tokenize(self, text: str) -> TokenizedText:
        assert self.tokenizer is not None
        return self._tokenized.pop(check_text(text), None) or TokenizedText(text, *self.tokenizer._analyze(text))

    def token_text(self, token_id: int) -> str:
        """Return a token's text, or `#id` if it has none."""
        return token_label(self.tokenizer, token_id)

    def merges(self, ids: tuple[int, ...]) -> list[MergeFacts] | None:
        """Return the merges that turned the bytes of one pre-token into these ids."""
        assert self.tokenizer is not None
        if (merges := self.tokenizer.merges(ids)) is None:
            return None
        return [
            MergeFacts(left=merge.left.hex(), right=merge.right.hex(), rank=merge.rank, id=merge.id) for merge in merges
        ]

    def padding(self, first_channel: int, dims: int) -> Padding:
        """Describe the padding token and some channels of its row."""
        if self.padding_id is None:
            return Padding(id=None, is_padding_idx=False, is_zero=False, row=[])
        row_D = self.layer.token_embedding(torch.tensor([self.padding_id]))[0]
        is_padding_idx, is_zero = self.layer.padding_idx is not None, not bool(row_D.float().any())
        row = values_of(row_D, slice(first_channel, first_channel + dims))
        return Padding(id=self.padding_id, is_padding_idx=is_padding_idx, is_zero=is_zero, row=row)

    def __repr__(self) -> str:
        rows, width = self.table.shape
        return f"{type(self).__name__}({self.source!r}, {rows:,} x {width:,} {self.table.dtype})"


def _in_memory(name: str, weight: Tensor) -> TableFacts:
    rows, width = weight.shape
    dtype = dtype_name(weight.dtype)
    return TableFacts(
        name=name, file=None, remote=False, dtype=dtype, row_dtype=dtype, shape=(rows, width), offset=0,
        row_bytes=width * weight.itemsize, itemsize=weight.itemsize,
    )  # fmt: skip


def _stored(tensor: TensorInfo, row_dtype: str, remote: bool) -> TableFacts:
    rows, width = tensor.shape
    row_bytes = tensor.nbytes // rows
    itemsize = row_bytes // width if tensor.dtype in SAFETENSORS_DTYPES else None
    return TableFacts(
        name=tensor.name, file=tensor.file, remote=remote, dtype=tensor.dtype, row_dtype=row_dtype,
        shape=(rows, width), offset=tensor.offset, row_bytes=row_bytes, itemsize=itemsize,
    )  # fmt: skip


def walk(
    text: str | Sequence[str] | None = None,
    model: Model | Pipeline | str | os.PathLike[str] | None = None,
    *,
    inputs_embeds: Tensor | None = None,
    tokenizer: Tokenizer | None = None,
    dims: int = 8,
    max_tokens: int = 256,
    first_token: int = 0,
    first_channel: int = 0,
    positions: PositionScheme | None = None,
    theta: float | None = None,
    swap: tuple[int, int] | None = None,
    pad: int = 0,
) -> Trace:
    """Run a text through a model's embedding layer and record every intermediate value.

    Args:
        text: A text, or several as a batch; shorter ones are padded.
        model: Anything `inlayer.load` accepts or returns. Default: the bundled sample model.
        inputs_embeds: Vectors (B, T, D) or (T, D) instead of a text.
        tokenizer: Replaces the model's tokenizer.
        dims: Number of channels to record per vector.
        max_tokens: Maximum number of tokens to record per text (also used in step 8).
        first_token: Index of the first token to record in each text.
        first_channel: Index of the first channel to record in each vector.
        positions: Replaces the model's position scheme: "none", "learned", "sinusoidal", or "rotary".
        theta: Replaces the base of rotary or sinusoidal positions.
        swap: Indices of two tokens of the first text to swap.
        pad: Number of padding tokens to append.

    Returns:
        The trace: every step from text to hidden states, and the gradients of the rows.

    Raises:
        InputError: If an argument is out of range, or the model lacks a required tokenizer or padding token.
        InlayerError: If the model cannot be opened; see `load`.

    Example:
        >>> trace = inlayer.walk("I love dogs")
        >>> [token.id for token in trace.texts[0].tokens]
        [40, 812, 2228, 82]
    """
    if isinstance(model, Pipeline):
        if tokenizer is not None:
            raise InputError("tokenizer does not apply to a Pipeline; open one with Pipeline(model, tokenizer=...)")
        pipeline = model
    else:
        source = "default" if model is None else model
        pipeline = Pipeline(source if isinstance(source, Model) else load(source), tokenizer=tokenizer)
    texts = [text] if isinstance(text, str) else text
    change = Change(positions=positions, theta=theta, swap=swap, pad=pad)
    return pipeline.walk(
        texts, inputs_embeds=inputs_embeds, dims=dims, max_tokens=max_tokens, first_token=first_token,
        first_channel=first_channel, change=change,
    )  # fmt: skip
