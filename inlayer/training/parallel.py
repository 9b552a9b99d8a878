"""Multi-process training over torch.distributed (gloo on CPUs, nccl on GPUs), started with torchrun.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- "data": each process takes some rows of the batch and stores a shard of every weight (FSDP2: blocks are gathered
  while they are used, and gradients are averaged)
- "vocab": each process takes the whole batch and stores all blocks, but only some rows of the table and the head
  (DTensor); no process ever holds all logits (inlayer/sharding.py)
- gradients, and the norm used to clip them, match those of one process with the whole batch. Therefore, in "data" mode,
  each process multiplies the sum of its losses by size / number of targets
- tying is by module (tying.py), so there is one weight to shard in both modes
- states are gathered whole, under the decoder's names, so any number of processes can write and read the same files
- a single process makes the same calls, but starts no process group, and its results are bit-identical
- not supported: combining the modes, and splitting blocks
- see also: the training loop (resumable_run.py), files (state.py)
Tested with three processes against one in tests/training/test_parallel.py; docs/scaling.md has sizes and commands.
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
from torch.optim import Optimizer

from inlayer.errors import CheckpointError, ConfigError, InlayerError, InputError
from inlayer.sharding import MESH, is_sharded, own_rows, rows_per_process
from inlayer.training.decoder import Decoder
from inlayer.training.optimizer import CoupledAdamW, zero_moments

CPU = torch.device("cpu")

# This is longer than torch's default, because the main process may encode a large corpus while the others wait.
TIMEOUT = timedelta(hours=2)
# Parts of torch's messages after another process has ended.
CONNECTION_ERRORS = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "tcpstore")


@dataclass(frozen=True, kw_only=True)
class DistributedContext:
    """One process's view of the process group. All processes must call the collective methods, in the same order."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_main(self) -> bool:
        """True if this is the process that writes files and reports progress."""
        return self.rank == 0

    def gather(self, value: float) -> list[float]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [float(value)]
        local = torch.tensor(value, dtype=torch.float64, device=self.device)
        values = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(values, local)
        return [float(value) for value in values]

    def any(self, flag: bool) -> bool:
        return any(self.gather(float(flag)))

    def barrier(self) -> None:
        self.gather(0.0)


@contextmanager
def distributed_context(device_name: str | None = None) -> Iterator[DistributedContext]:
    """Join the processes that torchrun started, or make a group of one. An existing torch process group is reused.

    The device is CUDA if available, otherwise the CPU, unless `device_name` is given.
    """
    rank, size = _rank_and_size()
    device = choose_device(device_name, size)
    if size == 1:
        yield DistributedContext(device=device)
        return
    created = not dist.is_initialized()
    if created:
        on_gpu = device.type == "cuda"
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT, device_id=device if on_gpu else None)
    try:
        yield DistributedContext(rank=rank, size=size, device=device)
        dist.barrier()  # a process that left early would break the others' communication
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(part in str(error).lower() for part in CONNECTION_ERRORS):
            raise
        raise InlayerError(
            f"process {rank} of {size} lost its connection: another process ended or cannot be reached; --resume "
            f"continues from the last saved state ({str(error).splitlines()[0]})"
        ) from error
    finally:
        if created:
            dist.destroy_process_group()


