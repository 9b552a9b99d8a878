"""The optimizer of a decoder: AdamW, in groups that differ in rate and decay.

- table, positions and head have rates of their own and by default no decay; a tied head is the table and has none
- norms and biases never decay
- the rate is set before every step from the step's number: there is no scheduler whose state would have to be kept
- `CoupledAdamW` is AdamW with one second moment for a whole vocabulary, so that rare and frequent rows take steps by
  the same measure (a cure for tied tables, docs/tying.md)
- not here: gradients, clipping and what else a step is (trainer.py)
Checked against torch.optim.AdamW in tests/training/test_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from inlayer.training.config import Settings
from inlayer.training.decoder import Decoder

__all__ = ["CoupledAdamW", "make_optimizers", "set_rates"]

Group = dict[str, Any]


class CoupledAdamW(torch.optim.Optimizer):
    """AdamW whose second moment is the mean over the rows (V, D) -> (1, D)."""

    def __init__(
        self, parameters: Iterable[nn.Parameter] | Iterable[Group], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step; a closure is not offered."""
        assert closure is None
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for row_VD in group["params"]:
                if row_VD.grad is None:
                    continue
                state = self.state[row_VD]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"] = torch.zeros_like(row_VD)
                    state["exp_avg_sq"] = torch.zeros_like(row_VD[:1])
                state["step"] += 1
                steps = float(state["step"])
                row_VD.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].lerp_(row_VD.grad, 1 - beta1)
                state["exp_avg_sq"].lerp_(row_VD.grad.square().mean(0, keepdim=True), 1 - beta2)
                spread_1D = (state["exp_avg_sq"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
                row_VD.addcdiv_(state["exp_avg"], spread_1D.expand_as(row_VD), value=-group["lr"] / (1 - beta1**steps))


def make_optimizers(decoder: Decoder, settings: Settings) -> list[torch.optim.Optimizer]:
    """One for all, and a second one for the table where its moment is shared."""
    groups = make_groups(decoder, settings)
    options: Group = {
        "lr": settings.learning_rate,
        "betas": (settings.beta1, settings.beta2),
        "eps": settings.epsilon,
    }
    table = [group for group in groups if group["name"] == "table" and settings.shared_moment]
    rest = [group for group in groups if group not in table]
    made: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, fused=True, **options)]
    return [*made, CoupledAdamW(table, **options)] if table else made


def make_groups(decoder: Decoder, settings: Settings) -> list[Group]:
    """Table, positions, head, matrices and the rest, each with the factor of its rate; only those that are there."""
    table = decoder.embeddings.token_embedding.weight
    groups: dict[str, Group] = {
        "table": {"rate": settings.table_rate, "weight_decay": settings.table_decay},
        "positions": {"rate": settings.table_rate, "weight_decay": settings.table_decay},
        "head": {"rate": settings.head_rate, "weight_decay": settings.table_decay},
        "matrices": {"rate": 1.0, "weight_decay": settings.weight_decay},
        "vectors": {"rate": 1.0, "weight_decay": 0.0},
    }
    members: dict[str, list[Tensor]] = {name: [] for name in groups}
    for name, parameter in decoder.named_parameters():
        if parameter is table:
            members["table"].append(parameter)
        elif name.startswith("embeddings.position_embedding."):
            members["positions"].append(parameter)
        elif name.startswith("head."):
            members["head"].append(parameter)
        else:
            members["matrices" if parameter.dim() > 1 else "vectors"].append(parameter)
    return [{"name": name, "params": members[name], **group} for name, group in groups.items() if members[name]]


def set_rates(optimizers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Give every group its rate for the next step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["rate"]
