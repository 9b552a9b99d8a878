"""Three processes equal one: losses, gradient norms, weights and moments, tied and untied, in both modes.

They are started once and run all cases (parallel_worker.py), because starting takes seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch import distributed as dist
from transformers import AutoModelForCausalLM

from inlayer.errors import CheckpointError, ConfigError, InlayerError, InputError
from inlayer.sharding import rows_per_process
from inlayer.training.config import PARALLEL_MODES, DecoderConfig
from inlayer.training.decoder import Decoder
from inlayer.training.export import save_decoder
from inlayer.training.parallel import (
    DistributedContext,
    clip_gradients,
    distributed_context,
    full_state,
    load_full_state,
    shard,
)
from tests.training import parallel_worker
from tests.training.parallel_worker import (
    FEW,
    MODELS,
    SAVED,
    TABLE,
    make_batch,
    make_model,
    to_model,
    train,
)

ROOT = Path(__file__).parents[2]
ONE = DistributedContext()
FSDP_ON_CPUS = hasattr(torch.cpu.Stream, "record_event")  # since torch 2.7
MODES = PARALLEL_MODES if FSDP_ON_CPUS else ("vocab",)
GLOO = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def read(folder: Path, name: str) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    return json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors")


def max_difference(ours: list[float], theirs: list[float]) -> float:
    return max(abs(value - expected) for value, expected in zip(ours, theirs, strict=True))


def relevant(name: str, tensor: Tensor) -> Tensor:
    """The tensor without the bias of the keys: softmax ignores it, so Adam turns rounding errors into steps."""
    if not name.endswith("attention.qkv.bias"):
        return tensor
    query, _, value = tensor.chunk(3)
    return torch.cat((query, value))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one process, without a process group."""
    folder = tmp_path_factory.mktemp("alone")
    for model in MODELS:
        parallel_worker.write(folder, model, train(make_model(model), "data", ONE), ONE)
        parallel_worker.write(folder, f"saved-{model}", train(make_model(model), "data", ONE, stop=SAVED), ONE)
        precise = train(make_model(model, torch.float64), "data", ONE, stop=FEW)
        parallel_worker.write(folder, f"{model}-float64", precise, ONE)
    return folder


def start_workers(processes: int, alone: Path, folder: Path) -> None:
    """Run the worker's cases, with the results of one process as input."""
    shutil.copytree(alone, folder, dirs_exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, parallel_worker.__file__, "cases", str(folder)],
        env=environment(), capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]


# ---- several processes compared with one


@GLOO
@pytest.mark.skipif(not FSDP_ON_CPUS, reason="its worker also runs the data mode, which needs torch 2.7 on CPUs")
@pytest.mark.slow
def test_several_processes_match_one(alone: Path, tmp_path: Path) -> None:
    """One test, because starting is expensive; the comparisons are below."""
    start_workers(3, alone, tmp_path)
    for model in MODELS:
        for mode in PARALLEL_MODES:
            check_training(mode, model, alone, tmp_path)
            check_float64(mode, model, alone, tmp_path)
            check_resuming(mode, model, alone, tmp_path)
            check_saved_folder(mode, model, alone, tmp_path)
    check_controls(alone, tmp_path)


def check_training(mode: str, model: str, alone: Path, many: Path) -> None:
    (ours, state), (theirs, expected) = read(many, f"{mode}-{model}"), read(alone, model)
    assert theirs["losses"][-1] < 0.5 * theirs["losses"][0]  # control: the model learns
    assert max_difference(ours["losses"], theirs["losses"]) < 1e-5
    torch.testing.assert_close(ours["norms"], theirs["norms"], rtol=1e-4, atol=0)
    assert list(state) == list(expected)
    for name, tensor in state.items():
        torch.testing.assert_close(relevant(name, tensor), relevant(name, expected[name]), rtol=0, atol=1e-4, msg=name)
    assert torch.count_nonzero(state[f"model.{TABLE}"][parallel_worker.PADDING]) == 0


