"""A checkpoint's tables: the token table, every other tensor that is indexed by tokens, and n-gram memories.

Store -> [tables, memories] -> Model
- the token table has a usual name and the size the config requires, or it is the best candidate
- other tables are found by name (families/tensor_names.py) and checked by shape. Only headers are read
- an n-gram memory is one tensor, numbered shards, or one tensor per hash head. Everything is checked against the config
  before a row is read. Compressed ids are computed from the tokenizer when they are first needed
Tested in tests/checkpoint/test_tables.py, on checkpoints written by transformers, and in test_ngram_tables.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from inlayer.checkpoint.find_quantized import fp8_table
from inlayer.checkpoint.store import FolderStore, Store
from inlayer.errors import CheckpointError, InlayerError
from inlayer.families import LayerSpec, tensor_names
from inlayer.families.config_reader import text_config
from inlayer.families.tensor_names import TableRole
from inlayer.files import quote
from inlayer.formats.tensor_info import TensorInfo
from inlayer.shapes import Array, Ids, Numbers
from inlayer.tables import StoredTable
from inlayer.tables.ngram_hash import NgramMemory, NgramSpec
from inlayer.tables.stored_table import JoinedRows, check_tensor
from inlayer.tokenizers.huggingface import compressed_ids

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

NGRAM_PROJECTION = "ngram_embeddings.post_projs"
COMPARED_ROWS = 4096  # rows per step when a stored head is compared with the table
SAMPLED_ROWS = 64  # sampled rows of a remote head, to decide whether it matches the table


@dataclass(frozen=True, kw_only=True)
class TableInfo(TensorInfo):
    """A table of a checkpoint, as listed in `Model.tables`.

    Attributes:
        name: Name of the tensor.
        dtype: Dtype as written in the file, such as "BF16".
        shape: Shape of the tensor.
        file: Name of the file that contains it.
        offset: Position of its first byte in the file.
        nbytes: Size in bytes.
        role: Purpose of the table, such as "token" or "head".
        share: Its share of the model's parameters, or None if their number is unknown.

    Example:
        >>> inlayer.load("default").tables[0].name
        'model.embed_tokens.weight'
    """

    role: TableRole
    share: float | None


def table_names(model: Model) -> Iterator[tuple[str, TableRole]]:
    """Yield the name and role of every table: the token table, the head, then the others in the order of the files."""
    first = [model.table_info.name] + ([] if model.head_name in (None, model.table_info.name) else [model.head_name])
    yield from zip(first, ("token", "head"), strict=False)
    for name in model.store.names():
        role = tensor_names.table_role(name)
        if role is not None and name not in first and _has_table_shape(model, name, role):
            yield name, role


def value_tables(model: Model) -> dict[int, str]:
    """Return the value table of each block that has its own, if the family's files may have such tables."""
    if not _may_have_value_tables(model):
        return {}
    names = sorted(name for name, role in table_names(model) if role == "value")
    return {int(match[1]): name for name in names if (match := tensor_names.VALUE_OF_BLOCK.search(name))}


def unsupported_parts(model: Model) -> str:
    """Describe the parts of the checkpoint the layer ignores, or return "" if there are none."""
    if not _may_have_value_tables(model) or not model.store.find_first(tensor_names.SMEAR_GATES):
        return ""
    return "hidden states without the smear gate, which mixes each vector with the one before it"


def _may_have_value_tables(model: Model) -> bool:
    return model.spec is not None and model.spec.family in tensor_names.WITH_VALUE_TABLES


def describe_table(model: Model, name: str, role: TableRole, parameters: int | None) -> TableInfo:
    """Return the table `name` of a model with this number of parameters."""
    tensor = model.store.find(name)
    return TableInfo(**vars(tensor), role=role, share=math.prod(tensor.shape) / parameters if parameters else None)


def _has_table_shape(model: Model, name: str, role: TableRole) -> bool:
    """Return whether a tensor with a table's name has a table's shape. Other tensors in blocks may share the name.

    A copy with the original's name may have a different number of rows, which `inspect` reports.
    """
    try:
        tensor = model.store.find(name)
    except InlayerError:
        return True  # the error is reported when the tensor is described
    if role != "mtp" or not tensor.is_matrix:
        return tensor.is_matrix
    originals = {_module(name) for name in (model.table_info.name, model.head_name or "")} | {"head"}
    is_copy = _module(name) in originals and tensor.shape[1] == model.table_info.shape[1]
    return is_copy or tensor.shape == model.table_info.shape


def _module(name: str) -> str:
    """Return the last module in a tensor's name, such as "embed_tokens"."""
    return name.removesuffix(".weight").rpartition(".")[2]


