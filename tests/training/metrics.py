"""Metrics like those of a run: a falling loss, a growing table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def make_metrics(steps: int, *, every: int = 20, validate: int = 100) -> list[dict[str, Any]]:
    """One dict per step; some steps also measure the table or the validation loss."""
    random, metrics = np.random.default_rng(0), []
    for step in range(1, steps + 1):
        done = step / steps
        line: dict[str, Any] = {
            "step": step, "loss": 2.4 + 5 * math.exp(-6 * done) + 0.1 * random.standard_normal(), "tokens": 1024 * step,
            "seconds": 0.125 * step, "learning_rate": 1e-3, "gradient_norm": 0.5,
        }  # fmt: skip
        if step % validate == 0:
            line["validation_loss"] = 2.55 + 5 * math.exp(-6 * done)
        if step % every == 0 or step == steps:
            line |= {
                "row_norm_mean": 0.2 + done, "row_norm_min": 0.1 + 0.1 * done, "row_norm_max": 0.3 + 2 * done,
                "mean_vector_ratio": 0.02 + 0.3 * done, "lookup_gradient_norm": 0.1, "head_gradient_norm": 0.4,
                "head_gradient_share": 0.9 - 0.3 * done, "logit_std": 0.3,
            }  # fmt: skip
        metrics.append(line)
    return metrics
