"""Open a 2.35 GB table and look up 2,048 ids: inlayer.load compared with transformers and two ways of safetensors.

A second result opens a checkpoint of one terabyte, with Kimi-K2's shapes in sparse files that take 31 MB of disk space.

The limit of the first is a plain read of the same rows at known offsets, which opens nothing and checks nothing.

Each run is a new process, because resident memory is also measured. Time is measured from after the imports until the
rows are available, on a file in the page cache. The table has Kimi-K2's shape. transformers opens it as a model
without blocks, so nothing else is read.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Ratio, Result, ratio

ROWS, WIDTH, IDS = 163_840, 7_168, 2_048
NAME = "model.embed_tokens.weight"
ROUNDS = 3
LIMIT = "limit: plain reads"
MAX_MS, MAX_MB = 100, 64
SHARDS, EXPERTS, EXPERT_WIDTH, FP8_BLOCK = 61, 384, 2_048, 128
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaModel"], "vocab_size": ROWS, "hidden_size": WIDTH,
    "num_attention_heads": 56, "num_hidden_layers": 0, "torch_dtype": "bfloat16",
}  # fmt: skip


def run() -> Iterator[Result]:
    """Yield time and resident memory, each compared with every alternative, then the time for a terabyte."""
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
        for _ in range(ROUNDS):
            for name, runs in measured.items():
                runs.append(in_a_process(name, folder))
    assert len({run["sum"] for runs in measured.values() for run in runs}) == 1, (
        "the implementations read different rows"
    )
    seconds = {name: [run["seconds"] for run in runs] for name, runs in measured.items()}
    resident = {name: [run["resident_mb"] for run in runs] for name, runs in measured.items()}
    ours_ms, ours_mb = statistics.median(seconds["inlayer"]) * 1e3, statistics.median(resident["inlayer"])
    others = [name for name in PEERS if name not in ("inlayer", LIMIT)]
    yield Result(
        name="open_checkpoint",
        ratios=[
            *(ratio(f"time: {name} / inlayer", seconds[name], seconds["inlayer"]) for name in others),
            *(ratio(f"memory: {name} / inlayer", resident[name], resident["inlayer"]) for name in others),
            ratio(f"time: inlayer / {LIMIT}", seconds["inlayer"], seconds[LIMIT]),
            Ratio(label=f"time: inlayer / {MAX_MS} ms", value=ours_ms / MAX_MS, at_most=1),
            Ratio(label=f"memory: inlayer / {MAX_MB} MB", value=ours_mb / MAX_MB, at_most=1),
        ],
        measured={
            name: {
                "median_ms": round(statistics.median(seconds[name]) * 1e3, 1),
                "resident_mb": round(statistics.median(resident[name]), 1),
            }
            for name in PEERS
        },
        sizes={"rows": ROWS, "width": WIDTH, "ids": IDS, "dtype": "bfloat16"},
        notes=["resident memory includes the result, 29 MB"],
    )
    yield open_terabyte()


def open_terabyte() -> Result:
    """Open a checkpoint of one terabyte; only this library, because the others would read all of the table."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = write_sparse_checkpoint(Path(folder))
        runs = [in_a_process("inlayer", folder) for _ in range(ROUNDS)]
    seconds = statistics.median(run["seconds"] for run in runs)
    return Result(
        name="open_terabyte",
        ratios=[Ratio(label="time: inlayer / 1 s", value=seconds, at_most=1)],
        measured={name: statistics.median(run[name] for run in runs) for name in ("seconds", "resident_mb")},
        sizes=sizes | {"ids": IDS},
    )


