"""Facts about the tables of a layer: their shapes and dtypes, and where their rows are, in a file or in memory.

Part of trace/pipeline.py. Tested in tests/trace/test_walk.py.
"""

from __future__ import annotations

from torch import Tensor

from inlayer.checkpoint.layer import find_part
from inlayer.checkpoint.model import Model
from inlayer.embeddings import Embeddings
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.tensor_info import TensorInfo
from inlayer.tensors import dtype_name
from inlayer.trace.facts import TableFacts

TOKEN_TABLE = "token_embedding.weight"
STAGE_TABLES = {"token type": "token_type_embedding.weight", "position": "position_embedding.weight"}


def describe_tables(layer: Embeddings, model: Model | None) -> dict[str, TableFacts]:
    """Describe the token table and the tables of stages that add a row, by the name of the parameter."""
    parameters = layer.state_dict()
    parts = [part for part in STAGE_TABLES.values() if part in parameters]
    if model is None:
        weights = {TOKEN_TABLE: layer.token_embedding.weight} | {part: parameters[part] for part in parts}
        return {part: _in_memory(part, weight) for part, weight in weights.items()}
    stored = {TOKEN_TABLE: model.table_info} | {part: find_part(model, part) for part in parts}
    row_dtype, remote = dtype_name(layer.dtype), model.store.remote
    return {part: _stored(tensor, row_dtype, remote) for part, tensor in stored.items() if tensor is not None}


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
