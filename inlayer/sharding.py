"""The floor: a table whose rows lie with several processes, each holding some of them.

- such a weight is a DTensor, cut by rows over a mesh named "vocab"; every process sees the same tokens and holds the
  same hidden states, so that what each finds with its rows adds up to the whole
- two ways across, each the other backward: `to_all` hands equal values to all and adds up their gradients,
  `sum_of_all` adds up values and hands the gradient to all
- torch's own way, RowwiseParallel and loss_parallel, gives the same; it wants the backward inside its context and holds
  all logits of its rows at once
- torch.distributed is imported only where a table is sharded
- not here: who shards a table (training/parallel.py); a table cut for storage only (FSDP), whole while it is used
Checked against one process and against torch's loss_parallel in tests/training/test_parallel.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.errors import InputError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "MESH",
    "HeldRows",
    "cross_entropy",
    "held_rows",
    "is_sharded",
    "join_columns",
    "look_up",
    "rows_each",
    "to_all",
]

MESH = "vocab"


def is_sharded(weight: Tensor) -> bool:
    """Is it a DTensor? Asked by what it has: the class would import torch.distributed for everybody."""
    return isinstance(getattr(weight, "placements", None), tuple)


def rows_each(rows: int, processes: int) -> int:
    """How many rows each process holds; the last may hold fewer."""
    return -(-rows // processes)


class HeldRows(NamedTuple):
    """The rows (L, D) that this process holds, of which the first is row `first` of the table."""

    rows_LD: Tensor
    first: int
    mesh: Any  # a DeviceMesh

    def place(self, row: int | None) -> int | None:
        """Where a row of the table is among those held here; None where it is not."""
        if row is None or not self.first <= row < self.first + len(self.rows_LD):
            return None
        return row - self.first

    def entries(self, bias_V: Tensor | None) -> Tensor | None:
        """The entries of a bias, which every process has whole, that go with the rows held here."""
        if bias_V is None:
            return None
        return to_all(bias_V, self.mesh)[self.first : self.first + len(self.rows_LD)]


def held_rows(weight: Any) -> HeldRows:
    """What this process holds of a sharded weight; its gradient becomes the weight's."""
    mesh: DeviceMesh = weight.device_mesh
    if mesh.mesh_dim_names != (MESH,):
        raise InputError(
            "these rows are sharded for storage only, each process has its own tokens; go through the decoder's "
            "forward or loss, which gathers them, not through its table or head alone"
        )
    return HeldRows(weight.to_local(), mesh.get_local_rank() * rows_each(weight.shape[0], mesh.size()), mesh)


def to_all(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The same values; backward, the gradients of all processes are added up."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    return DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def sum_of_all(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum over all processes; backward, each gets the whole gradient."""
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(x, mesh, [Partial()], run_check=False).full_tensor()


def join_columns(x_L: Tensor, columns: int, mesh: DeviceMesh) -> Tensor:
    """What all processes have along the last axis, side by side; backward, each gets its own part."""
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((*x_L.shape[:-1], columns))
    stride = torch.empty(shape, device="meta").stride()
    whole: Tensor = DTensor.from_local(
        x_L.contiguous(), mesh, [Shard(x_L.dim() - 1)], run_check=False, shape=shape, stride=stride
    ).full_tensor()
    return whole


def look_up(index: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    """The rows of checked ids: each process looks up those it holds, the others are zero there."""
    held = held_rows(weight)
    outside = (index < held.first) | (index >= held.first + len(held.rows_LD))
    rows = functional.embedding((index - held.first).masked_fill(outside, 0), held.rows_LD, held.place(padding_idx))
    return sum_of_all(rows.masked_fill(outside[..., None], 0), held.mesh)


def cross_entropy(logits_CL: Tensor, targets_C: Tensor, held: HeldRows, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Loss and log of the sum of exp of every row of logits, of which this process has the columns it holds rows for.

    One number a process and token crosses over, not its logits. A target that is ignored has loss 0.
    """
    size, rank = held.mesh.size(), held.mesh.get_local_rank()
    logits_CL = logits_CL.to(torch.promote_types(logits_CL.dtype, torch.float32))
    outside_C = (targets_C < held.first) | (targets_C >= held.first + logits_CL.shape[1])
    places_C1 = (targets_C - held.first).masked_fill(outside_C, 0)[:, None]
    of_target_C = logits_CL.gather(1, places_C1)[:, 0].masked_fill(outside_C, 0)
    parts = [torch.zeros_like(of_target_C)] * (size + 1)
    parts[rank], parts[size] = logits_CL.logsumexp(1), of_target_C
    parts_RC = sum_of_all(torch.stack(parts), held.mesh)
    log_sums_C = parts_RC[:size].logsumexp(0)
    return (log_sums_C - parts_RC[size]).masked_fill(targets_C == ignore_index, 0), log_sums_C
