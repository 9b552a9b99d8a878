"""Many processes, one training run: started with torchrun, over torch's own engine (gloo on CPUs, nccl on GPUs).

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- "data": every process has its own rows of the batch and a shard of every weight (FSDP2: gathered block by block while
  it is used, gradients averaged)
- "vocab": every process has the whole batch and the whole body, and some rows of table and head (DTensor); logits exist
  only in parts (sharding.py)
- gradients come out as those of one process with the whole batch, and so does the norm they are clipped by. With "data"
  they are means over the processes: each takes the sum of its losses, times n, over the number of targets in all
- a tie is by module (head.py) and outlives both: there is one weight to shard
- state is gathered whole under the decoder's own names: n processes write what one would, and any number reads it
- a world of one is no special case for the caller: the same calls, no process group, the same bits as without them
- not here: the loop (training/run.py), files (training/state.py), both ways at once, sharding of the body's matrices
Checked on 2 and 4 processes against one in tests/training/test_parallel.py; sizes and commands in docs/scaling.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from inlayer.errors import CheckpointError, ConfigError, InlayerError
from inlayer.sharding import MESH, is_sharded, rows_each
from inlayer.training.decoder import Decoder

__all__ = [
    "WAYS",
    "World",
    "clip_gradients",
    "full_optimizer_state",
    "full_state",
    "load_full_optimizer_state",
    "load_full_state",
    "shard",
    "take_rows",
    "whole",
    "world",
]

WAYS = ("data", "vocab")
CPU = torch.device("cpu")

# Longer than torch's own: the first process may write the tokens of a large corpus while the others wait.
PATIENCE = timedelta(hours=2)
LOST = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "tcpstore")  # in torch's messages


@dataclass(frozen=True, kw_only=True)
class World:
    """The processes of a run, seen from one of them. What crosses over must be called by all, in the same order."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Is this the process that writes files and talks?"""
        return self.rank == 0

    def gather(self, value: float) -> list[float]:
        """Everybody's value, by rank."""
        if self.size == 1:
            return [float(value)]
        values = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        values[self.rank] = value
        # Added up as bits, not as numbers: a NaN or an infinity of one process is not to spread.
        bits = values.view(torch.int64)
        dist.all_reduce(bits)
        return bits.view(torch.float64).tolist()

    def mean(self, value: float) -> float:
        """The mean of everybody's value, the same for all."""
        return sum(self.gather(value)) / self.size

    def any(self, flag: bool) -> bool:
        """Has anybody raised a flag: was one process asked to stop?"""
        return any(self.gather(float(flag)))

    def barrier(self) -> None:
        """Wait until all are here."""
        self.gather(0.0)


@contextmanager
def world(device: torch.device | str | None = None) -> Iterator[World]:
    """The world that torchrun made, or a world of one; its end is the end of the process group.

    `device` is where to train: unsaid, the GPU of this process where there is one. A process group that is there
    already is used and left.
    """
    rank, size = _place()
    place = _device(device)
    if size == 1:
        yield World(device=place)
        return
    mine = not dist.is_initialized()
    if mine:
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE, device_id=place if place.type == "cuda" else None)
    try:
        yield World(rank=rank, size=size, device=place)
        dist.barrier()  # who leaves first takes nothing away from those who still talk
    except RuntimeError as error:
        if not _lost(error):
            raise
        raise InlayerError(
            f"process {rank} of {size} lost the others: one of them ended or cannot be reached; --resume goes on from "
            f"the last checkpoint ({str(error).splitlines()[0]})"
        ) from error
    finally:
        if mine:
            dist.destroy_process_group()


def _place() -> tuple[int, int]:
    """Rank and number of processes, as torchrun says."""
    said = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if all(value is None for value in said.values()):
        return 0, 1
    try:
        rank, size = (int(value or "") for value in said.values())
    except ValueError:
        rank, size = 0, 0
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if size > 1 and name not in os.environ]
    if not 0 <= rank < size or missing:
        raise ConfigError(
            f"RANK is {said['RANK']!r} and WORLD_SIZE {said['WORLD_SIZE']!r}"
            + (f", {' and '.join(missing)} is not set" if missing else "")
            + "; torchrun sets all of them: torchrun --nproc-per-node N -m inlayer train ..."
        )
    return rank, size