def write_checkpoint(folder: Path) -> None:
    """Write a table of random finite values, and the norm that a model without blocks still has."""
    table, norm = ROWS * WIDTH * 2, WIDTH * 2
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            NAME: {"dtype": "BF16", "shape": [ROWS, WIDTH], "data_offsets": [0, table]},
            "model.norm.weight": {"dtype": "BF16", "shape": [WIDTH], "data_offsets": [table, table + norm]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    block = bytes(byte & 0x3F for byte in os.urandom(WIDTH * 2 * 512))  # clears exponent bits: no NaN or infinity
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for _ in range(ROWS // 512):
            stream.write(block)
        stream.write(block[:norm])
    (folder / "config.json").write_text(json.dumps(CONFIG))


def write_sparse_checkpoint(folder: Path) -> dict[str, int]:
    """Write an index, and per shard the header of one layer of experts; all values are holes, which read as zeros."""
    index: dict[str, str] = {}
    size = 0
    for shard in range(SHARDS):
        tensors: dict[str, tuple[str, int, int]] = {NAME: ("BF16", ROWS, WIDTH)} if shard == 0 else {}
        for expert in range(EXPERTS):
            for part in ("gate_proj", "up_proj", "down_proj"):
                rows, width = (WIDTH, EXPERT_WIDTH) if part == "down_proj" else (EXPERT_WIDTH, WIDTH)
                name = f"model.layers.{shard}.mlp.experts.{expert}.{part}.weight"
                tensors[name] = ("F8_E4M3", rows, width)
                tensors[f"{name}_scale_inv"] = ("F32", rows // FP8_BLOCK, width // FP8_BLOCK)
        header, end = {}, 0
        for name, (dtype, rows, width) in tensors.items():
            start, end = end, end + {"BF16": 2, "F8_E4M3": 1, "F32": 4}[dtype] * rows * width
            header[name] = {"dtype": dtype, "shape": [rows, width], "data_offsets": [start, end]}
        encoded = json.dumps(header).encode()
        path = folder / f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        with path.open("wb") as stream:
            stream.write(struct.pack("<Q", len(encoded)) + encoded)
            stream.truncate(8 + len(encoded) + end)
        index |= dict.fromkeys(tensors, path.name)
        size += end
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": SHARDS}))
    return {"bytes": size, "tensors": len(index), "shards": SHARDS}


def in_a_process(name: str, folder: str) -> dict[str, float]:
    """Seconds, resident megabytes, and the sum of the rows, which must be the same for all."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.open_checkpoint", name, folder], capture_output=True, text=True, check=True
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def resident_mb() -> float:
    """Resident memory of this process in MB, including mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def with_inlayer(folder: str, ids: Any) -> Any:
    import inlayer

    model = inlayer.load(folder)
    return model.embeddings(ids), model


def with_transformers(folder: str, ids: Any) -> Any:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder)
    return model.get_input_embeddings()(ids), model


def with_safetensors_tensor(folder: str, ids: Any) -> Any:
    from safetensors import safe_open

    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        table = file.get_tensor(NAME)
        return table[ids], table


def with_safetensors_slices(folder: str, ids: Any) -> Any:
    import torch
    from safetensors import safe_open

    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        rows = file.get_slice(NAME)
        return torch.cat([rows[token : token + 1] for token in ids.reshape(-1).tolist()]), rows


def with_plain_reads(folder: str, ids: Any) -> Any:
    import torch

    with Path(folder, "model.safetensors").open("rb") as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        data = bytearray().join(os.pread(file.fileno(), WIDTH * 2, start + id_ * WIDTH * 2) for id_ in ids[0].tolist())
    return torch.frombuffer(data, dtype=torch.bfloat16).view(1, -1, WIDTH), None


PEERS: dict[str, Callable[[str, Any], Any]] = {
    "inlayer": with_inlayer,
    "transformers from_pretrained": with_transformers,
    "safetensors get_tensor": with_safetensors_tensor,
    "safetensors row slices": with_safetensors_slices,
    LIMIT: with_plain_reads,
}


def measure_one(name: str, folder: str) -> dict[str, float]:
    """Run one implementation once, after its imports."""
    import torch

    import inlayer.checkpoint  # noqa: F401

    if name.startswith("transformers"):
        from transformers import LlamaModel  # noqa: F401  # otherwise imported while timing
    torch.set_grad_enabled(False)
    ids = torch.randint(0, ROWS, (1, IDS), generator=torch.Generator().manual_seed(0))
    torch.zeros(3)[ids % 3]  # torch's one-time costs
    before, start = resident_mb(), time.perf_counter()
    rows, opened = PEERS[name](folder, ids)
    seconds = time.perf_counter() - start
    resident = resident_mb() - before
    del opened  # kept open until here, like a model in use
    return {"seconds": seconds, "resident_mb": resident, "sum": float(rows.float().sum())}


if __name__ == "__main__":
    print(json.dumps(measure_one(*sys.argv[1:])))
