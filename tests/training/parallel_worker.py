"""Worker process of test_parallel.py, started by torchrun. The main process writes results to a folder.

An assertion that fails in any process ends the job and fails the test.
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
from inlayer.training.config import PARALLEL_MODES, DecoderConfig
from inlayer.training.decoder import Decoder
from inlayer.training.parallel import (
    DistributedContext,
    clip_gradients,
    distributed_context,
    full_state,
    full_tensor,
    load_full_state,
    shard,
)

STEPS, SAVED, FEW = 50, 44, 6
VOCABULARY, PADDING = 97, 3  # a prime: no number of processes divides it
TABLE = "embeddings.token_embedding.weight"
# Tied and untied, on both architectures; each in both modes.
MODELS = {"tied": {"architecture": "gpt", "tie": True}, "untied": {"architecture": "llama", "tie": False}}


class Result(NamedTuple):
    """Result of a training loop; its state is only in the main process."""

    losses: list[float]
    norms: list[float]
    decoder: Decoder
    optimizer: torch.optim.AdamW
    state: dict[str, Tensor]


def make_model(model: str, dtype: torch.dtype = torch.float32, *, seed: int = 0, **settings: Any) -> Decoder:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "block_size": 12}
    config = DecoderConfig(**{**sizes, **MODELS[model], "padding_idx": PADDING, **settings})
    return Decoder(config, seed=seed).to(dtype)


def make_batch(step: int) -> Tensor:
    """Windows in which each id determines the next, so there is something to learn; some end in padding."""
    random = torch.Generator().manual_seed(step)
    windows = torch.randint(0, VOCABULARY, (8, 13), generator=random)
    for column in range(1, 13):
        windows[:, column] = (windows[:, column - 1] * 5 + 2) % VOCABULARY
    windows[:3, 9:] = PADDING
    return windows


def make_optimizer(decoder: Decoder) -> torch.optim.AdamW:
    """AdamW in two groups: torch's fused step cannot mix sharded and replicated parameters."""
    table = [decoder.embeddings.token_embedding.weight]
    table += [] if decoder.head.tied else [decoder.head.weight]
    rest = [parameter for parameter in decoder.parameters() if all(parameter is not shared for shared in table)]
    return torch.optim.AdamW([{"params": table}, {"params": rest}], lr=0.01, fused=True)


def train(
    decoder: Decoder,
    mode: str,
    context: DistributedContext,
    *,
    start: int = 0,
    stop: int = STEPS,
    state: Any = None,
    control: str = "",
) -> Result:
    """A plain loop. `control` omits something that makes several processes equal to one."""
    decoder = shard(decoder, mode, context)
    if control == "no tie":
        decoder.head.untie()
    optimizer = make_optimizer(decoder)
    if state is not None:
        load_full_state(decoder, [optimizer], state)
    losses, norms = [], []
    for step in range(start, stop):
        windows = make_batch(step)
        divided = mode == "data" and context.size > 1
        own = windows[context.rank :: context.size] if divided else windows
        count = int((windows[:, 1:] != PADDING).sum())
        if control == "own means":
            loss = decoder.loss(own[:, :-1], own[:, 1:])
        else:
            loss = decoder.loss(own[:, :-1], own[:, 1:], reduction="sum") * ((context.size if divided else 1) / count)
        loss.backward()
        parts = [parameter.grad.to_local() for parameter in decoder.parameters()] if control == "own norm" else []
        own_norm = nn.utils.get_total_norm(parts)
        norm = clip_gradients(decoder.parameters(), 1.0, context)
        norms.append(float(own_norm if control == "own norm" else norm))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(context.gather(float(loss.detach()))) / context.size)
    return Result(losses, norms, decoder, optimizer, full_state(decoder, [optimizer], context))


def to_model(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}


# ---- results that the test compares


def run_cases(folder: Path, context: DistributedContext) -> None:
    """Train in both modes, tied and untied; also in float64 for fewer steps, which allows smaller tolerances."""
    for mode in PARALLEL_MODES:
        for model in MODELS:
            write(folder, f"{mode}-{model}", train(make_model(model), mode, context), context)
            precise = train(make_model(model, torch.float64), mode, context, stop=FEW)
            check_state(precise, mode, context)
            write(folder, f"{mode}-{model}-float64", precise, context)
            saved = load_file(folder / f"saved-{model}.safetensors")
            resumed = train(make_model(model, seed=1), mode, context, start=SAVED, state=saved)
            write(folder, f"{mode}-{model}-resumed", resumed, context)
    for mode, control in (("vocab", "no tie"), ("data", "own means"), ("data", "own norm")):
        write(
            folder, f"control-{control}", train(make_model("tied"), mode, context, stop=FEW, control=control), context
        )


