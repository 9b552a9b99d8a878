"""ids -> rows without a gradient: inlayer compared with nn.Embedding and with a plain copy of as many bytes.

The copy writes into allocated memory, so it is the lower bound. A result in new memory also costs page faults, and
malloc decides whether memory is new: glibc returns blocks of more than 32 MiB to the system, and keeps smaller ones
or not depending on the heap (docs/decisions.md). So each size is measured twice, in its own process: "fresh", where
malloc returns every large block (MALLOC_MMAP_THRESHOLD_), and "default", with glibc's defaults, where a small result
may reuse memory. Both have the same targets. Page faults are counted to explain the ratios.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import Result, interleave, milliseconds, ratio
from inlayer.tables import Table

MMAP_THRESHOLD = str(4 * 2**20)  # malloc returns larger blocks to the system
CASES = (
    # ids, V, D, dtype
    (16_384, 50_257, 768, torch.float32),
    (2_048, 163_840, 7_168, torch.bfloat16),
)


def touched_table(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """A table in allocated memory, with repeated random rows: the speed of a gather does not depend on the values."""
    weight_VD = torch.empty(rows, width, dtype=dtype)
    block = torch.randn(64, width).to(
        dtype
    )  # small: freeing it must not teach malloc to keep blocks of a result's size
    for start in range(0, rows, len(block)):
        weight_VD[start : start + len(block)] = block[: rows - start]
    return weight_VD


def page_faults(run_once: Callable[[], object]) -> int:
    """Page faults of the third call, when allocators have reached a steady state."""
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        result = run_once()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        del result
    return faults


def measure(ids: int, rows: int, width: int, dtype: torch.dtype) -> dict[str, Any]:
    """Measure one size in this process."""
    weight_VD = touched_table(rows, width, dtype)
    ids_N = torch.randint(0, rows, (ids,))
    ours, theirs = Table.from_weight(weight_VD), nn.Embedding(rows, width, _weight=weight_VD)
    source, target = torch.ones(ids, width, dtype=dtype), torch.ones(ids, width, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(ours(ids_N), theirs(ids_N))
        peers: dict[str, Callable[[], object]] = {
            "copy": lambda: target.copy_(source),
            "inlayer": lambda: ours(ids_N),
            "nn.Embedding": lambda: theirs(ids_N),
        }
        seconds = interleave(peers, rounds=40, warm_up=3)
        faults = {name: page_faults(peer) for name, peer in peers.items()}
    return {"seconds": seconds, "faults": faults}


def in_a_process(case: int, **env: str) -> dict[str, Any]:
    """Run `measure` in a new process, with a heap that no other benchmark has used."""
    command = [sys.executable, "-m", "benchmarks.lookup", str(case)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | env)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def run() -> Iterator[Result]:
    """Yield one result per size."""
    for case, (ids, rows, width, dtype) in enumerate(CASES):
        fresh, common = in_a_process(case, MALLOC_MMAP_THRESHOLD_=MMAP_THRESHOLD), in_a_process(case)
        ways = {"fresh": fresh["seconds"], "default": common["seconds"]}
        yield Result(
            name=f"lookup_{ids}_of_{rows}x{width}",
            ratios=[
                ratio(f"{way}: {label}", seconds[over], seconds[under], **target)
                for way, seconds in ways.items()
                for label, over, under, target in (
                    ("inlayer / plain copy", "inlayer", "copy", {"at_most": 2.0}),
                    ("nn.Embedding / inlayer", "nn.Embedding", "inlayer", {"at_least": 3.0}),
                )
            ],
            measured={
                **{way: milliseconds(seconds) for way, seconds in ways.items()},
                "page faults per call": {"fresh": fresh["faults"], "default": common["faults"]},
            },
            sizes={"ids": ids, "rows": rows, "width": width, "dtype": str(dtype)},
            notes=["rows bit-identical"],
        )


if __name__ == "__main__":
    print(json.dumps(measure(*CASES[int(sys.argv[1])])))
