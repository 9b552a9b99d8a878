"""Base module for torch: tensor checks, conversion from numpy, and the number of threads.

Everything that imports this module needs torch. Checks of plain numbers are in checks.py.
Tested in tests/test_checks.py and tests/tables/test_stored_table.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inlayer.errors import DtypeError, InputError, ShapeError, type_name
from inlayer.shapes import Array

SIGNED_OR_SMALL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # few kernels support them, so they are converted
PLAIN_TYPES = (Tensor, nn.Parameter, nn.Buffer)
RAGGED_HINT = (
    "; call its .padded(pad_id), or, without padding, mean_pool(token_embedding(torch.from_numpy(ragged.flat)), ragged)"
)
FLOAT_HINTS = {
    "input_ids": "are they vectors (inputs_embeds)?",
    "targets": "targets are token ids; for soft labels, pass head(hidden) to torch's cross_entropy",
}


def check_dense(x: object, name: str, hint: str = "") -> Tensor:
    """Check that x is a tensor, neither nested nor sparse."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name} is {type_name(x)}, not a torch tensor{hint}")
    if x.is_nested:
        raise DtypeError(f"{name} is a nested tensor; use inlayer.Ragged for texts of different lengths")
    if x.layout is not torch.strided:
        raise DtypeError(f"{name} is a sparse tensor ({x.layout}); call .to_dense() first")
    return x


def check_ids(ids: object, name: str = "input_ids") -> Tensor:
    """Check that ids are a tensor of integers."""
    hints = {"str": "; encode it first", "Ragged": RAGGED_HINT}
    ids = check_dense(ids, name, hints.get(type(ids).__name__, "; wrap it: torch.tensor([[...]])"))
    if ids.dtype in UNSIGNED:
        signed = ids.to(torch.int64)
        # A value of 2**63 or more becomes negative. Replace it with the largest int64, which is also outside every
        # table.
        return signed.masked_fill(signed < 0, 2**63 - 1) if ids.dtype == torch.uint64 else signed
    if ids.dtype not in SIGNED_OR_SMALL:
        hint = FLOAT_HINTS.get(name, "is it the tensor you meant?")
        hint = "is it a mask?" if ids.dtype == torch.bool else hint
        raise DtypeError(f"{name} has dtype {ids.dtype}; it must have an integer dtype (torch.int64); {hint}")
    return ids


