"""2 and 4 processes do what one does: losses, norms, weights and moments, tied and untied, in both ways.

Each number of processes is started once and runs all cases (parallel_worker.py): a start costs seconds.
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

from inlayer.errors import CheckpointError, ConfigError, InlayerError
from inlayer.sharding import rows_each
from inlayer.training import load_decoder, save_decoder
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.parallel import (
    WAYS,
    World,
    clip_gradients,
    full_optimizer_state,
    full_state,
    load_full_optimizer_state,
    shard,
    take_rows,
    world,
)
from tests.training import parallel_worker
from tests.training.parallel_worker import (
    MODELS,
    SAVED,
    SHARP,
    TABLE,
    make_batch,
    make_model,
    to_model,
    to_moments,
    train,
)

ROOT = Path(__file__).parents[2]
ONE = World()
GLOO = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def read(folder: Path, name: str) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    return json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors")


def furthest(ours: list[float], theirs: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))


def seen(name: str, tensor: Tensor) -> Tensor:
    """Without the bias of the keys: softmax does not see it, so its gradient is rounding, of which Adam makes steps."""
    if not name.endswith("attention.qkv.bias"):
        return tensor
    query, _, value = tensor.chunk(3)
    return torch.cat((query, value))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, without a process group."""
    folder = tmp_path_factory.mktemp("alone")
    for model in MODELS:
        parallel_worker.write(folder, model, train(make_model(model), "data", ONE), ONE)
        parallel_worker.write(folder, f"saved-{model}", train(make_model(model), "data", ONE, stop=SAVED), ONE)
        sharp = train(make_model(model, torch.float64), "data", ONE, stop=SHARP)
        parallel_worker.write(folder, f"{model}-float64", sharp, ONE)
    return folder


def start_many(processes: int, alone: Path, folder: Path) -> None:
    """The worker's cases, begun from what one process did."""
    shutil.copytree(alone, folder, dirs_exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, parallel_worker.__file__, "cases", str(folder)],
        env=environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]


# ---- many against one


@GLOO
@pytest.mark.parametrize("processes", [2, 4])
def test_many_processes_do_what_one_does(processes: int, alone: Path, tmp_path: Path) -> None:
    """One test, because a start is expensive; what is compared is below."""
    start_many(processes, alone, tmp_path)
    for model in MODELS:
        for how in WAYS:
            learn_what_one_learns(how, model, alone, tmp_path)
            leave_no_difference_in_float64(how, model, alone, tmp_path)
            go_on_from_each_others_state(how, model, alone, tmp_path)
            save_the_same_folder(how, model, alone, tmp_path)
    let_the_comparison_fail(alone, tmp_path)


def learn_what_one_learns(how: str, model: str, alone: Path, many: Path) -> None:
    (ours, state), (theirs, expected) = read(many, f"{how}-{model}"), read(alone, model)
    assert theirs["losses"][-1] < 0.5 * theirs["losses"][0]  # there is something to differ in
    assert furthest(ours["losses"], theirs["losses"]) < 1e-5
    torch.testing.assert_close(ours["norms"], theirs["norms"], rtol=1e-4, atol=0)
    assert list(state) == list(expected)
    for name, tensor in state.items():
        torch.testing.assert_close(seen(name, tensor), seen(name, expected[name]), rtol=0, atol=1e-4, msg=name)
    assert torch.count_nonzero(state[f"model.{TABLE}"][parallel_worker.PADDING]) == 0


def leave_no_difference_in_float64(how: str, model: str, alone: Path, many: Path) -> None:
    (ours, state), (theirs, expected) = read(many, f"{how}-{model}-float64"), read(alone, f"{model}-float64")
    assert furthest(ours["losses"], theirs["losses"]) < 1e-12
    assert furthest(ours["norms"], theirs["norms"]) < 1e-12
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-11, msg=name)
    other = load_file(alone / f"saved-{model}.safetensors")
    assert not torch.allclose(state[f"model.{TABLE}"].float(), other[f"model.{TABLE}"], atol=1e-3)  # it can fail


def go_on_from_each_others_state(how: str, model: str, alone: Path, many: Path) -> None:
    """One process's state in many, and what many wrote in one again."""
    ours, theirs = read(many, f"{how}-{model}-resumed")[0], read(alone, model)[0]
    assert furthest(ours["losses"], theirs["losses"][SAVED:]) < 1e-5
    _, state = read(many, f"{how}-{model}-float64")
    _, own = read(alone, f"{model}-float64")
    forgetful = {name: tensor for name, tensor in state.items() if name.startswith("model.")}
    back, never_left, forgot = (
        train(make_model(model, torch.float64, seed=1), "data", ONE, start=SHARP, stop=SHARP + 2, state=begun).losses
        for begun in (state, own, forgetful)
    )
    assert furthest(back, never_left) < 1e-11
    assert furthest(forgot, never_left) > 1e-4  # the moments do matter


def save_the_same_folder(how: str, model: str, alone: Path, many: Path) -> None:
    config, ids = make_model(model).config, make_batch(0)[:, :-1]
    one, other = many / f"{how}-{model}-one", many / f"{how}-{model}-many"
    save_decoder(Decoder(config, device="meta"), one, state=to_model(load_file(alone / f"{model}.safetensors")))
    save_decoder(Decoder(config, device="meta"), other, state=to_model(load_file(many / f"{how}-{model}.safetensors")))
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
    assert (one / "config.json").read_bytes() == (other / "config.json").read_bytes()
    ours, theirs = load_decoder(other).logits(ids), load_decoder(one).logits(ids)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def let_the_comparison_fail(alone: Path, many: Path) -> None:
    """A head left with a copy of the table, means of unequally many targets, a norm of the own parts only."""
    theirs, _ = read(alone, "tied")
    for control, kind in (("no tie", "losses"), ("own means", "losses"), ("own norm", "norms")):
        ours, _ = read(many, f"control-{control}")
        assert furthest(ours[kind], theirs[kind][:SHARP]) > 1e-4, control


