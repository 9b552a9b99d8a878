"""Torch modules for an opened checkpoint: its input layer and its head.

Store -> Model -> [embeddings, head]
- token rows stay in the file; small parts (positions, token types, norm, projection) are read in the table's dtype
- a stored head that differs from the table is not tied, regardless of the config, as in transformers
- everything is frozen and in evaluation mode unless the model is loaded as trainable, which reads rows into memory
Tested against transformers, on checkpoints written by transformers, in tests/checkpoint/test_parity.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inlayer.checkpoint.find_tables import (
    NGRAM_PROJECTION,
    equals_table,
    find_part_name,
    find_parts,
    head_shape,
    value_tables,
)
from inlayer.checkpoint.model import Model
from inlayer.embeddings import Embeddings
from inlayer.errors import CheckpointError, DtypeError
from inlayer.families import LayerSpec
from inlayer.formats.tensor_info import TensorInfo
from inlayer.head import Head
from inlayer.positions import sinusoidal_encoding
from inlayer.tables import StoredEmbedding, StoredTable, Table
from inlayer.tables.stored_table import check_tensor
from inlayer.tensors import to_tensor, torch_dtype
from inlayer.tying import use_stored_rows

FLOAT32_PARTS = ("position_embedding.alpha",)  # regardless of the model's dtype
MAX_PART = 256 << 20  # bytes; the largest tables of learned positions are about 100 MB


def build_embeddings(model: Model) -> Embeddings:
    """Return the input layer of a checkpoint."""
    rows, width = model.table_info.shape
    if model.config is None:
        layer = Embeddings(rows, width, positions="none", device="meta")
    else:
        layer = Embeddings.from_config(model._require_spec(), device="meta")
        needed = layer.token_embedding.embedding_dim
        check_tensor(model.source, model.table_info, width == needed, f"its config requires rows of width {needed:,}")
        if model.table.dtype.name.startswith("float8") and _computes(model._require_spec()):
            problem = f"its table is {model.table.dtype} without scales, and torch cannot compute hidden states in it"
            raise DtypeError(f"{model.source}: {problem}; load another dtype: inlayer.load(source, dtype='bfloat16')")
    layer.set_input_embeddings(_rows(model, model.table))
    if (extra := layer.per_layer_embedding) is not None and extra.table is not None:
        extra.table = _other_rows(model, "per_layer_embedding.table.weight", extra.table)
    if layer.value_embedding is not None:
        layer.value_embedding = _other_rows(model, "value_embedding.weight", layer.value_embedding)
    if names := value_tables(model):
        tables = {number: model.store.table(name).astype(model.table.dtype) for number, name in names.items()}
        layer.value_tables = nn.ModuleDict({str(number): _rows(model, table) for number, table in tables.items()})
        layer.value_layers = tuple(sorted(tables))
    parts = {part: _read_part(model, part, like) for part, like in layer.state_dict().items() if like.is_meta}
    layer.load_state_dict(parts, assign=True, strict=False)
    layer.ngram_memories = model.ngram_memories
    if any(spec.added == "projected_mean" for spec in layer.ngrams):
        layer.ngram_projection = nn.Parameter(_read_ngram_projection(model))
    return layer.requires_grad_(model.trainable).train(model.trainable)


def _computes(spec: LayerSpec) -> bool:
    """Return whether the layer computes anything beyond looking up rows."""
    return (
        (spec.scale, spec.input_multiplier, spec.norm_eps, spec.projection_at, spec.n_token_types)
        != (1.0, 1.0, None, None, 0)
        or spec.positions in ("learned", "sinusoidal")
        or any(ngrams.added != "no" for ngrams in spec.ngrams)
    )


def _rows(model: Model, table: StoredTable) -> Table | StoredEmbedding:
    """Return a stored table, in memory if it is to be trained."""
    stored = StoredEmbedding(table)
    return stored.in_memory() if model.trainable else stored


def _other_rows(model: Model, part: str, like: Table | StoredEmbedding) -> Table | StoredEmbedding:
    """Return another table of the layer, in the token table's dtype."""
    tensor = _require_part(model, part, like.weight)
    return _rows(model, model.store.table(tensor.name, like.padding_idx).astype(model.table.dtype))


