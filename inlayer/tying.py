"""Base module: the table that a head is tied to, and keeping gradients away from its padding row.

hidden states -> head -> [tied table]
Tested in tests/test_head.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from inlayer.errors import InputError, ShapeError


def without_row_gradient(weight_VD: Tensor, row: int) -> Tensor:
    """The same rows; one of them gets no gradient."""
    if not (weight_VD.requires_grad and torch.is_grad_enabled()):
        return weight_VD
    result: Tensor = MaskRowGradient.apply(weight_VD, row)  # type: ignore[no-untyped-call]
    return result


class MaskRowGradient(torch.autograd.Function):
    """Identity whose backward pass sets the gradient of one row to zero.

    A hook on the parameter would be lost by deepcopy or .to(). The gradient is changed in place, which is safe: only
    the projection and the chunked loss use this weight, each creates a gradient of its own, and a copy would take as
    much memory as the table.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight_VD: Tensor, row: int) -> Tensor:  # noqa: ARG004
        """The same values as a new node of the graph."""
        return weight_VD.view_as(weight_VD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        """Remember the row."""
        ctx.row = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_VD: Tensor) -> tuple[Tensor, None]:
        """The gradient with zeros in that row."""
        grad_VD[ctx.row] = 0
        return grad_VD, None


def resolve_table(source: nn.Module) -> nn.Module:
    """The module that owns the rows: the source's input embeddings, or the source itself."""
    getter = getattr(source, "get_input_embeddings", None)
    table = getter() if callable(getter) else source
    # The class is checked first: the weight of a stored table would read all of its rows.
    if not isinstance(table, nn.Module) or not (hasattr(type(table), "weight") or hasattr(table, "weight")):
        raise InputError(
            f"{type(source).__name__} cannot be tied to: it has neither .weight nor .get_input_embeddings()"
        )
    return table


def table_size(table: nn.Module) -> tuple[int, int]:
    """(V, D), without reading the rows of a table in a file."""
    rows, width = getattr(table, "num_embeddings", None), getattr(table, "embedding_dim", None)
    in_memory = "weight" in table._parameters or "weight" in table._buffers
    if not in_memory and isinstance(rows, int) and isinstance(width, int):
        return rows, width
    weight = table.weight
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ShapeError(f"{type(table).__name__} has no weight of shape (V, D)")
    return weight.shape[0], weight.shape[1]
