"""The padding row gets no gradient from a tied head, so it stays zero in training.

ids -> [rows] -> hidden states -> head -> loss
- torch's embedding masks the gradient of the lookup (tables/table.py); a projection onto the same rows has no such
  option, so their gradient is masked here
- sharded tables do the same for the rows of each process (head.py)
Tested in tests/test_head.py; the gradients of a walk in tests/trace/.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.tensors import is_jit_tracing


def zero_row(gradient_VD: Tensor, row: int | None) -> Tensor:
    """Set the gradient of a row to zero, in place, and return all gradients. None: there is no padding row."""
    if row is not None:
        gradient_VD[row] = 0
    return gradient_VD


def without_row_gradient(weight_VD: Tensor, row: int) -> Tensor:
    """Return the same rows, with the gradient of one row masked.

    While torch.jit.trace runs, the rows are copied in every grad mode: the tracer verifies a trace without gradients,
    and cannot save a Python function.
    """
    if is_jit_tracing() and weight_VD.requires_grad:
        return torch.select_scatter(weight_VD, weight_VD[row].detach(), 0, row)
    if not (weight_VD.requires_grad and torch.is_grad_enabled()):
        return weight_VD
    result: Tensor = MaskRowGradient.apply(weight_VD, row)  # type: ignore[no-untyped-call]
    return result


class MaskRowGradient(torch.autograd.Function):
    """Identity whose backward pass sets the gradient of one row to zero.

    A hook on the parameter would be lost by deepcopy or .to(). The gradient is changed in place, which is safe: only
    the projection and the chunked loss use this weight, each creates a new gradient, and a copy would take as
    much memory as the table.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight_VD: Tensor, row: int) -> Tensor:  # noqa: ARG004
        """Return the same values as a new node of the graph."""
        return weight_VD.view_as(weight_VD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        """Save the row for the backward pass."""
        ctx.row = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_VD: Tensor) -> tuple[Tensor, None]:
        """Return the gradient with zeros in that row."""
        return zero_row(grad_VD, ctx.row), None