def write(folder: Path, name: str, run: Result, context: DistributedContext) -> None:
    if context.is_main:
        save_file(run.state, folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps({"losses": run.losses, "norms": run.norms}))


# ---- checks inside the processes


def check_state(run: Result, mode: str, context: DistributedContext) -> None:
    """Check the tie, the padding row, the size of the shards, and that reading the state does not change it."""
    decoder, table = run.decoder, run.decoder.embeddings.token_embedding.weight
    assert (decoder.head.weight is table) == decoder.config.tie
    assert isinstance(table, DTensor)
    assert torch.equal(full_tensor(table)[PADDING], torch.zeros(16, dtype=torch.float64))
    assert len(table.to_local()) <= -(-VOCABULARY // context.size)
    assert table.to_local().untyped_storage().nbytes() <= -(-VOCABULARY // context.size) * 16 * 8
    body = decoder.blocks[0].attention.qkv.weight
    assert isinstance(body, DTensor) == (mode == "data")
    before = {name: tensor.clone() for name, tensor in run.state.items()}
    ids = make_batch(99)[:2, :5]
    decoder.eval()
    with torch.no_grad():
        logits = decoder.logits(ids)
    drawn = decoder.generate(ids, 3, temperature=0.0)
    alone = make_model("tied" if decoder.config.tie else "untied", torch.float64).eval()
    # FSDP keeps the table gathered after a forward without a backward; neither state may depend on that.
    after = full_state(decoder, [run.optimizer], context)
    assert after.keys() == before.keys()
    if context.is_main:
        for name, tensor in after.items():
            torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
        alone.load_state_dict(to_model(after))
        torch.testing.assert_close(logits, alone.logits(ids), rtol=0, atol=1e-12)
        assert torch.equal(drawn, alone.generate(ids, 3, temperature=0.0))


def check_context(context: DistributedContext) -> None:
    values = [float("nan"), float("inf"), -0.0, 1.5][: context.size]
    assert repr(context.gather(values[context.rank])) == repr(values)
    assert context.any(context.rank == 1)
    assert not context.any(False)


def check_head(context: DistributedContext) -> None:
    """Compare the sharded loss with that of one head, elementwise, for all options of a head."""
    mesh = init_device_mesh("cpu", (context.size,), mesh_dim_names=("vocab",))
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 8, generator=random, dtype=torch.float64)
    targets = torch.randint(0, VOCABULARY, (3, 7), generator=random)
    targets[0, :3], targets[1, 0] = PADDING, -100
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"soft_cap": 2.0, "hidden_scale": 0.5}, {"reduction": "sum"}),
        ({"bias": True, "logit_scale": 3.0, "logit_divisor": 0.7}, {"reduction": "none", "z_loss": 0.1}),
        ({"bias": True}, {"z_loss": 0.1}),
    ]
    for settings, options in cases:
        found = []
        for sharded in (False, True):
            table = Table(VOCABULARY, 8, padding_idx=PADDING, init="embedding", seed=2, dtype=torch.float64)
            head = Head(8, VOCABULARY, dtype=torch.float64, **settings).tie(table)
            if head.bias is not None:
                with torch.no_grad():
                    head.bias.copy_(torch.linspace(-1, 1, VOCABULARY))
            if sharded:
                parallel.shard_rows(table, mesh)
            given = hidden.clone().requires_grad_()
            mixed = given + table(targets.clamp(min=0))  # from both ends, as in a model
            loss = head.loss(mixed, targets, **options)
            logits = head(mixed)
            (loss.sum() + logits.square().mean()).backward()
            grads = [given.grad, full_tensor(table.weight.grad), None if head.bias is None else head.bias.grad]
            found.append([loss.detach(), logits.detach(), *(grad for grad in grads if grad is not None)])
            assert torch.equal(full_tensor(table.weight)[PADDING], torch.zeros(8, dtype=torch.float64))
            assert float(grads[1][PADDING].abs().max()) == 0
        for ours, theirs in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        assert float(found[0][3][PADDING + 1].abs().max()) > 1e-3  # control: other rows have a gradient
    # No targets, and half precision.
    nothing = head.loss(mixed.detach(), torch.full_like(targets, PADDING))
    assert float(nothing.detach()) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert head.loss(mixed.detach(), targets).dtype == torch.float32
    with pytest.raises(IdRangeError, match=f"id {VOCABULARY} at"):
        table(torch.tensor([[0, VOCABULARY]]))
    with pytest.raises(IdRangeError, match=f"outside 0..{VOCABULARY - 1}"):
        head.loss(mixed.detach(), targets + VOCABULARY)