def check_table_dtype(dtype: object) -> None:
    """Check that the dtype of a new table, or None for torch's default, is floating point."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise DtypeError(f"dtype is {dtype!r}; it must be a floating-point torch dtype, such as torch.float32")


def check_float(x: object, name: str, width: int | None = None, axes: tuple[str, ...] | None = None) -> Tensor:
    """Check that x is a floating-point tensor, optionally the size of its last axis and the number of its axes."""
    x = check_dense(x, name)
    if not x.is_floating_point():
        raise DtypeError(f"{name} has dtype {x.dtype}; it holds vectors, so it must be floating point")
    if axes is not None and x.dim() != len(axes):
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; expected {len(axes)} axes: ({', '.join(axes)})")
    if width is not None and not is_jit_tracing() and (x.dim() == 0 or x.shape[-1] != width):
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; its last axis must have width {width}")
    return x


def apply_projection(projection: nn.Linear, vectors: Tensor) -> Tensor:
    """Apply a projection to vectors of its dtype; autocast converts others."""
    dtype = projection.weight.dtype
    if vectors.dtype != dtype and not torch.is_autocast_enabled(vectors.device.type):
        raise DtypeError(
            f"vectors have dtype {vectors.dtype}, but their projection has {dtype}; convert them: .to({dtype})"
        )
    projected: Tensor = projection(vectors)
    return projected


def check_mask(mask: object, batch: int, tokens: int) -> Tensor:
    """Check that an attention mask has one value per token."""
    mask = check_dense(mask, "attention_mask")
    if mask.dim() == 1 and batch == 1:
        mask = mask[None]
    if not is_jit_tracing() and tuple(mask.shape) != (batch, tokens):
        raise ShapeError(
            f"attention_mask has shape {tuple(mask.shape)}; expected ({batch}, {tokens}), 1 for a real token"
        )
    return mask


def mask_from_ids(ids: Tensor, padding_idx: int | None) -> Tensor:
    """Make a mask from ids, as XLM does: if n ids of a text are not padding, its first n tokens count as real."""
    lengths = ids.ne(-1 if padding_idx is None else padding_idx).sum(dim=1, keepdim=True)
    return torch.arange(ids.shape[1], device=ids.device) < lengths


def to_bool_mask(mask: Tensor, name: str) -> Tensor:
    """Convert a mask to bool, after checking that its values are 0 and 1."""
    real = mask == 1
    if not is_meta_or_traced(mask) and not bool((real | (mask == 0)).all()):
        raise InputError(f"{name} has values other than 0 and 1; is it an additive attention mask, or a tensor of ids?")
    return real


def check_one_per_token(ids: Tensor, batch: int, tokens: int, name: str) -> Tensor:
    """Check the shape of position or token type ids. An unusual shape might broadcast and change the batch size."""
    ids = check_ids(ids, name)
    if not is_jit_tracing() and tuple(ids.shape) not in {(tokens,), (1, tokens), (batch, tokens)}:
        raise ShapeError(f"{name} has shape {tuple(ids.shape)}; expected ({batch}, {tokens}) or ({tokens},)")
    return ids


def with_batch_axis(ids: Tensor | None, embeds: Tensor | None, width: int) -> tuple[bool, Tensor | None, Tensor | None]:
    """Check ids and vectors, and add a batch axis to a single text; the first result is True for a single text."""
    single = False
    if ids is not None:
        ids = check_ids(ids)
        if ids.dim() not in (1, 2):
            raise ShapeError(f"input_ids has shape {tuple(ids.shape)}; expected (batch, tokens), or (tokens,)")
        single, ids = ids.dim() == 1, ids[None] if ids.dim() == 1 else ids
    if embeds is not None:
        embeds = check_float(embeds, "inputs_embeds", width=width)
        if embeds.dim() not in (2, 3):
            expected = "(batch, tokens, width), or (tokens, width)"
            raise ShapeError(f"inputs_embeds has shape {tuple(embeds.shape)}; expected {expected}")
        single, embeds = embeds.dim() == 2, embeds[None] if embeds.dim() == 2 else embeds
    return single, ids, embeds


def is_jit_tracing() -> bool:
    """Return whether torch.jit.trace is running. While it is, sizes are tensors, and comparing them warns."""
    return not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None


def multiply(x: Tensor, factor: float, rounded: bool) -> Tensor:
    """Multiply a tensor by a factor, which some models round to the tensor's dtype first."""
    return x * (x.new_full((), factor) if rounded else factor)


def is_meta_or_traced(x: Tensor) -> bool:
    """Return whether this is a tracer's tensor, whose values cannot be read."""
    return (
        torch.compiler.is_compiling()
        or is_jit_tracing()
        or x.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        or type(x) not in PLAIN_TYPES
    )


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return the torch dtype with the same name; numpy's bfloat16 and float8 types come from ml_dtypes."""
    same: torch.dtype = getattr(torch, dtype.name)
    return same


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without "torch.", as configs and messages write it."""
    return str(dtype).removeprefix("torch.")


def to_tensor(array: Array) -> Tensor:
    """Return a tensor that shares the memory of a numpy array; types of ml_dtypes are supported."""
    if array.dtype.name in {"float64", "float32", "float16"}:
        return torch.from_numpy(array)
    # torch.from_numpy does not support ml_dtypes types: pass their bytes and reinterpret them.
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(raw).view(torch_dtype(array.dtype)).view(array.shape)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside the block: on a busy machine, threads wait for each other (docs/log.md)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
