"""What one of several processes does in test_parallel.py; torchrun starts them. Results of the first go to a folder.

An assertion that fails in any process ends the job, and with it the test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn import functional

from inlayer.errors import CheckpointError, ConfigError, IdRangeError, InputError
from inlayer.head import Head
from inlayer.tables import Table
from inlayer.training import parallel
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.parallel import (
    World,
    clip_gradients,
    full_optimizer_state,
    full_state,
    load_full_optimizer_state,
    load_full_state,
    shard,
    take_rows,
    whole,
    world,
)

STEPS, SAVED, SHARP = 50, 44, 6
VOCABULARY, PADDING = 97, 3  # a prime: no number of processes divides it
TABLE = "embeddings.token_embedding.weight"
# Tied and not, on both architectures; each in both ways.
MODELS = {"tied": {"architecture": "gpt", "tie": True}, "untied": {"architecture": "llama", "tie": False}}


class Run(NamedTuple):
    """What a run of the prototype leaves behind; its state is whole in the first process only."""

    losses: list[float]
    norms: list[float]
    decoder: Decoder
    optimizer: torch.optim.AdamW
    state: dict[str, Tensor]


def make_model(model: str, dtype: torch.dtype = torch.float32, *, seed: int = 0, **settings: Any) -> Decoder:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "block_size": 12}
    config = DecoderConfig(**{**sizes, **MODELS[model], "padding_idx": PADDING, **settings})
    return Decoder(config, seed=seed, dtype=dtype)


def make_batch(step: int) -> Tensor:
    """Windows in which each id says the next, so that there is something to learn; the first rows end in padding."""
    random = torch.Generator().manual_seed(step)
    windows = torch.randint(0, VOCABULARY, (8, 13), generator=random)
    for place in range(1, 13):
        windows[:, place] = (windows[:, place - 1] * 5 + 2) % VOCABULARY
    windows[:3, 9:] = PADDING
    return windows


def make_optimizer(decoder: Decoder) -> torch.optim.AdamW:
    """In two groups, as a table has a rate of its own: torch's fused step takes no mixture of sharded and whole."""
    table = [decoder.embeddings.token_embedding.weight]
    table += [] if decoder.head.tied else [decoder.head.weight]
    rest = [one for one in decoder.parameters() if all(one is not other for other in table)]
    return torch.optim.AdamW([{"params": table}, {"params": rest}], lr=0.01, fused=True)


def train(
    decoder: Decoder, how: str, world: World, *, start: int = 0, stop: int = STEPS, state: Any = None, control: str = ""
) -> Run:
    """A plain loop. `control` leaves out what makes many processes equal to one."""
    decoder = shard(decoder, how, world)
    if control == "no tie":
        decoder.head.untie()
    optimizer = make_optimizer(decoder)
    if state is not None:
        load_full_state(decoder, to_model(state))
        load_full_optimizer_state(decoder, optimizer, to_moments(state))
    losses, norms = [], []
    for step in range(start, stop):
        windows = make_batch(step)
        own = take_rows(windows, how, world)
        divided = how == "data" and world.size > 1
        count = int((windows[:, 1:] != PADDING).sum())
        if control == "own means":
            loss = decoder.loss(own[:, :-1], own[:, 1:])
        else:
            loss = decoder.loss(own[:, :-1], own[:, 1:], reduction="sum") * ((world.size if divided else 1) / count)
        loss.backward()
        parts = [parameter.grad.to_local() for parameter in decoder.parameters()] if control == "own norm" else []
        own_norm = nn.utils.get_total_norm(parts)
        norm = clip_gradients(decoder.parameters(), 1.0, world)
        norms.append(float(own_norm if control == "own norm" else norm))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(world.mean(float(loss.detach())))
    kept = {f"model.{name}": tensor for name, tensor in full_state(decoder, world).items()}
    for name, moments in full_optimizer_state(decoder, optimizer, world).items():
        kept |= {f"moment.{name}.{key}": value for key, value in moments.items()}
    return Run(losses, norms, decoder, optimizer, kept)


def to_model(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}


