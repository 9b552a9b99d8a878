"""ids -> rows without a gradient: inlayer against nn.Embedding and against a plain copy of as many bytes.

The copy writes into memory that is already there, so it is the floor. What a fresh result costs is page-faulting its
memory. A result of more than 32 MiB always pays; a smaller one pays or not as glibc happens to keep a freed block of
that size, which differs from process to process (docs/decisions.md). So the page faults of one call are counted, and
stand beside the ratio. The last case is the second with a longer prompt: past 32 MiB, and out of luck's reach.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.measure import Result, interleave, milliseconds, ratio
from inlayer.rows import Table

CASES = (
    # ids, V, D, dtype
    (16_384, 50_257, 768, torch.float32),
    (2_048, 163_840, 7_168, torch.bfloat16),
    (8_192, 163_840, 7_168, torch.bfloat16),
)


def touched_table(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Rows in real memory, drawn once and repeated: a gather's speed does not depend on the values."""
    weight_VD = torch.empty(rows, width, dtype=dtype)
    block = torch.randn(64, width).to(
        dtype
    )  # small: freeing it must not teach malloc to keep blocks of a result's size
    for start in range(0, rows, len(block)):
        weight_VD[start : start + len(block)] = block[: rows - start]
    return weight_VD


def page_faults(run_once: Callable[[], object]) -> int:
    """Page faults of the third call: by then every allocator has what it will keep."""
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        result = run_once()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        del result
    return faults


def compare(ids: int, rows: int, width: int, dtype: torch.dtype) -> Result:
    """One size, all three peers."""
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
    return Result(
        name=f"lookup_{ids}_of_{rows}x{width}",
        ratios=[
            ratio("inlayer / plain copy", seconds["inlayer"], seconds["copy"], at_most=2.0),
            ratio("nn.Embedding / inlayer", seconds["nn.Embedding"], seconds["inlayer"], at_least=3.0),
        ],
        measured={**milliseconds(seconds), "page_faults_per_call": faults},
        sizes={"ids": ids, "rows": rows, "width": width, "dtype": str(dtype), "bytes": target.nbytes},
        notes=["rows bit-equal"],
    )


def run() -> Iterator[Result]:
    """One result per size."""
    for case in CASES:
        yield compare(*case)
