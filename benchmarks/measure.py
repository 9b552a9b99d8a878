"""Shared code of the benchmarks: interleaved timing, conditions, and three output formats.

- the implementations to compare take turns in one process, so noise affects all of them
- the headline is a ratio of medians, next to the ratio of the fastest rounds
- targets are reported as met or missed; missing one is not an error
- next to the ratio to a peer there is one to a limit where it can be measured: the part of the work that no
  implementation can leave out, in allocated memory
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from torch import Tensor

OUT = Path(__file__).parent / "out"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Ratio of two costs, and its target."""

    label: str
    value: float
    best: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}" if self.at_most is not None else ""

    @property
    def met(self) -> bool | None:
        """True if the target was met; None without a target."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a benchmark: ratios, the measurements behind them, and the sizes."""

    name: str
    ratios: list[Ratio]
    measured: dict[str, Any]
    sizes: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def interleave(
    peers: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds of every function in every round. Its result is freed before the next one starts.

    With `calls`, a function runs that often in a row, and its last call counts: it reuses the memory of the one before.
    Memory that the system has to clear first can cost more than the work, and how much depends on what ran before.
    """
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for round_number in range(warm_up + rounds):
        for name, run in peers.items():
            for _ in range(calls):
                start = time.perf_counter()
                result = run()
                spent = time.perf_counter() - start
                del result
            if round_number >= warm_up:
                seconds[name].append(spent)
    return seconds


def ratio(label: str, over: list[float], under: list[float], **target: float) -> Ratio:
    """The cost of `over` relative to `under`."""
    value = statistics.median(over) / statistics.median(under)
    return Ratio(label=label, value=value, best=min(over) / min(under), **target)


def milliseconds(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median and fastest round of every function."""
    return {
        name: {"median_ms": round(statistics.median(all_) * 1e3, 3), "min_ms": round(min(all_) * 1e3, 3)}
        for name, all_ in seconds.items()
    }


def linear_products(weights: Iterable[Tensor], tokens: int, chunk: int | None = None) -> Callable[[], None]:
    """Return the limit of training linear layers: their products forward and backward, in allocated memory.

    Args:
        weights: The matrices (out, in) of the layers.
        tokens: Inputs per layer.
        chunk: Inputs at once; by default all.
    """
    import torch

    rows = chunk or tokens
    layers = [
        (weight.detach(), *(torch.ones(size) for size in ((rows, width), (rows, out), (out, width), (rows, width))))
        for weight in weights
        for out, width in [weight.shape]
    ]

    def multiply() -> None:
        for weight, inputs, outputs, weight_gradient, input_gradient in layers:
            for _ in range(0, tokens, rows):
                torch.mm(inputs, weight.T, out=outputs)
                torch.mm(outputs.T, inputs, out=weight_gradient)
                torch.mm(outputs, weight, out=input_gradient)

    return multiply


def conditions() -> dict[str, Any]:
    """Versions, hardware and load that the numbers depend on."""
    import torch

    packages = {name: installed(name) for name in ("inlayer", "torch", "numpy", "tokenizers", "gigatoken")}
    return {
        "python": platform.python_version(),
        "packages": packages,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
    }


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """Model name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def show(result: Result, console: Console) -> None:
    """Print a table of the result."""
    table = Table(title=f"{result.name}  {format_sizes(result.sizes)}", title_justify="left")
    for column in ("ratio", "median", "fastest", "target", ""):
        table.add_column(column, justify="left" if column in {"ratio", "target", ""} else "right")
    for one in result.ratios:
        verdict = {True: "target met", False: "target missed", None: ""}[one.met]
        best = "" if one.best is None else f"{one.best:.2f}x"
        table.add_row(one.label, f"{one.value:.2f}x", best, one.target, verdict)
    console.print(table)
    for name, value in result.measured.items():
        console.print(f"  {name}: {value}", highlight=False)
    for note in result.notes:
        console.print(f"  {note}", highlight=False)


def format_sizes(sizes: dict[str, Any]) -> str:
    """Format sizes on one line."""
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in sizes.items()
    )


def draw(result: Result) -> Path:
    """Plot one bar per ratio, with a line at the target."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    OUT.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.55 * len(result.ratios)), layout="constrained")
    rows = range(len(result.ratios))[::-1]
    colors = [{True: "#2a7f62", False: "#b5523b", None: "#6b7280"}[one.met] for one in result.ratios]
    bars = axes.barh(rows, [one.value for one in result.ratios], color=colors, height=0.6)
    axes.bar_label(bars, [f"{one.value:.2f}x" for one in result.ratios], padding=4)
    for row, one in zip(rows, result.ratios, strict=True):
        target = one.at_least if one.at_least is not None else one.at_most
        if target is not None:
            axes.plot([target, target], [row - 0.4, row + 0.4], color="black", linewidth=1.5)
    axes.set_yticks(rows, [one.label for one in result.ratios])
    axes.set_title(f"{result.name} (line: target)", loc="left")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    path = OUT / f"{result.name}.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def as_json(result: Result) -> str:
    """The result as one line of JSON."""
    return json.dumps(
        {
            "benchmark": result.name,
            "ratios": {
                one.label: {
                    "median": round(one.value, 3),
                    "fastest": None if one.best is None else round(one.best, 3),
                    "target": one.target or None,
                    "met": one.met,
                }
                for one in result.ratios
            },
            "measured": result.measured,
            "sizes": result.sizes,
            "notes": result.notes,
            "conditions": conditions(),
        },
        ensure_ascii=False,
    )
