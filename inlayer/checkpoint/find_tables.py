"""Which tensors of a checkpoint are tables: the token table, and every other tensor that is indexed by tokens.

Store -> [tables] -> Model
- the token table has a usual name and the size that the config requires, or is the best candidate
- the others are found by name (families/weights.py) and checked by shape; only headers are read
Tested on checkpoints that transformers wrote in tests/checkpoint/test_tables.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.quantized import logical_name
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, InlayerError
from inlayer.families import LayerSpec
from inlayer.families.weights import TABLES, TableRole, table_candidates, table_role
from inlayer.files import quoted
from inlayer.formats.safetensors import TensorInfo

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model


@dataclass(frozen=True, kw_only=True)
class TableInfo(TensorInfo):
    """A table of a checkpoint: what it is for, where it is stored, and its share of the model's parameters."""

    role: TableRole
    share: float | None  # None if the number of parameters of the whole model is not known


def list_tables(model: Model) -> tuple[TableInfo, ...]:
    """Every table of a checkpoint, the token table first."""
    parameters = model.store.parameters()
    return tuple(describe_table(model, name, role, parameters) for name, role in table_names(model))


def table_names(model: Model) -> Iterator[tuple[str, TableRole]]:
    """Name and role of every table: the token table, the head, then the others in the order of the files."""
    first = [model.table_info.name] + ([] if model.head_name in (None, model.table_info.name) else [model.head_name])
    yield from zip(first, ("token", "head"), strict=False)
    for name in map(logical_name, model.store.names()):
        role = table_role(name)
        if role is not None and name not in first and _has_its_shape(model, name, role):
            yield name, role


def describe_table(model: Model, name: str, role: TableRole, parameters: int | None) -> TableInfo:
    """The table `name` of a model with this number of parameters."""
    tensor = model.store.find(name)
    return TableInfo(**vars(tensor), role=role, share=math.prod(tensor.shape) / parameters if parameters else None)


def _has_its_shape(model: Model, name: str, role: TableRole) -> bool:
    """Whether a tensor with the name of a table can be one. In a block, other tensors have such names as well."""
    try:
        shape = model.store.find(name).shape
    except InlayerError:
        return True  # reported when it is described
    return len(shape) == 2 and 0 not in shape and (role != "mtp" or shape == model.table_info.shape)


def find_table(store: Store, spec: LayerSpec | None) -> TensorInfo:
    """The token table: under a usual name if it has the size that the config requires, otherwise the best candidate."""
    size = (None, None) if spec is None else (spec.vocab_size, spec.row_width or spec.n_embd)
    usual = store.first_of(TABLES)
    tensor = None if usual is None else store.find(usual)
    if tensor is None or len(tensor.shape) != 2 or (spec is not None and tensor.shape != size):
        shapes: dict[str, tuple[int, ...]] = {}
        first_error = None
        for name in store.names():
            try:
                shapes[name] = store.find(name).shape
            except InlayerError as error:  # noqa: PERF203  # in one file or tensor; the table may be another
                first_error = first_error or error
        candidates = table_candidates(shapes, *size, tied=spec is not None and spec.head.tied)
        if not candidates:
            raise first_error or CheckpointError(
                f"{store.where} has no embedding table: no tensor has the name of a table, or its size; "
                + store.explain_missing_table()
            )
        tensor = store.find(candidates[0])
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise CheckpointError(
            f"{store.where}: tensor {quoted(tensor.name)} has shape {quoted(tensor.shape)}; a table is (V, D)"
        )
    return tensor


def same_bytes(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two arrays have the same dtype and bytes."""
    return one.dtype == other.dtype and np.array_equal(one.view(np.uint8), other.view(np.uint8))
