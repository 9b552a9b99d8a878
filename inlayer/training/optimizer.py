"""Optimizers for a decoder: AdamW in parameter groups that differ in learning rate and weight decay.

- the table, positions, and head have learning-rate multipliers and, by default, no weight decay; a tied head counts as
  the table
- norms and biases never decay
- learning rates are set before every step from the step number, so no scheduler state has to be saved
- `CoupledAdamW` is AdamW with one second moment for the whole vocabulary, so rare and frequent rows are scaled
  alike (docs/tying.md)
- see also: gradients and clipping (trainer.py)
Tested against torch.optim.AdamW in tests/training/test_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder

Group = dict[str, Any]
PREFIXES = {"embeddings.token_embedding.": "table", "embeddings.position_embedding.": "positions", "head.": "head"}


class CoupledAdamW(torch.optim.Optimizer):
    """Coupled Adam (Stollenwerk and Stollenwerk 2025): AdamW with its second moment averaged over rows, (1, D)."""

    def __init__(
        self, parameters: Iterable[nn.Parameter] | Iterable[Group], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step; closures are not supported."""
        assert closure is None
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight_VD in group["params"]:
                if weight_VD.grad is None:
                    continue
                state = self.state[weight_VD]
                if not state:
                    state |= zero_moments(weight_VD, shared=True)
                state["step"] += 1
                steps = float(state["step"])
                weight_VD.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].lerp_(weight_VD.grad, 1 - beta1)
                state["exp_avg_sq"].lerp_(weight_VD.grad.square().mean(0, keepdim=True), 1 - beta2)
                denominator_1D = (state["exp_avg_sq"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
                step_size = group["lr"] / (1 - beta1**steps)
                weight_VD.addcdiv_(state["exp_avg"], denominator_1D.expand_as(weight_VD), value=-step_size)


def zero_moments(weight: Tensor, *, shared: bool) -> dict[str, Tensor]:
    """Return a parameter's state before its first step, with AdamW's names."""
    step = torch.zeros((), device=weight.device, dtype=torch.float32)
    second = torch.zeros_like(weight[:1] if shared else weight)
    return {"step": step, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": second}


def make_optimizers(decoder: Decoder, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Make an AdamW for all groups, or a CoupledAdamW for the table if its second moment is shared."""
    groups = make_groups(decoder, config)
    options: Group = {
        "lr": config.learning_rate,
        "betas": (config.adam_beta1, config.adam_beta2),
        "eps": config.adam_epsilon,
    }
    coupled = [group for group in groups if group["name"] == "table" and config.shared_second_moment]
    rest = [group for group in groups if group not in coupled]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, fused=True, **options)]
    return [*optimizers, CoupledAdamW(coupled, **options)] if coupled else optimizers


def make_groups(decoder: Decoder, config: TrainConfig) -> list[Group]:
    """Return parameter groups with their learning-rate multipliers; empty groups are omitted."""
    groups: dict[str, Group] = {
        "table": {"rate": config.embedding_lr_scale, "weight_decay": config.embedding_weight_decay},
        "positions": {"rate": config.embedding_lr_scale, "weight_decay": config.embedding_weight_decay},
        "head": {"rate": config.head_lr_scale, "weight_decay": config.embedding_weight_decay},
        "matrices": {"rate": 1.0, "weight_decay": config.weight_decay},
        "vectors": {"rate": 1.0, "weight_decay": 0.0},
    }
    members: dict[str, list[Tensor]] = {name: [] for name in groups}
    for name, parameter in decoder.named_parameters():
        usual = "matrices" if parameter.dim() > 1 else "vectors"
        group_name = next((group for prefix, group in PREFIXES.items() if name.startswith(prefix)), usual)
        members[group_name].append(parameter)
    return [{"name": name, "params": members[name], **group} for name, group in groups.items() if members[name]]


def set_learning_rates(optimizers: Iterable[torch.optim.Optimizer], learning_rate: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["rate"]
