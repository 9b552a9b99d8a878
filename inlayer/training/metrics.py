"""Telemetry: what the table does while it learns, and the signs that it does not learn well.

rows -> [telemetry] <- gradients
- row norms, and how large the mean row is beside them: rows that share a direction are hard to tell apart
- the gradient of a tied table is a sum: what comes from the lookups is watched on its way, the head's is the rest
- shares and norms are those of the whole table, also where each process holds some of its rows
- not here: when to measure (trainer.py), what to do about it
Checked against autograd on an untied copy in tests/training/test_metrics.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from inlayer.training.decoder import Decoder
from inlayer.training.parallel import World

__all__ = ["Alerts", "InputSide", "measure_rows"]

SPIKE = 1.0  # nats above the best smoothed loss so far
SMOOTH = 20  # steps
NOTHING = 0.05  # nats below the unigram loss at which nothing else was learned
PATIENCE = 200  # steps in which a run may be no better than that
GROWN = 20.0  # times the largest row norm at the beginning
LOUD = 10.0  # standard deviation of logits


class InputSide:
    """The gradient that reaches the table from its lookups, added up while it is watched."""

    def __init__(self, decoder: Decoder) -> None:
        self.table: nn.Module = decoder.embeddings.token_embedding
        self.grad_VD: Tensor | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every lookup within the block: the rows themselves, before any other hook makes something of them."""
        handle = self.table.register_forward_hook(self._take, prepend=True)
        try:
            yield
        finally:
            handle.remove()

    def total(self, world: World) -> Tensor:
        """Of the whole table (V, D): the mean over processes that each saw some of the tokens."""
        assert self.grad_VD is not None
        if world.size > 1:
            import torch.distributed

            torch.distributed.all_reduce(self.grad_VD)
            self.grad_VD /= world.size
        return self.grad_VD

    def _take(self, table: nn.Module, given: tuple[Tensor, ...], rows: Tensor) -> None:
        weight = table.weight
        assert isinstance(weight, Tensor)
        if not rows.requires_grad:
            return
        if self.grad_VD is None:
            self.grad_VD = torch.zeros(weight.shape, device=rows.device)
        into_VD, ids_N, padding_idx = self.grad_VD, given[0].reshape(-1), getattr(table, "padding_idx", None)

        def add(grad: Tensor) -> None:
            into_VD.index_add_(0, ids_N, grad.reshape(-1, grad.shape[-1]).float())
            if padding_idx is not None:
                into_VD[padding_idx] = 0

        rows.register_hook(add)  # type: ignore[no-untyped-call]


@torch.no_grad()
def measure_rows(weight_VD: Tensor, padding_idx: int | None = None) -> dict[str, float]:
    """Norms of the rows, without the padding row, and of their mean."""
    norms_V = weight_VD.float().norm(dim=1)
    total_D, rows = weight_VD.float().sum(0), len(norms_V)
    if padding_idx is not None:  # it is zero: it adds nothing to the sum
        norms_V = torch.cat((norms_V[:padding_idx], norms_V[padding_idx + 1 :]))
        rows -= 1
    mean = float(norms_V.mean())
    return {
        "row_norm_min": float(norms_V.min()),
        "row_norm_mean": mean,
        "row_norm_max": float(norms_V.max()),
        "mean_row_ratio": float(total_D.norm()) / rows / mean if mean else 0.0,
    }


class Alerts:
    """The known signs of trouble, each told once, when it is first seen in a run."""

    def __init__(self, *, unigram: float = math.inf, steps: int = 0) -> None:
        """`unigram` is the loss of who knows only how frequent each token is, `steps` how many the run will have."""
        self.told: dict[str, str] = {}
        self._unigram, self._patience = unigram, max(PATIENCE, steps // 2)
        self._losses: deque[float] = deque(maxlen=SMOOTH)
        self._best, self._longest = math.inf, math.nan

    def look(self, line: Mapping[str, int | float]) -> list[str]:
        """Sentences about what this line of metrics is the first to show."""
        step, found = int(line["step"]), {}
        self._losses.append(line["loss"])
        if len(self._losses) == SMOOTH:
            smooth = math.fsum(self._losses) / SMOOTH
            if smooth > self._best + SPIKE:
                found["spike"] = f"the loss rose from {self._best:.2f} to {smooth:.2f} by step {step}: it diverges"
            self._best = min(self._best, smooth)
            if step >= self._patience and self._best > self._unigram - NOTHING:
                found["collapse"] = (
                    f"at step {step} the loss is {smooth:.2f}, and {self._unigram:.2f} is what token frequencies alone "
                    "give: nothing else was learned"
                )
        if "row_norm_max" in line:
            self._longest = line["row_norm_max"] if math.isnan(self._longest) else self._longest
            if line["row_norm_max"] > GROWN * self._longest:
                longest = f"{self._longest:.3g} to {line['row_norm_max']:.3g}"
                found["growth"] = f"the longest row has grown from {longest} by step {step}"
        if line.get("logit_std", 0.0) > LOUD:
            found["shouting"] = f"logits spread by {line['logit_std']:.1f} at step {step}: the head is far too sure"
        fresh = {name: told for name, told in found.items() if name not in self.told}
        self.told |= fresh
        return list(fresh.values())