def check_float64(mode: str, model: str, alone: Path, many: Path) -> None:
    (ours, state), (theirs, expected) = read(many, f"{mode}-{model}-float64"), read(alone, f"{model}-float64")
    assert max_difference(ours["losses"], theirs["losses"]) < 1e-12
    assert max_difference(ours["norms"], theirs["norms"]) < 1e-12
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-11, msg=name)
    other = load_file(alone / f"saved-{model}.safetensors")
    assert not torch.allclose(state[f"model.{TABLE}"].float(), other[f"model.{TABLE}"], atol=1e-3)  # control


def check_resuming(mode: str, model: str, alone: Path, many: Path) -> None:
    """Several processes resume the state of one, and one resumes theirs."""
    ours, theirs = read(many, f"{mode}-{model}-resumed")[0], read(alone, model)[0]
    assert max_difference(ours["losses"], theirs["losses"][SAVED:]) < 1e-5
    _, state = read(many, f"{mode}-{model}-float64")
    _, own = read(alone, f"{model}-float64")
    without_moments = {name: tensor for name, tensor in state.items() if name.startswith("model.")}
    resumed, uninterrupted, incomplete = (
        train(make_model(model, torch.float64, seed=1), "data", ONE, start=FEW, stop=FEW + 2, state=start).losses
        for start in (state, own, without_moments)
    )
    assert max_difference(resumed, uninterrupted) < 1e-11
    assert max_difference(incomplete, uninterrupted) > 1e-4  # control: moments matter


def check_saved_folder(mode: str, model: str, alone: Path, many: Path) -> None:
    config, ids = make_model(model).config, make_batch(0)[:, :-1]
    single, other = many / f"{mode}-{model}-one", many / f"{mode}-{model}-many"
    save_decoder(Decoder(config, device="meta"), single, state=to_model(load_file(alone / f"{model}.safetensors")))
    save_decoder(Decoder(config, device="meta"), other, state=to_model(load_file(many / f"{mode}-{model}.safetensors")))
    assert sorted(path.name for path in single.iterdir()) == sorted(path.name for path in other.iterdir())
    assert (single / "config.json").read_bytes() == (other / "config.json").read_bytes()
    ours, theirs = (AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (other, single))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def check_controls(alone: Path, many: Path) -> None:
    """A head with a copy of the table, means over different numbers of targets, and the norm of local shards only."""
    theirs, _ = read(alone, "tied")
    for control, kind in (("no tie", "losses"), ("own means", "losses"), ("own norm", "norms")):
        ours, _ = read(many, f"control-{control}")
        assert max_difference(ours[kind], theirs[kind][:FEW]) > 1e-4, control


# ---- a killed process


def start_two(task: str, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Start two processes without torchrun, which would end the other one before it can report the error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, parallel_worker.__file__, task, str(folder)],
            env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = []
    for process in started:
        out, err = process.communicate(timeout=900)
        results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return results


@GLOO
@pytest.mark.slow
def test_killed_process_is_reported(tmp_path: Path) -> None:
    remaining, killed = start_two("killed", tmp_path)
    assert killed.returncode == -9
    assert remaining.returncode == 1
    last = remaining.stderr.strip().splitlines()[-1]
    assert "InlayerError: process 0 of 2 lost its connection: another process ended" in remaining.stderr, last


# ---- a single process


def test_single_process_needs_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with distributed_context() as context:
        assert (context.rank, context.size, context.is_main) == (0, 1, True)
        assert not dist.is_initialized()
        assert context.gather(2.5) == [2.5]
        assert not context.any(False)
        context.barrier()
        decoder = make_model("tied")
        assert shard(decoder, "vocab", context) is decoder
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")  # like torchrun --nproc-per-node 1
    with distributed_context() as context:
        assert context == DistributedContext()


def test_only_lost_connections_are_reported_as_such(simulated: Any) -> None:
    """Also: an existing process group is used and kept."""
    simulated(3)
    with distributed_context() as context:
        assert (context.rank, context.size) == (0, 3)
    with pytest.raises(RuntimeError, match=r"^something else$"), distributed_context():
        raise RuntimeError("something else")
    with pytest.raises(InlayerError, match="process 0 of 3 lost its connection"), distributed_context():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    assert dist.is_initialized()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0"}, "WORLD_SIZE is None"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is '2'"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is None, MASTER_PORT is None"),
    ],
)
def test_incomplete_environment(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(message)), distributed_context():
        pass


