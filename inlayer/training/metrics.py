"""Metrics of a run: lines of metrics.jsonl, measurements of the table, and alerts about known problems.

rows -> [metrics] <- gradients
- row norms are measured, as is the norm of the mean vector relative to them, because rows that share a direction are
  hard to tell apart
- the gradient of a tied table is a sum: hooks record the part from lookups, and the rest comes from the head
- norms and shares describe the whole table, even if each process stores only some of its rows
- see also: when to measure (trainer.py)
Tested against autograd on an untied copy in tests/training/test_metrics.py.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from inlayer.facts_base import plain
from inlayer.tables import Table

REQUIRED = {"step", "loss", "learning_rate", "gradient_norm", "tokens", "seconds"}

SPIKE = 1.0  # nats above the best smoothed loss so far
WINDOW = 20  # steps of the running mean
UNIGRAM_MARGIN = 0.05  # a loss within this many nats of the unigram loss means that only token frequencies were learned
PATIENCE = 200  # steps before the unigram loss is checked
MAX_GROWTH = 20.0  # ratio to the largest row norm at the start
MAX_LOGIT_STD = 10.0


Metrics = dict[str, int | float]


def to_line(metrics: Metrics) -> bytes:
    """Return a line of metrics.jsonl. JSON has no NaN or infinity, so both become null."""
    return (json.dumps(plain(metrics, names={})) + "\n").encode()


def from_line(data: bytes, step: int) -> Metrics:
    """Read a line of metrics.jsonl. Raises ValueError if it is not from this step."""
    line = json.loads(data)
    if not isinstance(line, dict) or not line.keys() >= REQUIRED or line["step"] != step:
        raise ValueError(f"line {step:,} is not from step {step:,}")
    values = {name: math.nan if value is None else value for name, value in line.items()}
    for name, value in values.items():
        if type(value) not in {int, float} or abs(value) >= 2**63:
            raise ValueError(f"{name} in line {step:,} is not a number")
    return values


def record_input_gradient(table: Table) -> tuple[RemovableHandle, Tensor]:
    """Sum the gradient that reaches the table from its lookups into a tensor (V, D), until the handle is removed."""
    total_VD, padding_idx = torch.zeros(table.weight.shape, device=table.weight.device), table.padding_idx

    def record(_: nn.Module, inputs: tuple[Tensor, ...], rows: Tensor) -> None:
        def add(grad: Tensor) -> None:
            total_VD.index_add_(0, inputs[0].reshape(-1), grad.reshape(-1, grad.shape[-1]).float())
            if padding_idx is not None:
                total_VD[padding_idx] = 0

        if rows.requires_grad:
            rows.register_hook(add)

    return table.register_forward_hook(record, prepend=True), total_VD  # before other hooks change the rows


@torch.no_grad()
def measure_rows(weight_VD: Tensor, padding_idx: int | None = None) -> dict[str, float]:
    """Return the norms of the rows and of their mean, without the padding row."""
    norms_V, total_D = weight_VD.float().norm(dim=1), weight_VD.float().sum(0)
    if padding_idx is not None:  # the row is zero and adds nothing to the sum
        norms_V = torch.cat((norms_V[:padding_idx], norms_V[padding_idx + 1 :]))
    mean = float(norms_V.mean())
    return {
        "row_norm_min": float(norms_V.min()),
        "row_norm_mean": mean,
        "row_norm_max": float(norms_V.max()),
        "mean_vector_ratio": float(total_D.norm()) / len(norms_V) / mean if mean else 0.0,
    }


class Alerts:
    """Warnings about known problems of a run, each raised once."""

    def __init__(self, *, unigram_loss: float = math.inf, steps: int = 0) -> None:
        """`unigram_loss` is the loss of a model that knows only token frequencies; `steps` is the length of the run."""
        self.raised: dict[str, str] = {}
        self._unigram_loss, self._patience = unigram_loss, max(PATIENCE, steps // 2)
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._best, self._first_norm = math.inf, math.nan

    def check(self, line: Metrics) -> list[str]:
        """Return the warnings that apply for the first time with this line of metrics."""
        new = {name: message for name, message in self._problems(line) if name not in self.raised}
        self.raised |= new
        return list(new.values())

    def _problems(self, line: Metrics) -> Iterator[tuple[str, str]]:
        step, std = int(line["step"]), line.get("logit_std", 0.0)
        self._losses.append(line["loss"])
        if len(self._losses) == WINDOW:
            smoothed = math.fsum(self._losses) / WINDOW
            if smoothed > self._best + SPIKE:
                yield "spike", f"loss rose from {self._best:.2f} to {smoothed:.2f} by step {step}; the run is diverging"
            self._best = min(self._best, smoothed)
            if step >= self._patience and self._best > self._unigram_loss - UNIGRAM_MARGIN:
                hint = f"token frequencies alone give {self._unigram_loss:.2f}, so that is all the model has learned"
                yield "collapse", f"loss is {smoothed:.2f} at step {step}; {hint}"
        if "row_norm_max" in line:
            first, largest = self._first_norm, line["row_norm_max"]
            self._first_norm = largest if math.isnan(first) else first
            if largest > MAX_GROWTH * self._first_norm:
                yield "growth", f"largest row norm grew from {first:.3g} to {largest:.3g} by step {step}"
        if std > MAX_LOGIT_STD:
            yield "logits", f"standard deviation of the logits is {std:.1f} at step {step}: the head is overconfident"