# ---- a process that ends


def start_two(what: str, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Without torchrun, which would end the other one before it can say what it saw."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, parallel_worker.__file__, what, str(folder)],
            env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = []
    for process in started:
        out, err = process.communicate(timeout=120)
        results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return results


@GLOO
def test_a_lost_process_is_named_and_nothing_hangs(tmp_path: Path) -> None:
    left, killed = start_two("killed", tmp_path)
    assert killed.returncode == -9
    assert left.returncode == 1
    last = left.stderr.strip().splitlines()[-1]
    assert "InlayerError: process 0 of 2 lost the others: one of them ended" in left.stderr, last


# ---- a world of one


def test_a_world_of_one_needs_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with world() as here:
        assert (here.rank, here.size, here.is_first) == (0, 1, True)
        assert not dist.is_initialized()
        assert here.gather(2.5) == [2.5]
        assert here.mean(2.5) == 2.5
        assert not here.any(False)
        here.barrier()
        decoder = make_model("tied")
        assert shard(decoder, "vocab", here) is decoder
        assert take_rows(make_batch(0)[:1], "data", here).shape == (1, 13)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")  # as torchrun --nproc-per-node 1 says
    with world("cpu") as here:
        assert here == World()


def test_only_a_lost_process_is_told_as_one(pretended: Any) -> None:
    """Also: a process group that was there before is used, and left."""
    pretended(3)
    with world("cpu") as here:
        assert (here.rank, here.size) == (0, 3)
    with pytest.raises(RuntimeError, match=r"^something else$"), world("cpu"):
        raise RuntimeError("something else")
    with pytest.raises(InlayerError, match="process 0 of 3 lost the others"), world("cpu"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    assert dist.is_initialized()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"RANK": "0"}, "WORLD_SIZE None"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is '2'"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT is not set"),
    ],
)
def test_half_an_environment_is_refused(said: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=re.escape(told)), world("cpu"):
        pass


def test_clipping_in_one_process_is_torchs() -> None:
    ours, theirs = make_model("tied"), make_model("tied")
    windows = make_batch(0)
    for decoder in (ours, theirs):
        (100 * decoder.loss(windows[:, :-1], windows[:, 1:])).backward()
    norm = clip_gradients(ours.parameters(), 1.0, ONE)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 1.0), rtol=0, atol=0)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)
    assert float(norm) > 1.0
    assert float(clip_gradients([], 1.0, ONE)) == 0


def test_an_optimizers_state_is_checked_and_copied() -> None:
    run = train(make_model("tied"), "data", ONE, stop=2)
    moments = to_moments(run.state)
    other = make_model("tied")
    optimizer = parallel_worker.make_optimizer(other)
    assert full_optimizer_state(other, optimizer, ONE) == {}
    rates = [group["lr"] for group in optimizer.param_groups]
    load_full_optimizer_state(other, optimizer, moments)
    loaded = full_optimizer_state(other, optimizer, ONE)
    assert list(loaded) == list(full_state(other, ONE))
    for name, values in loaded.items():
        assert set(values) == {"step", "exp_avg", "exp_avg_sq"}
        for key, value in values.items():
            torch.testing.assert_close(value, moments[name][key], rtol=0, atol=0)
            assert value.data_ptr() != moments[name][key].data_ptr()
    assert [group["lr"] for group in optimizer.param_groups] == rates
    with pytest.raises(CheckpointError, match=r"exp_avg of norm.weight is \(3,\)"):
        load_full_optimizer_state(other, optimizer, {"norm.weight": {"exp_avg": torch.zeros(3)}})
    with pytest.raises(CheckpointError, match=r"nothing.here, which the decoder has not"):
        load_full_optimizer_state(other, optimizer, {"nothing.here": {"exp_avg": torch.zeros(3)}})


# ---- docs/scaling.md


@pytest.fixture
def pretended() -> Iterator[Any]:
    """Process groups of any size that send nothing: sharding needs no more."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def start(size: int) -> World:
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        return World(size=size)

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


def test_the_sizes_in_the_docs_are_those_of_the_code(pretended: Any) -> None:
    """Kimi-K2's table as `shard` cuts it, without its values; bytes by the kind of number each of them is kept as."""
    rows, width = 163_840, 7_168
    found = {}
    for size in (1, 8, 64, 512):
        for tied in (True, False):
            for how in WAYS:
                config = DecoderConfig(
                    architecture="llama", vocab_size=rows, n_embd=width, n_layer=1, n_head=64, block_size=8, tie=tied
                )
                decoder = Decoder(config, device="meta", dtype=torch.bfloat16)
                if size > 1:
                    decoder = shard(decoder, how, pretended(size))
                    dist.destroy_process_group()
                weights = {id(one): one for one in (decoder.embeddings.token_embedding.weight, decoder.head.weight)}
                local = [getattr(one, "_local_tensor", one) for one in weights.values()]
                assert sum(len(one) for one in local) == rows_each(rows, size) * (1 if tied else 2)
                values = sum(one.numel() for one in local)
                half, full = torch.bfloat16.itemsize, torch.float32.itemsize
                kinds = (half, half, 2 * full, 2 * half + 2 * full, 4 * full)
                found[size, tied] = [f"{values * kind / 1e6:,.1f}" for kind in kinds]
    text = (ROOT / "docs" / "scaling.md").read_text()
    told = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[1] in {"tied", "untied"}:
            told[int(cells[0]), cells[1] == "tied"] = cells[2:]
    assert told == found
