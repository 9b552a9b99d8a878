"""Learning-rate schedule: each step's rate depends only on the step number, so resuming needs no scheduler state.

- the rate rises linearly during warm-up, then follows `lr_schedule` down to `min_lr_ratio` of the peak
- see also: multipliers for the table and the head (optimizer.py)
Tested in tests/training/test_config.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from inlayer.training.config import TrainConfig

LrSchedule: TypeAlias = Literal["cosine", "linear", "constant"]


def count_warmup_steps(config: TrainConfig) -> int:
    """Return the number of warm-up steps, derived from the number of steps if `warmup_steps` is None."""
    return min(50, config.total_steps // 10) if config.warmup_steps is None else config.warmup_steps


def learning_rate_at(config: TrainConfig, step: int) -> float:
    """Return the learning rate of the blocks at a step, counted from 1."""
    warmup = count_warmup_steps(config)
    if step <= warmup:
        return config.learning_rate * step / warmup
    done = (step - warmup) / max(1, config.total_steps - warmup)
    remaining = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[config.lr_schedule]
    return config.learning_rate * (config.min_lr_ratio + (1 - config.min_lr_ratio) * remaining)
