"""The report of a run as plain facts, and as JSON.

- `to_json` gives ASCII: strings, whole numbers, finite numbers, true, false, null; NaN and infinity become null
- not here: how it is said (words.py) and shown (terminal.py, page.py)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlayer.training.analysis import Learned
from inlayer.training.plot import curve_of, smooth_loss

__all__ = ["Continuation", "Losses", "Report", "to_json"]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The course of a loss. `last` is None where the last one was no number."""

    first: float
    last: float | None
    best: float
    best_step: int


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What the model makes of the beginning of a text."""

    prompt: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run, told afterwards.

    name      what it is called, without where it lies
    model     facts: the fields of DecoderConfig, and `parameters`, how many numbers were trained
    settings  what was asked for
    training  smoothed as in the picture: single steps go up and down; None where no step gave a number
    """

    name: str
    model: dict[str, Any]
    settings: dict[str, Any]
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float | None
    training: Losses | None
    validation: Losses | None
    learned: Learned
    continuation: Continuation | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        metrics: Sequence[Mapping[str, Any]],
        *,
        name: str,
        model: Mapping[str, Any],
        settings: Mapping[str, Any],
        learned: Learned,
        continuation: Continuation | None = None,
        warnings: Sequence[str] = (),
    ) -> Report:
        """The report of the run that wrote these metrics."""
        last = metrics[-1] if metrics else {"step": 0, "tokens": 0, "seconds": 0.0}
        seconds = float(last["seconds"])
        return cls(
            name=name,
            model=dict(model),
            settings=dict(settings),
            steps=int(last["step"]),
            tokens=int(last["tokens"]),
            seconds=seconds,
            tokens_per_second=last["tokens"] / seconds if seconds > 0 else None,
            training=_losses(metrics, "loss", smoothed=True),
            validation=_losses(metrics, "validation_loss", smoothed=False),
            learned=learned,
            continuation=continuation,
            warnings=tuple(warnings),
        )


def to_json(report: Report) -> str:
    """Plain JSON: ASCII, without NaN and infinity, which become null."""
    return json.dumps(_plain(asdict(report)), indent=2, allow_nan=False) + "\n"


def _losses(metrics: Sequence[Mapping[str, Any]], name: str, *, smoothed: bool) -> Losses | None:
    curve = curve_of(metrics, name)
    if not curve.values:
        return None
    values = smooth_loss(curve.values) if smoothed else curve.values
    best = min(range(len(values)), key=values.__getitem__)
    ended = not curve.lost or curve.lost[-1] < curve.steps[-1]
    return Losses(first=values[0], last=values[-1] if ended else None, best=values[best], best_step=curve.steps[best])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