def find_table(store: Store, spec: LayerSpec | None, config: dict[str, Any] | None) -> TensorInfo:
    """Find the token table: a tensor with a common name and the required size, otherwise the best candidate."""
    size = _table_size(spec, config)
    usual = store.find_first(tensor_names.TABLES)
    if usual is not None and spec is not None and spec.positions == "learned" and not spec.head.tied:
        # In untied encoder-decoders with learned positions (BART), the encoder has its own table.
        own = usual.replace("shared.weight", "encoder.embed_tokens.weight")
        usual = own if own in store.names() else usual
    tensor = None if usual is None else store.find(usual)
    if tensor is None or len(tensor.shape) != 2 or (spec is not None and tensor.shape != size):
        shapes: dict[str, tuple[int, ...]] = {}
        first_error = None
        for name in store.names():
            try:
                shapes[name] = store.find(name).shape
            except InlayerError as error:  # noqa: PERF203  # only this file or tensor is bad, so try the others
                first_error = first_error or error
        candidates = tensor_names.table_candidates(shapes, *size, tied=spec is not None and spec.head.tied)
        if spec is None:
            candidates = candidates or tensor_names.table_candidates(shapes, None, None)
        if not candidates:
            problem = "has no embedding table: no tensor has a table's name or shape"
            raise first_error or CheckpointError(f"{store.source} {problem}; {store.explain_missing_table()}")
        tensor = store.find(candidates[0])
    check_tensor(store.source, tensor, tensor.is_matrix, "a table is (V, D)")
    return tensor


def find_head(store: Store, table: TensorInfo, spec: LayerSpec | None) -> str | None:
    """Find the head's tensor: one with a common head name, or with a common output name and the table's shape.

    A head that is neither stored nor tied to the encoder's table is tied to the decoder's table.
    """
    usual = store.find_first(tensor_names.HEAD_TENSORS)
    if usual is None and not store.remote:
        usual = tensor_names.choose_head(store.names(), partial(has_shape, store, shape=table.shape))
    if usual is None and spec is not None and not spec.head.tied and "encoder." in table.name:
        usual = store.find_first((table.name.replace("encoder.", "decoder."),))
    return usual


def has_head(model: Model) -> bool:
    """Return whether a model has a head: rows of its own, or those of its table.

    The rows of a tied head are not its own, so the model's class decides. A masked-language head also needs its bias.
    """
    name, spec = model.head_name, model.spec
    if spec is None or not spec.head.tied:
        return name is not None
    lacks_bias = spec.head.bias and find_part_name(model, "head.bias") is None
    if tensor_names.config_has_head(model.config) is False or lacks_bias:
        return name is not None and not equals_table(model, name)
    return True


def equals_table(model: Model, name: str) -> bool:
    """Return whether a stored head has the same rows as the table; if not, it is used, as in transformers."""
    tensor = model.store.find(name)
    if tensor.shape != model.table_info.shape:
        return False
    rows, head, table = tensor.shape[0], model.store.table(name), model.store.table(model.table_info.name)
    if model.store.remote:  # do not download two whole tables for this
        sample = np.linspace(0, rows - 1, SAMPLED_ROWS).astype(np.int64)
        return _same_bytes(head.rows(sample), table.rows(sample))
    blocks = zip(head.blocks(COMPARED_ROWS), table.blocks(COMPARED_ROWS), strict=True)
    return all(_same_bytes(a, b) for (_, a), (_, b) in blocks)


def _same_bytes(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))


def find_part_name(model: Model, part: str) -> str | None:
    """Return the tensor name of a part, given as in `embeddings.state_dict()` or as "head.bias"; None if missing."""
    return tensor_names.choose_part(part, model.store.names(), model.table_info.name)


def head_shape(model: Model) -> tuple[int, int]:
    """Return the shape of a stored head: the table's, unless the config gives the head different sizes."""
    rows, width = model.table_info.shape
    head = None if model.spec is None else model.spec.head
    return (rows, width) if head is None else (head.vocab_size or rows, head.n_embd or width)