def _device(device: torch.device | str | None) -> torch.device:
    if device is not None and torch.device(device).type != "cuda":
        return torch.device(device)
    if device is None and not torch.cuda.is_available():
        return torch.device("cpu")
    local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= gpus:
        raise ConfigError(f"process {local} of this machine has no GPU of its own, there are {gpus}; start {gpus} here")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _lost(error: RuntimeError) -> bool:
    """Does the error say that another process is gone, and not that something is wrong here?"""
    return isinstance(error, dist.DistError) or any(sign in str(error).lower() for sign in LOST)


# ---- sharding


def shard(decoder: Decoder, how: str, world: World) -> Decoder:
    """Spread the decoder over the processes, in place, with the values that the first has. Make the optimizer after it.

    In a world of one nothing happens. Whatever calls the decoder afterwards calls it in all processes.
    """
    if how not in WAYS:
        raise ConfigError(f"parallel {how!r} is unknown; choose one of {', '.join(map(repr, WAYS))}")
    if world.size == 1:
        return decoder
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    rows, most = decoder.config.vocab_size, rows_each(decoder.config.vocab_size, world.size)
    if how == "vocab" and rows <= most * (world.size - 1):
        raise ConfigError(
            f"a vocabulary of {rows} over {world.size} processes, {most} each, leaves some without a row; use fewer "
            'processes, or "data"'
        )
    for tensor in (*decoder.parameters(), *decoder.buffers()):
        if not tensor.is_meta:
            dist.broadcast(tensor.detach(), 0)
    mesh = init_device_mesh(world.device.type, (world.size,), mesh_dim_names=(MESH if how == "vocab" else "data",))
    if how == "data":
        for block in decoder.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(decoder, mesh=mesh)
        register_fsdp_forward_method(decoder, "loss")
    else:
        _shard_rows(decoder.embeddings.token_embedding, mesh)
        if not decoder.head.tied:
            _shard_rows(decoder.head, mesh)
    assert not decoder.head.tied or decoder.head.weight is decoder.embeddings.token_embedding.weight
    return decoder