def to_moments(state: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    moments: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        if name.startswith("moment."):
            owner, _, key = name.removeprefix("moment.").rpartition(".")
            moments.setdefault(owner, {})[key] = tensor
    return moments


# ---- what is written for the test to compare


def run_cases(folder: Path, world: World) -> None:
    """The loop in both ways, tied and untied; in float64 for fewer steps, to compare more sharply."""
    for how in parallel.WAYS:
        for model in MODELS:
            write(folder, f"{how}-{model}", train(make_model(model), how, world), world)
            sharp = train(make_model(model, torch.float64), how, world, stop=SHARP)
            check_whole(sharp, how, world)
            write(folder, f"{how}-{model}-float64", sharp, world)
            saved = load_file(folder / f"saved-{model}.safetensors")
            resumed = train(make_model(model, seed=1), how, world, start=SAVED, state=saved)
            write(folder, f"{how}-{model}-resumed", resumed, world)
    for how, control in (("vocab", "no tie"), ("data", "own means"), ("data", "own norm")):
        write(folder, f"control-{control}", train(make_model("tied"), how, world, stop=SHARP, control=control), world)


def write(folder: Path, name: str, run: Run, world: World) -> None:
    if world.is_first:
        save_file(run.state, folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps({"losses": run.losses, "norms": run.norms}))


# ---- what is checked in the processes themselves


def check_whole(run: Run, how: str, world: World) -> None:
    """The tie, the padding row, who holds how much, and that looking does not disturb."""
    decoder, table = run.decoder, run.decoder.embeddings.token_embedding.weight
    assert (decoder.head.weight is table) == decoder.config.tie
    assert isinstance(table, DTensor)
    assert torch.equal(whole(table)[PADDING], torch.zeros(16, dtype=torch.float64))
    assert len(table.to_local()) <= -(-VOCABULARY // world.size)
    assert table.to_local().untyped_storage().nbytes() <= -(-VOCABULARY // world.size) * 16 * 8
    body = decoder.blocks[0].attention.qkv.weight
    assert isinstance(body, DTensor) == (how == "data")
    before = {name: tensor.clone() for name, tensor in to_model(run.state).items()}
    ids = make_batch(99)[:2, :5]
    decoder.eval()
    with torch.no_grad():
        logits = decoder.logits(ids)
    drawn = decoder.generate(ids, 3, temperature=0.0)
    alone = make_model("tied" if decoder.config.tie else "untied", torch.float64).eval()
    # FSDP has left the table whole after a forward without a backward: neither state is to see that.
    moments, after = full_optimizer_state(decoder, run.optimizer, world), full_state(decoder, world)
    assert moments.keys() == to_moments(run.state).keys()
    assert after.keys() == before.keys()
    if world.is_first:
        for name, tensor in after.items():
            torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
        load_full_state(alone, after)
        torch.testing.assert_close(logits, alone.logits(ids), rtol=0, atol=1e-12)
        assert torch.equal(drawn, alone.generate(ids, 3, temperature=0.0))


def check_world(world: World) -> None:
    values = [float("nan"), float("inf"), -0.0, 1.5][: world.size]
    assert repr(world.gather(values[world.rank])) == repr(values)
    assert world.mean(float(world.rank)) == (world.size - 1) / 2
    assert world.any(world.rank == 1)
    assert not world.any(False)


def check_head(world: World) -> None:
    """The loss over shards against the loss of one head with all rows, elementwise, with all that a head can do."""
    mesh = init_device_mesh("cpu", (world.size,), mesh_dim_names=("vocab",))
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 8, generator=random, dtype=torch.float64)
    targets = torch.randint(0, VOCABULARY, (3, 7), generator=random)
    targets[0, :3], targets[1, 0] = PADDING, -100
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"soft_cap": 2.0, "input_scale": 0.5}, {"reduction": "sum"}),
        ({"bias": True, "scale": 3.0, "divisor": 0.7}, {"reduction": "none", "z_loss": 0.1}),
        ({"bias": True}, {"z_loss": 0.1}),
    ]
    for settings, asked in cases:
        found = []
        for sharded in (False, True):
            table = Table(VOCABULARY, 8, padding_idx=PADDING, init="embedding", seed=2, dtype=torch.float64)
            head = Head(8, VOCABULARY, dtype=torch.float64, **settings).tie(table)
            if head.bias is not None:
                with torch.no_grad():
                    head.bias.copy_(torch.linspace(-1, 1, VOCABULARY))
            if sharded:
                parallel._shard_rows(table, mesh)
            given = hidden.clone().requires_grad_()
            mixed = given + table(targets.clamp(min=0))  # from both ends, as in a model
            loss = head.loss(mixed, targets, **asked)
            logits = head(mixed)
            (loss.sum() + logits.square().mean()).backward()
            grads = [given.grad, whole(table.weight.grad), None if head.bias is None else head.bias.grad]
            found.append([loss.detach(), logits.detach(), *(grad for grad in grads if grad is not None)])
            assert torch.equal(whole(table.weight)[PADDING], torch.zeros(8, dtype=torch.float64))
            assert float(grads[1][PADDING].abs().max()) == 0
        for ours, theirs in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        assert float(found[0][3][PADDING + 1].abs().max()) > 1e-3  # control: other rows do get a gradient
    # Nothing to count, and half precision.
    nothing = head.loss(mixed.detach(), torch.full_like(targets, PADDING))
    assert float(nothing.detach()) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert head.loss(mixed.detach(), targets).dtype == torch.float32
    with pytest.raises(IdRangeError, match=f"id {VOCABULARY} at"):
        table(torch.tensor([[0, VOCABULARY]]))
    with pytest.raises(IdRangeError, match=f"outside 0..{VOCABULARY - 1}"):
        head.loss(mixed.detach(), targets + VOCABULARY)


