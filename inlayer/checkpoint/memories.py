"""The n-gram memories of a checkpoint: the specs of its config with the tensors of its files.

Store -> [memories] -> Model
- a memory is one tensor, numbered shards, or one tensor per head; FP8 values have block scales in a tensor next to them
- everything is checked against the config before a row is read: the number of parts, rows, widths, scales
- compressed ids are computed from the tokenizer when they are first needed
Tested on tiny and on sparse files of the true size in tests/checkpoint/test_memories.py.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError
from inlayer.files import quoted
from inlayer.formats.block_scales import SCALE_DTYPES, BlockDecoder
from inlayer.formats.safetensors import SAFETENSORS_DTYPES, TensorInfo
from inlayer.ragged import IdArray
from inlayer.tables import StoredTable
from inlayer.tables.ngram import NgramMemory, NgramSpec
from inlayer.tables.row_parts import JoinedRows, PairedRows
from inlayer.tables.stored import check_table
from inlayer.tokenizers.compressed import compressed_ids

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

NGRAM_PROJECTION = "ngram_embeddings.post_projs"


def open_memories(model: Model) -> tuple[NgramMemory, ...]:
    """The n-gram memories of a checkpoint; reads headers only."""
    return () if model.spec is None else tuple(open_memory(model, spec) for spec in model.spec.ngrams)


def open_memory(model: Model, spec: NgramSpec) -> NgramMemory:
    """One memory of the config, checked against its tensors."""
    tensors = find_parts(model.store, spec.tensor)
    _check_rows(model.store.where, spec, tensors)
    compress = None if spec.compressed_size is None else partial(_compress, model, spec.compressed_size)
    table = _open_table(model.store, spec, tensors)
    return NgramMemory(spec, table if model.dtype is None else table.astype(model.dtype), tensors, compress)


def find_parts(store: Store, tensor: str) -> tuple[TensorInfo, ...]:
    """The tensors whose names end with `tensor`, in the order of their numbers if they are numbered."""
    pattern = re.compile(rf"(?:^|\.){re.escape(tensor)}(?:\.(?:shard_)?(\d{{1,6}}))?\.weight$")
    found = sorted((int(match[1] or 0), name) for name in store.names() if (match := pattern.search(name)))
    if not found or [number for number, _ in found] != list(range(len(found))):
        numbers = ", ".join(str(number) for number, _ in found[:8]) or "none"
        raise CheckpointError(
            f"{store.where} does not have all tensors of {tensor}, which its config requires; parts found: " + numbers
        )
    return tuple(store.find(name) for _, name in found)


def _check_rows(where: str, spec: NgramSpec, tensors: tuple[TensorInfo, ...]) -> None:
    for tensor in tensors:
        check_table(tensor)
        if tensor.shape[1] != spec.width or tensor.dtype != tensors[0].dtype:
            raise CheckpointError(
                f"{where}: {quoted(tensor.name)} is {quoted(tensor.shape)} {tensor.dtype}; its config requires rows of "
                f"{spec.width:,} values, all of one dtype"
            )
    sizes = tuple(tensor.shape[0] for tensor in tensors)
    if sum(sizes) != spec.rows or (spec.tensor_per_head and sizes != spec.moduli):
        raise CheckpointError(
            f"{where}: the n-gram memory {spec.tensor} has {sum(sizes):,} rows in {len(sizes):,} tensors; its config "
            f"requires {spec.rows:,} for {spec.heads:,} heads"
        )


def _open_table(store: Store, spec: NgramSpec, tensors: tuple[TensorInfo, ...]) -> StoredTable:
    dtype, sources = SAFETENSORS_DTYPES[tensors[0].dtype], [store.open_rows(tensor) for tensor in tensors]
    decode = None
    if tensors[0].dtype.startswith("F8"):
        width, rounded = spec.width, np.dtype(ml_dtypes.bfloat16)
        decode = BlockDecoder(packing="fp8", dtype=dtype, width=width, value_bytes=width, scale_dtype=None)
        one = store.first_of([tensors[0].name.partition(spec.tensor)[0] + spec.tensor + ".weight_scale"])
        if one is not None:
            decode = replace(decode, factor=_read_factor(store, one))
        else:
            scales = [_find_scales(store, tensor) for tensor in tensors]
            sources = [PairedRows(rows, store.open_rows(scale)) for rows, scale in zip(sources, scales, strict=True)]
            blocks = scales[0].shape[1]
            decode = replace(decode, scale_dtype=SCALE_DTYPES[scales[0].dtype], block=width // blocks)
    source = sources[0] if len(sources) == 1 else JoinedRows(sources)
    if decode is None:
        return StoredTable(source, spec.width, dtype, name=tensors[0].name)
    float32 = np.dtype(np.float32)
    return StoredTable(source, spec.width, float32, decode=decode, dtype=rounded, name=tensors[0].name)


def _read_factor(store: Store, name: str) -> float:
    """The one scale of a whole table (qwen4_exp in FP8)."""
    if math.prod(store.find(name).shape) != 1:
        raise CheckpointError(
            f"{store.where}: {quoted(name)} has shape {quoted(store.find(name).shape)}; expected 1 value"
        )
    return float(store.read(name).astype(np.float32).reshape(()))


def _find_scales(store: Store, tensor: TensorInfo) -> TensorInfo:
    """The block scales of FP8 rows (DeepSeek's Engram)."""
    name = tensor.name.removesuffix("weight") + "scale"
    if store.first_of([name]) is None:
        raise CheckpointError(
            f"{store.where}: {quoted(tensor.name)} is {tensor.dtype} but its scales {quoted(name)} are missing"
        )
    scale = store.find(name)
    rows, width = tensor.shape
    shaped = len(scale.shape) == 2 and scale.shape[0] == rows and scale.shape[1] > 0 and width % scale.shape[1] == 0
    if not shaped or scale.dtype not in SCALE_DTYPES:
        raise CheckpointError(
            f"{store.where}: the scales {quoted(name)} are {quoted(scale.shape)} {scale.dtype}; expected {rows:,} rows "
            f"of scales, each for a block of {width:,} values"
        )
    return scale


def _compress(model: Model, expected: int) -> IdArray:
    compressed = compressed_ids(model.tokenizer)
    found = int(compressed.max()) + 1
    if found != expected:
        raise CheckpointError(
            f"{model.source}: its tokenizer has {found:,} distinct normalized tokens, but its config requires "
            f"{expected:,}, and every hash depends on that number"
        )
    return compressed