def _shard_rows(module: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    weight = module.get_parameter("weight")
    held = distribute_tensor(weight.detach(), mesh, [Shard(0)], src_data_rank=None)  # each cuts its own copy
    module.register_parameter("weight", nn.Parameter(held, requires_grad=weight.requires_grad))


# ---- one step


def take_rows(batch: Tensor, how: str, world: World) -> Tensor:
    """The rows of a batch that are this process's: every n-th of them, or with "vocab" all."""
    if how == "vocab" or world.size == 1:
        return batch
    if len(batch) < world.size:
        raise ConfigError(
            f"a batch of {len(batch)} rows cannot be divided among {world.size} processes; give each a row at least"
        )
    return batch[world.rank :: world.size]


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], most: float | None, world: World) -> Tensor:
    """Scale all gradients down so that their norm together is `most` or less; returns the norm they had.

    The norm is that of the whole gradient: of a sharded one each process knows a part, of any other all of it. Those
    others are averaged first, which changes nothing where all computed the same, and keeps the copies equal where a
    GPU's sums come out in another order. None only measures.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    parts = [gradient.to_local() for gradient in gradients if is_sharded(gradient)]  # type: ignore[attr-defined]
    copies = [gradient for gradient in gradients if not is_sharded(gradient)]
    if world.size > 1:
        _average(copies)
    norm = nn.utils.get_total_norm(copies)
    if parts:
        squares = nn.utils.get_total_norm(parts).to(world.device) ** 2
        dist.all_reduce(squares)
        norm = (norm.to(squares) ** 2 + squares).sqrt()
    if most is not None and gradients:
        torch._foreach_mul_([*copies, *parts], (most / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _average(tensors: list[Tensor]) -> None:
    """The mean over all processes, in place, in one go."""
    if not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, mean in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


# ---- state


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which this process may hold a part; the others must ask for it, too."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


@torch.no_grad()
def full_state(decoder: Decoder, world: World) -> dict[str, Tensor]:
    """The decoder's state_dict, whole and on the CPU, in the first process; in the others it is empty.

    What was not sharded is not copied: write it before the next step.
    """
    _reshard(decoder)
    return _gather(decoder.state_dict(), world)


@torch.no_grad()
def load_full_state(decoder: Decoder, state: Mapping[str, Tensor]) -> None:
    """Put a whole state into the decoder, sharded or not; every process gives all of it and keeps its part."""
    _reshard(decoder)
    own = decoder.state_dict()
    _check_names(own, state, "tensor")
    for name, tensor in own.items():
        value = state[name]
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise CheckpointError(
                f"{name} is {tuple(value.shape)} of {value.dtype} in the state, {tuple(tensor.shape)} of "
                f"{tensor.dtype} in the decoder; was the state written by another model?"
            )
    for name, tensor in own.items():
        local = tensor.to_local() if is_sharded(tensor) else tensor
        local.copy_(_part(state[name], tensor))


@torch.no_grad()
def full_optimizer_state(
    decoder: Decoder, optimizer: torch.optim.Optimizer, world: World
) -> dict[str, dict[str, Tensor]]:
    """What the optimizer remembers of every parameter, by the parameter's name; in the first process only.

    Parameters that had no gradient yet are not in it. What was not sharded is not copied.
    """
    _reshard(decoder)
    return {
        name: gathered
        for name, parameter in decoder.named_parameters()
        if (gathered := _gather(optimizer.state.get(parameter, {}), world))
    }


@torch.no_grad()
def load_full_optimizer_state(
    decoder: Decoder, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Let the optimizer remember what `full_optimizer_state` gathered, on any number of processes.

    Its settings, learning rates among them, stay as they are.
    """
    _reshard(decoder)
    named = dict(decoder.named_parameters())
    _check_names(named, state, "optimizer state", all_of_them=False)
    numbers = {parameter: number for number, parameter in enumerate(_parameters_of(optimizer))}
    remembered: dict[int, dict[str, Tensor]] = {}
    for name, values in state.items():
        parameter = named[name]
        for key, value in values.items():
            if any(size not in (1, there) for size, there in zip(value.shape, parameter.shape, strict=False)):
                raise CheckpointError(
                    f"{key} of {name} is {tuple(value.shape)} in the state, the parameter is {tuple(parameter.shape)}"
                )
        # What is one number, or one for many values, is whole everywhere; everything else lies as the parameter does.
        remembered[numbers[parameter]] = {
            key: _moment(value, parameter) if value.shape == parameter.shape else value.clone()
            for key, value in values.items()
        }
    optimizer.load_state_dict({"state": remembered, "param_groups": optimizer.state_dict()["param_groups"]})


def _reshard(decoder: Decoder) -> None:
    """FSDP leaves the root's weights whole after a forward without a backward; the shards are what is trained."""
    if reshard := getattr(decoder, "reshard", None):
        reshard()


def _gather(tensors: Mapping[str, Any], world: World) -> dict[str, Tensor]:
    """One after the other, so that only the first process ever holds more than one of them whole."""
    found = {}
    for name, tensor in tensors.items():
        complete = whole(tensor)
        if world.is_first:
            found[name] = complete.detach().cpu()
    return found


def _part(value: Tensor, like: Any) -> Tensor:
    """Of a whole value, the rows that this process holds of `like`: cut where the value is, not on the GPU."""
    if not is_sharded(like):
        return value
    first = like.device_mesh.get_local_rank() * rows_each(len(like), like.device_mesh.size())
    return value[first : first + len(like.to_local())]


def _moment(value: Tensor, parameter: Any) -> Tensor:
    """A copy of a whole moment, or of this process's rows of it, that lies as the parameter does."""
    part = _part(value, parameter).to(parameter.device, copy=True)
    if not is_sharded(parameter):
        return part
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride())


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """In the order in which the optimizer's state_dict numbers them."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _check_names(own: Iterable[str], given: Iterable[str], what: str, *, all_of_them: bool = True) -> None:
    missing, unknown = set(own) - set(given), set(given) - set(own)
    if unknown or (missing and all_of_them):
        raise CheckpointError(
            f"no {what} called {min(missing)} in the state"
            if missing and all_of_them
            else f"the state has a {what} of {min(unknown)}, which the decoder has not; did another model write it?"
        )