def check_against_torch(world: World) -> None:
    """Torch's own sharded table, head and loss, untied: the same loss and gradients."""
    mesh = init_device_mesh("cpu", (world.size,), mesh_dim_names=("vocab",))
    ids = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(3))[None]  # every row once
    padding_idx: int | None
    for padding_idx in (None, PADDING):
        table = Table(VOCABULARY, 8, init="embedding", seed=2, padding_idx=padding_idx)
        head = Head(8, VOCABULARY)
        theirs = nn.Sequential(nn.Embedding(VOCABULARY, 8, padding_idx), nn.Linear(8, VOCABULARY, bias=False))
        with torch.no_grad():
            theirs[0].weight.copy_(table.weight)
            head.weight.copy_(table.weight)
            theirs[1].weight.copy_(table.weight)
        parallel._shard_rows(table, mesh)
        parallel._shard_rows(head, mesh)
        plan = {
            "0": RowwiseParallel(input_layouts=Replicate()),
            "1": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        }
        parallelize_module(theirs, mesh, plan)
        loss = head.loss(table(ids), ids.roll(1, 1))
        loss.backward()
        with loss_parallel():
            expected = functional.cross_entropy(theirs(ids).flatten(0, 1), ids.roll(1, 1).flatten())
            expected.backward()
        torch.testing.assert_close(loss, expected.full_tensor(), rtol=0, atol=1e-6)
        for ours, reference in zip((table, head), theirs, strict=True):
            torch.testing.assert_close(whole(ours.weight.grad), whole(reference.weight.grad), rtol=0, atol=1e-6)


def check_clipping(world: World) -> None:
    """Copies are averaged, so that they stay equal; None only measures."""
    decoder = shard(make_model("tied"), "vocab", world)
    windows = make_batch(0)
    decoder.loss(windows[:, :-1], windows[:, 1:]).backward()
    scale = decoder.norm.weight
    assert isinstance(scale, Tensor)
    assert scale.grad is not None
    mean = scale.grad + (world.size - 1) / 2
    scale.grad += world.rank
    norm = clip_gradients(decoder.parameters(), None, world)
    torch.testing.assert_close(scale.grad, mean, rtol=0, atol=1e-6)
    assert world.gather(float(norm)) == [float(norm)] * world.size
    clip_gradients(decoder.parameters(), 0.5, world)
    torch.testing.assert_close(float(clip_gradients(decoder.parameters(), None, world)), 0.5, rtol=1e-5, atol=0)


def check_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="choose one of 'data', 'vocab'"):
        shard(make_model("tied"), "both", world)
    with pytest.raises(ConfigError, match="leaves some without a row"):
        shard(make_model("tied", vocab_size=world.size - 1, padding_idx=None), "vocab", world)
    with pytest.raises(ConfigError, match=r"a batch of 1 rows cannot be divided"):
        take_rows(make_batch(0)[:1], "data", world)
    decoder = shard(make_model("tied"), "data", world)
    with pytest.raises(InputError, match="sharded for storage only"):
        decoder.embeddings.token_embedding(torch.tensor([[0]]))
    with pytest.raises(InputError, match="sharded for storage only"):
        decoder.head(torch.zeros(1, 1, 16))
    state = full_state(decoder, World(size=world.size, device=world.device))  # in all of them
    with pytest.raises(CheckpointError, match=r"norm.weight is \(3,\)"):
        load_full_state(decoder, state | {"norm.weight": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"no tensor called norm\.weight"):
        load_full_state(decoder, {name: tensor for name, tensor in state.items() if name != "norm.weight"})


def check_first_decides(world: World) -> None:
    """Decoders that were drawn differently become that of the first."""
    decoder = make_model("tied", seed=world.rank)
    state = full_state(shard(decoder, "vocab", world), World(size=world.size))
    torch.testing.assert_close(state[TABLE], make_model("tied").state_dict()[TABLE], rtol=0, atol=0)
    torch.testing.assert_close(state["norm.weight"], decoder.norm.weight, rtol=0, atol=0)


def check_never_whole(world: World) -> None:
    """A decoder that is cut before it has values, and gets only its part of them."""
    for how in parallel.WAYS:
        for model in MODELS:
            values = make_model(model).state_dict()
            decoder = shard(Decoder(make_model(model).config, device="meta"), how, world).to_empty(device="cpu")
            load_full_state(decoder, values)
            assert (decoder.head.weight is decoder.embeddings.token_embedding.weight) == decoder.config.tie
            ids = make_batch(0)[:, :-1]
            with torch.no_grad():
                logits = decoder.logits(ids)
            torch.testing.assert_close(logits, make_model(model).logits(ids).detach(), rtol=0, atol=1e-5)


CHECKS = (
    check_world,
    check_head,
    check_against_torch,
    check_clipping,
    check_refused,
    check_first_decides,
    check_never_whole,
)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    with world("cpu") as here:
        if what == "cases":
            run_cases(folder, here)
            for check in CHECKS:
                check(here)
        else:
            train(make_model("tied"), "data", here, stop=2)
            if here.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            train(make_model("tied"), "data", here)
        assert dist.is_initialized()
    assert not dist.is_initialized()


if __name__ == "__main__":
    main()