def test_clipping_in_one_process_matches_torch() -> None:
    ours, theirs = make_model("tied"), make_model("tied")
    windows = make_batch(0)
    for decoder in (ours, theirs):
        (100 * decoder.loss(windows[:, :-1], windows[:, 1:])).backward()
    norm = clip_gradients(ours.parameters(), 1.0, ONE)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 1.0), rtol=0, atol=0)
    for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=0, atol=0)
    assert float(norm) > 1.0
    assert float(clip_gradients([], 1.0, ONE)) == 0


def test_state_is_checked_and_copied() -> None:
    state = train(make_model("tied"), "data", ONE, stop=2).state
    other = make_model("tied")
    optimizer = parallel_worker.make_optimizer(other)
    assert not any(name.startswith("optimizer.") for name in full_state(other, [optimizer], ONE))
    rates = [group["lr"] for group in optimizer.param_groups]
    load_full_state(other, [optimizer], state)
    loaded = full_state(other, [optimizer], ONE)
    assert loaded.keys() == state.keys()
    assert {name.rpartition(".")[2] for name in loaded if name.startswith("optimizer.norm.weight")} == {
        "step",
        "exp_avg",
        "exp_avg_sq",
    }
    for name, value in loaded.items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)
        assert value.data_ptr() != state[name].data_ptr()
    assert [group["lr"] for group in optimizer.param_groups] == rates
    moment = "optimizer.norm.weight.exp_avg"
    for changed, message in (
        ({moment: torch.zeros(3)}, r"norm\.weight\.exp_avg is \(3,\)"),
        (
            {"optimizer.nothing.here.step": torch.zeros(())},
            r"here\.step is \(\) .* in the state and missing in the decoder",
        ),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_full_state(other, [optimizer], {**state, **changed})
    with pytest.raises(CheckpointError, match=rf"{moment} is missing in the state"):
        load_full_state(other, [optimizer], {name: value for name, value in state.items() if name != moment})


# ---- docs/scaling.md


@pytest.fixture
def simulated() -> Iterator[Any]:
    """Process groups of any size that send nothing, which is enough for sharding."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def start(size: int) -> DistributedContext:
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        return DistributedContext(size=size)

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


def test_torch_without_fsdp_on_cpus_is_a_clear_error(simulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu.Stream, "record_event", raising=False)  # as in torch 2.6
    with pytest.raises(ConfigError, match=r"--parallel data needs torch 2\.7 or newer on CPUs, and this is \d"):
        shard(make_model("tied"), "data", simulated(2))


def test_memory_sizes_in_the_docs(simulated: Any) -> None:
    """Shard Kimi-K2's table without values, and compute the memory of weights, gradients and moments."""
    rows, width = 163_840, 7_168
    found = {}
    for size in (1, 8, 64, 512):
        for tied in (True, False):
            for mode in MODES:
                config = DecoderConfig(
                    architecture="llama", vocab_size=rows, n_embd=width, n_layer=1, n_head=64, block_size=8, tie=tied
                )
                decoder = Decoder(config, device="meta").bfloat16()
                if size > 1:
                    decoder = shard(decoder, mode, simulated(size))
                    dist.destroy_process_group()
                weights = {
                    id(tensor): tensor for tensor in (decoder.embeddings.token_embedding.weight, decoder.head.weight)
                }
                local = [getattr(tensor, "_local_tensor", tensor) for tensor in weights.values()]
                assert sum(len(tensor) for tensor in local) == rows_per_process(rows, size) * (1 if tied else 2)
                values = sum(tensor.numel() for tensor in local)
                half, full = torch.bfloat16.itemsize, torch.float32.itemsize
                kinds = (half, half, 2 * full, 2 * half + 2 * full, 4 * full)
                found[size, tied] = [f"{values * kind / 1e6:,.1f}" for kind in kinds]
    text = (ROOT / "docs" / "scaling.md").read_text()
    documented = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1] in {"tied", "untied"}:
            documented[int(cells[0]), cells[1] == "tied"] = cells[2:]
    assert documented == found
