"""Base module: a table whose rows are sharded over several processes.

- the weight is a DTensor, sharded by rows over a mesh named "vocab"; every process has the same tokens and hidden
  states, so the results of all processes add up to the whole
- there are two collectives, and each is the other's backward pass: `copy_to_processes` uses the same values everywhere
  and sums their gradients; `all_reduce_sum` sums values and passes the gradient to all processes
- torch's RowwiseParallel and loss_parallel give the same results, but they require the backward pass inside their
  context and materialize all logits of their rows at the same time
Tested against one process and against torch's loss_parallel in tests/training/test_parallel.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.errors import InputError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

MESH = "vocab"


def is_sharded(weight: Tensor) -> bool:
    """Return whether a weight is a DTensor, decided without importing torch.distributed."""
    return isinstance(getattr(weight, "placements", None), tuple)


def rows_per_process(rows: int, processes: int) -> int:
    """Return the number of rows per process; the last process may have fewer."""
    return -(-rows // processes)


def own_rows(rows: int, mesh: DeviceMesh) -> slice:
    """Return the table rows that this process stores."""
    count = rows_per_process(rows, mesh.size())
    return slice(mesh.get_local_rank() * count, (mesh.get_local_rank() + 1) * count)


class LocalRows(NamedTuple):
    """The rows (M, D) of this process, starting with the table's row `first`."""

    rows_MD: Tensor
    first: int
    mesh: Any  # a DeviceMesh

    def local_index(self, row: int | None) -> int | None:
        """Return a table row's index among the local rows, or None if another process stores it."""
        if row is None or not self.first <= row < self.first + len(self.rows_MD):
            return None
        return row - self.first

    def entries(self, bias_V: Tensor | None) -> Tensor | None:
        """Return the entries of a replicated bias that belong to the local rows."""
        if bias_V is None:
            return None
        return copy_to_processes(bias_V, self.mesh)[self.first : self.first + len(self.rows_MD)]


def local_rows(weight: Any) -> LocalRows:
    """Return this process's rows of a sharded weight; their gradient becomes the weight's gradient."""
    mesh: DeviceMesh = weight.device_mesh
    if mesh.mesh_dim_names != (MESH,):
        raise InputError(
            "these rows are sharded by FSDP, and every process has different tokens; call the decoder's forward or "
            "loss, which gathers the rows, instead of its table or head"
        )
    return LocalRows(weight.to_local(), own_rows(len(weight), mesh).start, mesh)


def copy_to_processes(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return the same values; the backward pass sums the gradients of all processes."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    return DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def all_reduce_sum(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return the sum over all processes; in the backward pass, each process gets the whole gradient."""
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(x, mesh, [Partial()], run_check=False).full_tensor()


def gather_last_dim(x_M: Tensor, columns: int, mesh: DeviceMesh) -> Tensor:
    """Concatenate the last axis over all processes; in the backward pass, each process gets its part."""
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((*x_M.shape[:-1], columns))
    stride = torch.empty(shape, device="meta").stride()
    joined: Tensor = DTensor.from_local(
        x_M.contiguous(), mesh, [Shard(x_M.dim() - 1)], run_check=False, shape=shape, stride=stride
    ).full_tensor()
    return joined


def look_up(index: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    """Return the rows for checked ids: each process looks up the rows it stores, and the results are summed."""
    local = local_rows(weight)
    outside = (index < local.first) | (index >= local.first + len(local.rows_MD))
    rows = functional.embedding(
        (index - local.first).masked_fill(outside, 0), local.rows_MD, local.local_index(padding_idx)
    )
    return all_reduce_sum(rows.masked_fill(outside[..., None], 0), local.mesh)


def cross_entropy(logits_CM: Tensor, targets_C: Tensor, local: LocalRows, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the loss and the logsumexp of every row of logits, from the columns of this process.

    Processes exchange one number per token and process instead of logits. The loss of an ignored target is 0.
    """
    size, rank = local.mesh.size(), local.mesh.get_local_rank()
    logits_CM = logits_CM.to(torch.promote_types(logits_CM.dtype, torch.float32))
    outside_C = (targets_C < local.first) | (targets_C >= local.first + logits_CM.shape[1])
    columns_C1 = (targets_C - local.first).masked_fill(outside_C, 0)[:, None]
    target_logits_C = logits_CM.gather(1, columns_C1)[:, 0].masked_fill(outside_C, 0)
    parts = [torch.zeros_like(target_logits_C)] * (size + 1)
    parts[rank], parts[size] = logits_CM.logsumexp(1), target_logits_C
    parts_GC = all_reduce_sum(torch.stack(parts), local.mesh)
    log_sums_C = parts_GC[:size].logsumexp(0)
    return (log_sums_C - parts_GC[size]).masked_fill(targets_C == ignore_index, 0), log_sums_C