def _rank_and_size() -> tuple[int, int]:
    """Return the rank and the number of processes, from torch or from the environment that torchrun sets."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    found = {name: os.environ.get(name) for name in names}
    if found["RANK"] is None and found["WORLD_SIZE"] is None:
        return 0, 1
    rank, size = (int(value) if value and value.isdecimal() else -1 for value in (found["RANK"], found["WORLD_SIZE"]))
    if not 0 <= rank < size or (size > 1 and None in found.values()):
        raise InputError(
            f"{', '.join(f'{name} is {value!r}' for name, value in found.items())}; torchrun sets all of them: "
            "torchrun --nproc-per-node N -m inlayer train ..."
        )
    return rank, size


def choose_device(name: str | None, n_processes: int) -> torch.device:
    """Return the device of this process. Raises ConfigError if torch cannot use the requested device."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    name = name or ("cuda" if available["cuda"] else "cpu")
    if not available[name]:
        usable = " or ".join(device for device in available if available[device])
        raise ConfigError(f"device is {name}, which torch {torch.__version__} cannot use here; use {usable}")
    if name == "mps" and n_processes > 1:
        raise ConfigError(f"device mps works only in a single process, but there are {n_processes}; use --device cpu")
    if name != "cuda":
        return torch.device(name)
    local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= gpus:
        raise InputError(
            f"local rank {local} has no GPU: this machine has {gpus}; start at most {gpus} processes on it"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


# ---- sharding


def shard(decoder: Decoder, mode: str, context: DistributedContext) -> Decoder:
    """Shard the decoder over the processes, in place, with the weights of the main process.

    Create the optimizer afterwards, and call the decoder in all processes. A group of one changes nothing.
    """
    if context.size == 1:
        return decoder
    if mode == "data" and context.device == CPU and not hasattr(torch.cpu.Stream, "record_event"):  # FSDP2 needs it
        raise ConfigError(
            f"--parallel data needs torch 2.7 or newer on CPUs, and this is {torch.__version__}; upgrade torch, "
            "or use --parallel vocab"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    rows = decoder.config.vocab_size
    if mode == "vocab" and rows <= rows_per_process(rows, context.size) * (context.size - 1):
        raise ConfigError(
            f"vocab_size {rows} is too small for {context.size} processes: some would store no rows; use fewer "
            "processes, or --parallel data"
        )
    for tensor in (*decoder.parameters(), *decoder.buffers()):
        if not tensor.is_meta:
            dist.broadcast(tensor.detach(), 0)
    mesh = init_device_mesh(context.device.type, (context.size,), mesh_dim_names=(MESH if mode == "vocab" else "data",))
    if mode == "data":
        for block in decoder.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(decoder, mesh=mesh)
        register_fsdp_forward_method(decoder, "loss")
    else:
        shard_rows(decoder.embeddings.token_embedding, mesh)
        if not decoder.head.tied:
            shard_rows(decoder.head, mesh)
    assert not decoder.head.tied or decoder.head.weight is decoder.embeddings.token_embedding.weight
    return decoder


def shard_rows(module: nn.Module, mesh: Any) -> None:
    """Replace a module's weight with this process's rows of it."""
    from torch.distributed.tensor import DTensor, Shard

    weight = module.get_parameter("weight")
    local = weight.detach()[own_rows(len(weight), mesh)].clone()  # each process has a full copy
    sharded = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=weight.shape, stride=weight.stride())
    module.register_parameter("weight", nn.Parameter(sharded, requires_grad=weight.requires_grad))


# ---- one step


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float | None, context: DistributedContext) -> Tensor:
    """Clip the global gradient norm to `max_norm` (None only measures it) and return the norm before clipping.

    Sharded gradients contribute this process's part. Replicated gradients are averaged first, because
    GPUs may add in different orders, and the copies must stay equal.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    parts = [gradient.to_local() for gradient in gradients if is_sharded(gradient)]  # type: ignore[attr-defined]
    copies = [gradient for gradient in gradients if not is_sharded(gradient)]
    if context.size > 1:
        for gradient in copies:
            dist.all_reduce(gradient)
            gradient.div_(context.size)
    norm = nn.utils.get_total_norm(copies)
    if parts:
        squares = nn.utils.get_total_norm(parts).to(context.device) ** 2
        dist.all_reduce(squares)
        norm = (norm.to(squares) ** 2 + squares).sqrt()
    if max_norm is not None and gradients:
        torch._foreach_mul_([*copies, *parts], (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


# ---- state


def full_tensor(tensor: Any) -> Tensor:
    """Return the whole tensor if it is sharded. This is a collective call."""
    whole: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return whole


@torch.no_grad()
def full_state(decoder: Decoder, optimizers: Iterable[Optimizer], context: DistributedContext) -> dict[str, Tensor]:
    """Return weights as "model.NAME" and moments as "optimizer.NAME.KEY", whole and on the CPU.

    The result is empty in all processes except the main one. Tensors that are not sharded are not copied: write them
    before the next step.
    """
    state = {}
    for name, tensor in _tensors(decoder, optimizers).items():  # only the main process holds more than one whole tensor
        gathered = full_tensor(tensor)
        if context.is_main:
            state[name] = gathered.detach().cpu()
    return state


@torch.no_grad()
def load_full_state(decoder: Decoder, optimizers: Iterable[Optimizer], state: Mapping[str, Tensor]) -> None:
    """Load the result of `full_state`, on any number of processes. Each process passes the whole state."""
    optimizers, names = list(optimizers), {parameter: name for name, parameter in decoder.named_parameters()}
    for optimizer in optimizers:
        optimizer.state.clear()
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if f"optimizer.{names[parameter]}.step" in state:  # the parameter has had a gradient
                optimizer.state[parameter] = zero_moments(parameter, shared=isinstance(optimizer, CoupledAdamW))
    local = _tensors(decoder, optimizers)
    ours, theirs = (
        {name: f"{tuple(tensor.shape)} of {tensor.dtype}" for name, tensor in tensors.items()}
        for tensors in (local, state)
    )
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise CheckpointError(
                f"{name} is {theirs.get(name, 'missing')} in the state and {ours.get(name, 'missing')} in the decoder; "
                "is the state from another model?"
            )
    for name, tensor in local.items():
        if is_sharded(tensor):
            tensor.to_local().copy_(state[name][own_rows(len(tensor), tensor.device_mesh)])
        else:
            tensor.copy_(state[name])


def _tensors(decoder: Decoder, optimizers: Iterable[Optimizer]) -> dict[str, Any]:
    if reshard := getattr(decoder, "reshard", None):
        reshard()  # drops the root weights that FSDP keeps gathered after a forward without a backward
    tensors: dict[str, Any] = {f"model.{name}": tensor for name, tensor in decoder.state_dict().items()}
    moments = {parameter: values for optimizer in optimizers for parameter, values in optimizer.state.items()}
    for name, parameter in decoder.named_parameters():
        tensors |= {f"optimizer.{name}.{key}": value for key, value in moments.get(parameter, {}).items()}
    return tensors