def build_head(model: Model) -> Head:
    """Return the head of a checkpoint that has one."""
    name = model.head_name
    if name is not None and model.is_tied and equals_table(model, name):
        name = None
    if model.spec is None:
        rows, width = model.table_info.shape
        head = Head(width, rows, device="meta", dtype=torch_dtype(model.table.dtype))
    else:
        head = model.embeddings.head_from_config(model.spec, tied=name is None, device="meta")
    if name is not None:
        table, size = model.store.table(name), head_shape(model)
        check_tensor(model.source, model.store.find(name), table.shape == size, f"a head for this table is {size}")
        stored = StoredEmbedding(table if model.dtype is None else table.astype(model.dtype))
        if model.trainable:
            head.weight = nn.Parameter(stored.weight.clone())  # type: ignore[misc]
        else:
            use_stored_rows(head, stored)
    bias, shapes = find_part(model, "head.bias"), ((head.vocab_size,), (1, head.vocab_size))  # BART has the second
    shape = bias.shape if bias is not None and bias.shape in shapes else None
    if head.bias is not None or shape is not None:
        like = torch.empty(shape or shapes[0], device="meta")
        head.bias = nn.Parameter(_read_part(model, "head.bias", like).flatten())
    return head.requires_grad_(model.trainable).train(model.trainable)


def _read_ngram_projection(model: Model) -> Tensor:
    """Return the projections of a memory's hash heads (heads, D of a row, D), in the table's dtype."""
    spec, parts = model.ngram_memories[0].spec, find_parts(model.store, NGRAM_PROJECTION)
    shape = (model.table_info.shape[1], spec.width)
    for part in parts:
        fits = part.shape == shape and len(parts) == spec.n_hash_heads and part.nbytes <= MAX_PART
        rule = f"its config requires {spec.n_hash_heads} projections of shape {shape}, and there are {len(parts):,}"
        check_tensor(model.source, part, fits, rule)
    dtype = torch_dtype(model.table.dtype)
    return torch.stack([to_tensor(model.store.read(part.name)).to(dtype).T for part in parts])


def find_part(model: Model, part: str) -> TensorInfo | None:
    """Find the tensor of a small part of the layer, by its name in `embeddings.state_dict()`, or "head.bias"."""
    name = find_part_name(model, part)
    return None if name is None else model.store.find(name)


def _require_part(model: Model, part: str, like: Tensor) -> TensorInfo:
    """Return a part of the layer, checked to have the shape the config requires."""
    tensor, shape = find_part(model, part), tuple(like.shape)
    if tensor is None:
        raise CheckpointError(f"{model.source} has no tensor for {part}, which its config requires")
    check_tensor(model.source, tensor, tensor.shape == shape, f"its config requires {shape}")
    return tensor


def _read_part(model: Model, part: str, like: Tensor) -> Tensor:
    """Read a small part of the layer in the table's dtype."""
    dtype = torch.float32 if part in FLOAT32_PARTS else torch_dtype(model.table.dtype)
    computed = part == "position_embedding.weight" and model.spec is not None and model.spec.sinusoidal_if_missing
    if computed and like.numel() * 4 <= MAX_PART and find_part(model, part) is None:
        return sinusoidal_encoding(torch.arange(len(like)), like.shape[1], layout="half").to(dtype)
    tensor = _require_part(model, part, like)
    check_tensor(model.source, tensor, tensor.nbytes <= MAX_PART, f"this part has at most {MAX_PART:,} bytes")
    return to_tensor(model.store.read(tensor.name)).to(dtype)
