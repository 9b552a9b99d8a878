"""hidden states -> loss and gradients: Head.loss compared with plain logits + cross-entropy.

Times are measured interleaved in this process. The first call, which allocates and starts threads, is reported apart
from the steady state. Peak memory is measured for each in its own process, by sampling the
resident size relative to that with rows, hidden states and targets already in memory.

The limit is the three matrix products that every implementation needs: logits, and the gradients of both inputs.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.measure import Ratio, Result, interleave, linear_products, milliseconds, ratio
from inlayer.chunked_loss import chunk_rows
from inlayer.head import Head

ROWS, WIDTH, TOKENS = 131_072, 512, 2_048
PAGE = 4096
LIMIT = "limit: matrix products"


def peers() -> dict[str, Callable[[], Tensor]]:
    """Both ways to compute the loss, each with its backward pass."""
    torch.manual_seed(0)
    head = Head(WIDTH, ROWS)
    hidden_ND = torch.randn(TOKENS, WIDTH, requires_grad=True)
    targets_N = torch.randint(0, ROWS, (TOKENS,))

    def step(loss: Callable[[], Tensor]) -> Tensor:
        head.weight.grad = hidden_ND.grad = None
        value = loss()
        torch.autograd.backward(value)
        return value.detach()

    return {
        "inlayer": lambda: step(lambda: head.loss(hidden_ND, targets_N)),
        "plain logits": lambda: step(lambda: functional.cross_entropy(head(hidden_ND), targets_N)),
    }


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def peak_of(name: str) -> int:
    """Peak memory of one step in bytes, relative to the memory before it."""
    run_once = peers()[name]
    warm_up = functional.linear(torch.ones(8, 8, requires_grad=True), torch.ones(8, 8)).sum()
    torch.autograd.backward(warm_up)  # allocates what libraries keep for themselves
    before = peak = resident()
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.002)

    sampler = threading.Thread(target=sample)
    sampler.start()
    run_once()
    done.set()
    sampler.join()
    return peak - before


def run() -> Iterator[Result]:
    """Yield one result."""
    peaks = {}
    for name in ("inlayer", "plain logits"):
        command = [sys.executable, "-m", "benchmarks.head_loss", name]
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    losses: dict[str, Tensor] = {}

    def recorded(name: str, step: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: losses.update({name: step()})

    steps: dict[str, Callable[[], object]] = {name: recorded(name, step) for name, step in peers().items()}
    steps[LIMIT] = linear_products([torch.ones(ROWS, WIDTH)], TOKENS, chunk_rows(TOKENS, WIDTH))
    rounds = interleave(steps, rounds=4, warm_up=0)
    first = {name: spent[:1] for name, spent in rounds.items()}
    seconds = {name: spent[1:] for name, spent in rounds.items()}
    torch.testing.assert_close(losses["inlayer"], losses["plain logits"], rtol=1e-5, atol=1e-6)
    yield Result(
        name="head_loss",
        ratios=[
            Ratio(label="peak memory: inlayer / plain", value=peaks["inlayer"] / peaks["plain logits"], at_most=0.35),
            ratio("time: inlayer / plain", seconds["inlayer"], seconds["plain logits"], at_most=1.05),
            ratio(f"time: inlayer / {LIMIT}", seconds["inlayer"], seconds[LIMIT]),
            ratio("time of the first call: inlayer / plain", first["inlayer"], first["plain logits"]),
        ],
        measured={**milliseconds(seconds), "peak_mib": {name: round(peak / 2**20) for name, peak in peaks.items()}},
        sizes={"rows": ROWS, "width": WIDTH, "tokens": TOKENS, "chunk": chunk_rows(TOKENS, WIDTH)},
    )


if __name__ == "__main__":
    print(peak_of(sys.argv[1]))