def check_against_torch(context: DistributedContext) -> None:
    """Compare loss and gradients with torch's own sharded table, head and loss, untied."""
    mesh = init_device_mesh("cpu", (context.size,), mesh_dim_names=("vocab",))
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
        parallel.shard_rows(table, mesh)
        parallel.shard_rows(head, mesh)
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
            torch.testing.assert_close(
                full_tensor(ours.weight.grad), full_tensor(reference.weight.grad), rtol=0, atol=1e-6
            )


def check_clipping(context: DistributedContext) -> None:
    """Replicated gradients are averaged, so they stay equal; None only measures."""
    decoder = shard(make_model("tied"), "vocab", context)
    windows = make_batch(0)
    decoder.loss(windows[:, :-1], windows[:, 1:]).backward()
    scale = decoder.norm.weight
    assert isinstance(scale, Tensor)
    assert scale.grad is not None
    mean = scale.grad + (context.size - 1) / 2
    scale.grad += context.rank
    norm = clip_gradients(decoder.parameters(), None, context)
    torch.testing.assert_close(scale.grad, mean, rtol=0, atol=1e-6)
    assert context.gather(float(norm)) == [float(norm)] * context.size
    clip_gradients(decoder.parameters(), 0.5, context)
    torch.testing.assert_close(float(clip_gradients(decoder.parameters(), None, context)), 0.5, rtol=1e-5, atol=0)


def check_errors(context: DistributedContext) -> None:
    with pytest.raises(ConfigError, match="some would store no rows"):
        shard(make_model("tied", vocab_size=context.size - 1, padding_idx=None), "vocab", context)
    decoder = shard(make_model("tied"), "data", context)
    with pytest.raises(InputError, match="sharded by FSDP"):
        decoder.embeddings.token_embedding(torch.tensor([[0]]))
    with pytest.raises(InputError, match="sharded by FSDP"):
        decoder.head(torch.zeros(1, 1, 16))
    state = full_state(decoder, [], DistributedContext(size=context.size, device=context.device))  # in all processes
    with pytest.raises(CheckpointError, match=r"norm.weight is \(3,\)"):
        load_full_state(decoder, [], state | {"model.norm.weight": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is missing in the state"):
        load_full_state(decoder, [], {name: value for name, value in state.items() if name != "model.norm.weight"})


def check_main_process_initializes(context: DistributedContext) -> None:
    """Differently initialized decoders get the weights of the main process."""
    decoder = make_model("tied", seed=context.rank)
    state = to_model(full_state(shard(decoder, "vocab", context), [], DistributedContext(size=context.size)))
    torch.testing.assert_close(state[TABLE], make_model("tied").state_dict()[TABLE], rtol=0, atol=0)
    torch.testing.assert_close(state["norm.weight"], decoder.norm.weight, rtol=0, atol=0)


def check_meta_device(context: DistributedContext) -> None:
    """A decoder that is sharded without values and loads only its part of them."""
    for mode in PARALLEL_MODES:
        for model in MODELS:
            values = make_model(model).state_dict()
            decoder = shard(Decoder(make_model(model).config, device="meta"), mode, context).to_empty(device="cpu")
            load_full_state(decoder, [], {f"model.{name}": value for name, value in values.items()})
            assert (decoder.head.weight is decoder.embeddings.token_embedding.weight) == decoder.config.tie
            ids = make_batch(0)[:, :-1]
            with torch.no_grad():
                logits = decoder.logits(ids)
            torch.testing.assert_close(logits, make_model(model).logits(ids).detach(), rtol=0, atol=1e-5)


CHECKS = (
    check_context,
    check_head,
    check_against_torch,
    check_clipping,
    check_errors,
    check_main_process_initializes,
    check_meta_device,
)


def main() -> None:
    task, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    with distributed_context() as context:
        if task == "cases":
            run_cases(folder, context)
            for check in CHECKS:
                check(context)
        else:
            train(make_model("tied"), "data", context, stop=2)
            if context.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            train(make_model("tied"), "data", context)
        assert dist.is_initialized()
    assert not dist.is_initialized()


if __name__ == "__main__":
    main()
