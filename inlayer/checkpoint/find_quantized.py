"""Quantized tables in safetensors files: find the tensors with a table's values, scales, and shape.

Store -> [table] -> Model
- FP8 (DeepSeek-V3): `weight` with `weight_scale_inv` (or `weight_scale`, `scale`), for blocks of rows and channels
- MXFP4: 16 bytes for each 32 channels in `weight_blocks` with `weight_scales` (gpt-oss), or in `weight_packed` with
  `weight_scale` (compressed-tensors)
- NVFP4: `weight_packed`, `weight_scale`, and `weight_global_scale` (compressed-tensors), or `weight`, `weight_scale`,
  and `weight_scale_2` (ModelOpt)
- grouped int4 (compressed-tensors): `weight_packed`, `weight_scale`, and `weight_shape`, symmetric only
- int8 (model2vec): `embeddings` without scales
- shapes and dtypes are checked before anything is read. Opening reads only a scalar or a shape
- see also: decoding (formats/dequantization.py), n-gram memories (find_tables.py)
Tested in tests/checkpoint/test_find_quantized.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inlayer.errors import CheckpointError, DtypeError
from inlayer.files import quote
from inlayer.formats.dequantization import SCALE_DTYPES, BlockDecoder, Packing
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.tensor_info import TensorInfo
from inlayer.tables import RowSource, StoredTable
from inlayer.tables.stored_table import PairedRows, RepeatedRows, check_tensor

if TYPE_CHECKING:
    from inlayer.checkpoint.store import FolderStore

MODEL2VEC = "embeddings"  # the name of model2vec's tensor; int8 values are used without a scale, as in model2vec
FP8_BLOCK = 128  # rows and channels that share a scale, unless the config has weight_block_size
FP4_KINDS = {"MXFP4": (32, ("U8", "F8_E8M0")), "NVFP4": (16, ("F8_E4M3",))}  # channels per scale, dtypes of scales
INT4_PER_WORD = 8
PACKED_ENDS = ("_packed", "_blocks")
UNSUPPORTED = ("_zero_point", "_g_idx")  # asymmetric int4, and groups in a different order


@dataclass(frozen=True, kw_only=True)
class QuantizedTable:
    """A table whose values and scales are in separate tensors; `info` describes it as one tensor."""

    info: TensorInfo
    values: TensorInfo
    scales: TensorInfo | None  # None: one factor for all values
    decoder: BlockDecoder
    row_block: int = 1  # rows that share a row of scales

    def open(self, store: FolderStore, padding_idx: int | None) -> StoredTable:
        """Return the table; does not read any rows."""
        source: RowSource = store.open_rows(self.values)
        if self.scales is not None:
            source = PairedRows(source, RepeatedRows(store.open_rows(self.scales), self.row_block, source.rows))
        return StoredTable(
            source, self.info.shape[1], np.dtype(np.float32), decode_rows=self.decoder, padding_idx=padding_idx,
            name=self.info.name,
        )  # fmt: skip


def packed_names(name: str) -> tuple[str, ...]:
    """Return the names under which the values of a quantized tensor `name` may be stored."""
    stem = name.removesuffix(".weight")
    return tuple(f"{base}{end}" for base in dict.fromkeys((name, stem)) for end in PACKED_ENDS)


def logical_name(name: str) -> str:
    """Return the name a quantized tensor would have if it were not quantized. Other names are unchanged."""
    base = name.removesuffix("_packed").removesuffix("_blocks")
    return base if base == name or base.endswith(".weight") else f"{base}.weight"


def stored_values(tensor: TensorInfo) -> int:
    """Return the number of values in a tensor, which may be packed."""
    is_packed = tensor.name.endswith((*PACKED_ENDS, ".weight"))
    packed = {"U8": 2, "I32": INT4_PER_WORD}.get(tensor.dtype) if is_packed else None
    return math.prod(tensor.shape) * (packed or 1)


def find_quantized(store: FolderStore, name: str) -> QuantizedTable | None:
    """Return the quantized table `name`, or None if it is an ordinary tensor or does not exist."""
    tensor = store.find_stored(name)
    if tensor is None:
        return _find_packed(store, name)
    if tensor.dtype.startswith("F8"):
        scale_names = (f"{name}_scale_inv", f"{name}_scale", f"{name.removesuffix('weight')}scale")
        scales = next(filter(None, map(store.find_stored, scale_names)), None)
        if scales is None and name.endswith("weight") and (store.config or {}).get("quantization_config"):
            scales = _require(store, tensor, scale_names[0])
        return None if scales is None else fp8_table(store, tensor, scales)
    if tensor.dtype == "U8" and (factor := store.find_stored(f"{name}_scale_2")) is not None:  # ModelOpt
        return _fp4(store, name, tensor, f"{name}_scale", "NVFP4", factor=_read_scalar(store, factor))
    if tensor.dtype == "I8" and name == MODEL2VEC:
        check_tensor(store.source, tensor, tensor.is_matrix, "a table is (V, D)")
        return _table("byte", tensor, None, tensor)
    return None


def _find_packed(store: FolderStore, name: str) -> QuantizedTable | None:
    """Return the table `name` if its values are packed (MXFP4, NVFP4, or int4), otherwise None."""
    find = store.find_stored
    values = next(filter(None, map(find, packed_names(name))), None)
    if values is None:
        return None
    base = values.name.removesuffix("_packed").removesuffix("_blocks")
    for other in (base + end for end in UNSUPPORTED):
        if find(other) is not None:
            feature = "int4 with zero points or reordered groups"
            raise DtypeError(f"{store.source}: {quote(name)} has {quote(other)}; {feature} is not supported")
    if values.name.endswith("_blocks"):
        return _fp4(store, name, values, f"{base}_scales", "MXFP4")
    if values.dtype != "U8":
        return _int4(store, name, values, base)
    scales, factor = find(f"{base}_scale"), f"{base}_global_scale"
    if scales is not None and scales.dtype in FP4_KINDS["MXFP4"][1] and find(factor) is None:
        return _fp4(store, name, values, scales.name, "MXFP4")
    divisor = _read_scalar(store, _require(store, values, factor))
    return _fp4(store, name, values, f"{base}_scale", "NVFP4", factor=divisor, divides=True)


def _table(
    packing: Packing, values: TensorInfo, scales: TensorInfo | None, info: TensorInfo, row_block: int = 1, **more: Any
) -> QuantizedTable:
    """Build a table of packed values; `more` are additional settings of the decoder."""
    decoder = BlockDecoder(
        packing=packing,
        dtype=np.dtype(np.int8) if values.dtype == "I8" else SAFETENSORS_DTYPES.get(values.dtype, np.dtype(np.uint8)),
        width=info.shape[1],
        value_bytes=values.nbytes // values.shape[0],
        scale_dtype=None if scales is None else SCALE_DTYPES[scales.dtype],
        **more,
    )
    return QuantizedTable(info=info, values=values, scales=scales, decoder=decoder, row_block=row_block)


def fp8_table(store: FolderStore, values: TensorInfo, scales: TensorInfo) -> QuantizedTable:
    """Build a table of FP8 values with one scale, or with one for each block of rows and channels."""
    check_tensor(store.source, values, values.is_matrix, "a table is (V, D)")
    check_tensor(store.source, scales, scales.dtype in SCALE_DTYPES, "scales are floating point")
    rows, width = values.shape
    if math.prod(scales.shape) == 1:
        return _table("byte", values, None, values, factor=_read_scalar(store, scales))
    grid = (*scales.shape, 1) if len(scales.shape) == 1 else scales.shape
    blocks = _block_size(store, (rows, width), grid)
    row_blocks, column_blocks = (-(-size // block) for size, block in zip((rows, width), blocks, strict=True))
    blocked = f"its table {rows:,} x {width:,} in blocks of {blocks[0]} x {blocks[1]}"
    needs = f"{blocked} needs {row_blocks:,} x {column_blocks:,}"
    check_tensor(store.source, scales, grid == (row_blocks, column_blocks), needs)
    return _table("byte", values, scales, values, blocks[0], block=blocks[1])


def _block_size(store: FolderStore, shape: tuple[int, int], grid: tuple[int, ...]) -> tuple[int, int]:
    """Return how many rows and channels share a scale, from the config or else from the shape of the scales."""
    sizes = _settings(store).get("weight_block_size")
    is_stated = isinstance(sizes, list) and len(sizes) == 2 and all(type(size) is int and size > 0 for size in sizes)
    rows, channels = sizes if sizes and is_stated else (FP8_BLOCK, None)
    if len(grid) == 2 and grid[0] == shape[0]:  # one or more scales per row, even if other tensors have fewer
        return 1, _channels_per_scale(shape[1], grid[1], [channels] if channels else []) or channels or FP8_BLOCK
    return rows, channels or FP8_BLOCK


def _settings(store: FolderStore) -> dict[str, Any]:
    settings = (store.config or {}).get("quantization_config")
    return settings if isinstance(settings, dict) else {}


def _group_sizes(store: FolderStore) -> list[int]:
    """Return the group sizes in a compressed-tensors config, which may define several quantization schemes."""
    schemes = _settings(store).get("config_groups")
    schemes = schemes.values() if isinstance(schemes, dict) else ()
    weights = [scheme.get("weights") for scheme in schemes if isinstance(scheme, dict)]
    sizes = [scheme.get("group_size") for scheme in weights if isinstance(scheme, dict)]
    return [size for size in sizes if type(size) is int and size > 0]


def _channels_per_scale(width: int, groups: int, stated: Sequence[int]) -> int | None:
    """Return how many channels share a scale; None if a row cannot have that many. The last group may be shorter."""
    if groups == 1:
        return width
    sizes = stated or [size for size in (width // max(groups, 1), FP8_BLOCK) if size > 1 and size & (size - 1) == 0]
    return next((size for size in sizes if -(-width // size) == groups), None)


def _fp4(
    store: FolderStore, name: str, values: TensorInfo, scales_name: str, kind: str, **factor: Any
) -> QuantizedTable:
    """Build a table of FP4 values in blocks. Only gpt-oss has an axis for the blocks."""
    block, scale_dtypes = FP4_KINDS[kind]
    rows, *sizes = values.shape or (0,)
    blocks, rest = divmod(math.prod(sizes) * 2, block)
    shaped = sizes in ([blocks, block // 2], [blocks * block // 2]) and rows * blocks > 0 and rest == 0
    rule = f"{kind} values are U8 (V, D / {block}, {block // 2}) or (V, D / 2)"
    check_tensor(store.source, values, shaped and values.dtype == "U8", rule)
    scales = _require(store, values, scales_name)
    fits = scales.shape == (rows, blocks) and scales.dtype in scale_dtypes
    check_tensor(store.source, scales, fits, f"expected {scale_dtypes[0]} {(rows, blocks)}")
    info = replace(values, name=name, dtype=kind, shape=(rows, blocks * block))
    return _table("fp4", values, scales, info, block=block, **factor)


def _int4(store: FolderStore, name: str, values: TensorInfo, base: str) -> QuantizedTable:
    check_tensor(store.source, values, values.is_matrix and values.dtype == "I32", "int4 values are I32 (V, D / 8)")
    rows, width = values.shape[0], values.shape[1] * INT4_PER_WORD
    if (shape := store.find_stored(f"{base}_shape")) is not None:
        check_tensor(store.source, shape, shape.shape == (2,), "expected two integers")
        stated = tuple(int(size) for size in store.read_integers(shape.name))
        fits = stated[0] == rows and width - INT4_PER_WORD < stated[1] <= width
        check_tensor(store.source, shape, fits, f"its values {stated} do not match packed values {values.shape}")
        width = stated[1]
    scales, sizes = _require(store, values, f"{base}_scale"), _group_sizes(store)
    fits = len(scales.shape) == 2 and scales.shape[0] == rows and scales.dtype in SAFETENSORS_DTYPES
    block = _channels_per_scale(width, scales.shape[1], sizes) if fits else None
    grouped = f" in groups of {' or '.join(map(str, sizes))}" if sizes else ""
    needs = f"expected {rows:,} rows of scales for {width:,} channels{grouped}"
    check_tensor(store.source, scales, block is not None, needs)
    info = replace(values, name=name, dtype="INT4", shape=(rows, width))
    return _table("int4", values, scales, info, block=block)


def _read_scalar(store: FolderStore, tensor: TensorInfo) -> float:
    """Read the scale of a whole table: one finite number other than 0."""
    single = math.prod(tensor.shape) == 1 and tensor.dtype in SAFETENSORS_DTYPES
    check_tensor(store.source, tensor, single, "expected one number")
    factor = float(store.read(tensor.name).reshape(-1)[0])
    usable = math.isfinite(factor) and factor != 0
    check_tensor(store.source, tensor, usable, f"it is {factor}; expected a finite number")
    return factor


def _require(store: FolderStore, values: TensorInfo, name: str) -> TensorInfo:
    if (tensor := store.find_stored(name)) is None:
        raise CheckpointError(f"{store.source}: {quote(values.name)} has no scales; {quote(name)} is missing")
    return tensor
