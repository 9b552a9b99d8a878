"""Measurements of the table during training, and alerts about known problems.

rows -> [metrics] <- gradients
- row norms, and the norm of the mean row relative to them: rows that share a direction are hard to tell apart
- the gradient of a tied table is a sum: the part from lookups is recorded by hooks, the rest comes from the head
- norms and shares are those of the whole table, also if each process holds some of its rows
- elsewhere: when to measure (trainer.py)
Tested against autograd on an untied copy in tests/training/test_metrics.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from inlayer.training.decoder import Decoder
from inlayer.training.parallel import ProcessGroup

__all__ = ["Alerts", "InputGradient", "measure_rows"]

SPIKE = 1.0  # nats above the best smoothed loss so far
WINDOW = 20  # steps of the running mean
UNIGRAM_MARGIN = 0.05  # a loss within this many nats of the unigram loss has learned token frequencies only
PATIENCE = 200  # steps before the unigram loss is checked
MAX_GROWTH = 20.0  # factor over the largest row norm at the start
MAX_LOGIT_STD = 10.0


class InputGradient:
    """Gradient that reaches the table from its lookups, summed while it is recorded."""

    def __init__(self, decoder: Decoder) -> None:
        self.table: nn.Module = decoder.embeddings.token_embedding
        self.grad_VD: Tensor | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every lookup in the block, before other hooks change the rows."""
        handle = self.table.register_forward_hook(self._record, prepend=True)
        try:
            yield
        finally:
            handle.remove()

    def total(self, group: ProcessGroup) -> Tensor:
        """The gradient of the whole table (V, D), averaged over processes with different tokens."""
        assert self.grad_VD is not None
        if group.size > 1:
            import torch.distributed

            torch.distributed.all_reduce(self.grad_VD)
            self.grad_VD /= group.size
        return self.grad_VD

    def _record(self, table: nn.Module, inputs: tuple[Tensor, ...], rows: Tensor) -> None:
        weight = table.weight
        assert isinstance(weight, Tensor)
        if not rows.requires_grad:
            return
        if self.grad_VD is None:
            self.grad_VD = torch.zeros(weight.shape, device=rows.device)
        total_VD, ids_N, padding_idx = self.grad_VD, inputs[0].reshape(-1), getattr(table, "padding_idx", None)

        def add(grad: Tensor) -> None:
            total_VD.index_add_(0, ids_N, grad.reshape(-1, grad.shape[-1]).float())
            if padding_idx is not None:
                total_VD[padding_idx] = 0

        rows.register_hook(add)  # type: ignore[no-untyped-call]


@torch.no_grad()
def measure_rows(weight_VD: Tensor, padding_idx: int | None = None) -> dict[str, float]:
    """Norms of the rows and of their mean, without the padding row."""
    norms_V = weight_VD.float().norm(dim=1)
    total_D, rows = weight_VD.float().sum(0), len(norms_V)
    if padding_idx is not None:  # the row is zero and adds nothing to the sum
        norms_V = torch.cat((norms_V[:padding_idx], norms_V[padding_idx + 1 :]))
        rows -= 1
    mean = float(norms_V.mean())
    return {
        "row_norm_min": float(norms_V.min()),
        "row_norm_mean": mean,
        "row_norm_max": float(norms_V.max()),
        "mean_vector_ratio": float(total_D.norm()) / rows / mean if mean else 0.0,
    }


class Alerts:
    """Warnings about known problems of a run, each raised once."""

    def __init__(self, *, unigram_loss: float = math.inf, steps: int = 0) -> None:
        """`unigram_loss` is the loss of a model that knows only token frequencies, `steps` the length of the run."""
        self.raised: dict[str, str] = {}
        self._unigram_loss, self._patience = unigram_loss, max(PATIENCE, steps // 2)
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._best, self._first_norm = math.inf, math.nan

    def check(self, line: Mapping[str, int | float]) -> list[str]:
        """Warnings that this line of metrics is the first to cause."""
        step, found = int(line["step"]), {}
        self._losses.append(line["loss"])
        if len(self._losses) == WINDOW:
            smoothed = math.fsum(self._losses) / WINDOW
            if smoothed > self._best + SPIKE:
                found["spike"] = f"loss rose from {self._best:.2f} to {smoothed:.2f} by step {step}; the run diverges"
            self._best = min(self._best, smoothed)
            if step >= self._patience and self._best > self._unigram_loss - UNIGRAM_MARGIN:
                found["collapse"] = (
                    f"loss is {smoothed:.2f} at step {step}; token frequencies alone give {self._unigram_loss:.2f}, so "
                    "the model has learned nothing else"
                )
        if "row_norm_max" in line:
            self._first_norm = line["row_norm_max"] if math.isnan(self._first_norm) else self._first_norm
            if line["row_norm_max"] > MAX_GROWTH * self._first_norm:
                growth = f"from {self._first_norm:.3g} to {line['row_norm_max']:.3g}"
                found["growth"] = f"largest row norm grew {growth} by step {step}"
        if line.get("logit_std", 0.0) > MAX_LOGIT_STD:
            found["logits"] = (
                f"standard deviation of the logits is {line['logit_std']:.1f} at step {step}: the head is overconfident"
            )
        new = {name: message for name, message in found.items() if name not in self.raised}
        self.raised |= new
        return list(new.values())