def has_shape(store: Store, name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor has this shape; False if its file cannot be read."""
    try:
        return store.find(name).shape == shape
    except InlayerError:
        return False


def _table_size(spec: LayerSpec | None, config: dict[str, Any] | None) -> tuple[int, int] | tuple[None, None]:
    """Return rows and width according to the config, even if its family is unknown."""
    if spec is not None:
        return spec.vocab_size, spec.row_width or spec.n_embd
    fields = text_config(config)
    rows, width = fields.get("vocab_size"), fields.get("hidden_size", fields.get("n_embd"))
    return (rows, width) if isinstance(rows, int) and isinstance(width, int) else (None, None)


def read_weights(model: Model) -> Numbers | None:
    """Return the token weights that some model2vec models store, or None."""
    if not model.store.find_first(["weights"]):
        return None
    weights = model.store.read("weights").astype(np.float64)
    if weights.shape != (model.table.num_embeddings,):
        raise CheckpointError(f"{model.source}: weights has shape {weights.shape}; a table has one weight per row")
    return weights


# ---- n-gram memories


def open_memory(model: Model, spec: NgramSpec) -> NgramMemory:
    """Open one n-gram memory of the config, checked against its tensors."""
    tensors = find_parts(model.store, spec.tensor_suffix)
    _check_rows(model.store.source, spec, tensors)
    _check_hashing(model.store, spec, tensors[0].name.partition(spec.tensor_suffix)[0])
    compress = None if spec.compressed_vocab_size is None else partial(_compress, model, spec.compressed_vocab_size)
    table = _open_table(model.store, spec, tensors)
    return NgramMemory(spec, table if model.dtype is None else table.astype(model.dtype), tensors, compress)


def find_parts(store: Store, tensor: str) -> tuple[TensorInfo, ...]:
    """Return the tensors whose names end with `tensor`, in the order of their numbers if they are numbered."""
    pattern = re.compile(rf"(?:^|\.){re.escape(tensor)}(?:\.(?:shard_)?(\d{{1,6}}))?\.weight$")
    parts = sorted((int(match[1] or 0), name) for name in store.names() if (match := pattern.search(name)))
    if not parts or [index for index, _ in parts] != list(range(len(parts))):
        numbers = ", ".join(str(index) for index, _ in parts[:8]) or "none"
        problem = f"does not have all tensors of {tensor}, which its config requires"
        raise CheckpointError(f"{store.source} {problem}; parts found: {numbers}")
    return tuple(store.find(name) for _, name in parts)


def _check_rows(source: str, spec: NgramSpec, tensors: tuple[TensorInfo, ...]) -> None:
    for tensor in tensors:
        fits = tensor.is_matrix and tensor.shape[1] == spec.width and tensor.dtype == tensors[0].dtype
        check_tensor(source, tensor, fits, f"its config requires rows of {spec.width:,} values, all of one dtype")
    sizes = tuple(tensor.shape[0] for tensor in tensors)
    if sum(sizes) != spec.rows or (spec.tensor_per_head and sizes != spec.moduli):
        raise CheckpointError(
            f"{source}: the n-gram memory {spec.tensor_suffix} has {sum(sizes):,} rows in {len(sizes):,} tensors; its "
            f"config requires {spec.rows:,} for {spec.n_hash_heads:,} hash heads"
        )


def _check_hashing(store: Store, spec: NgramSpec, prefix: str) -> None:
    """Check the hash constants in a qwen4_exp checkpoint: if they differ from the config's, other rows are selected."""
    module, names = prefix + spec.tensor_suffix.rpartition(".")[0], set(store.names())
    hashing = {
        "layer_multipliers": spec.multipliers[-1], "ngram_heads_vocab_sizes": spec.moduli,
        "ngram_heads_offsets": spec.offsets,
    }  # fmt: skip
    for name, expected in hashing.items():
        if (stored := f"{module}.{name}") in names:
            tensor = store.find(stored)
            check_tensor(store.source, tensor, tensor.shape == (len(expected),), f"expected {len(expected)} integers")
            equal = tuple(store.read_integers(stored).tolist()) == expected
            check_tensor(store.source, tensor, equal, "its values are not the ones that its config determines")


def _open_table(store: Store, spec: NgramSpec, tensors: tuple[TensorInfo, ...]) -> StoredTable:
    """Open the rows of all tensors. A layer's quantized rows become bfloat16, as in inference engines."""
    name = tensors[0].name
    shared = name.partition(spec.tensor_suffix)[0] + spec.tensor_suffix + ".weight_scale"
    if isinstance(store, FolderStore) and shared != f"{name}_scale" and shared in store.names():  # qwen4_exp
        scale = store.find(shared)
        is_single = math.prod(scale.shape) == 1
        check_tensor(store.source, scale, is_single, "its memory has one scale for all of its tensors")
        first = fp8_table(store, tensors[0], scale).open(store, None)
        sources = [store.open_rows(tensor) for tensor in tensors]
    else:
        tables = [store.table(tensor.name) for tensor in tensors]
        for tensor, table in zip(tensors, tables, strict=True):
            is_scaled = table.decode_rows is not None or not tensor.dtype.startswith("F8")
            scales = quote(tensor.name.removesuffix("weight") + "scale")
            check_tensor(store.source, tensor, is_scaled, f"its scales {scales} are missing")
        first, sources = tables[0], [table.source for table in tables]
        if any(table.decode_rows != first.decode_rows for table in tables):
            problem = "are quantized with different scales for whole tensors, or with blocks of different sizes"
            raise CheckpointError(f"{store.source}: the tensors of {spec.tensor_suffix} {problem}")
    in_layer = first.decode_rows is not None and spec.layer is not None
    joined = sources[0] if len(sources) == 1 else JoinedRows(sources)
    return StoredTable(
        joined, spec.width, first.stored_dtype, decode_rows=first.decode_rows,
        dtype=np.dtype(ml_dtypes.bfloat16) if in_layer else None, name=name,
    )  # fmt: skip


def _compress(model: Model, expected: int) -> Ids:
    compressed = compressed_ids(model.tokenizer if model.has_tokenizer else None)
    distinct = int(compressed.max()) + 1
    if distinct != expected:
        raise CheckpointError(
            f"{model.source}: its tokenizer has {distinct:,} distinct normalized tokens, but its config requires "
            f"{expected:,}, and every hash depends on that number"
        )
    return compressed
