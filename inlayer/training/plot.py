"""Plots a training run over its steps: loss, row norms, mean-vector ratio, gradient shares of lookups and head.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- the plot is drawn from metrics.jsonl: one dict per step, which omits values that the step did not measure. Non-finite
  values (null, NaN, or infinity, after a run diverged) are marked, and curves have gaps there
- the legend, next to the title, shows the last value of each curve. The loss is a running mean, drawn over the losses
  of the individual steps
- matplotlib is imported only when a plot is drawn, and pyplot's global state is not used
Tested in tests/training/test_plot.py.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inlayer.errors import MissingExtraError
from inlayer.files import write_output
from inlayer.render.numbers import pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED = "#1b2326", "#566267"  # the page's colors; the others are in page/plot.mplstyle
PETROL, ORANGE, PALE, RED = "#0d5a66", "#c9600f", "#9fb9be", "#9c2f2a"
STYLE = Path(__file__).parent / "page" / "plot.mplstyle"
SIZE, DPI = (11.0, 7.2), 130  # inches
MARGINS = {"left": 0.05, "right": 0.97, "top": 0.905, "bottom": 0.07, "wspace": 0.18, "hspace": 0.42}
SMALL_TEXT = 8.8
# The legend is next to the title, because inside the panel it would cover a curve.
LEGEND = {"loc": "lower right", "bbox_to_anchor": (1, 1.105), "ncols": 3, "fontsize": SMALL_TEXT, "frameon": False,
          "borderpad": 0, "borderaxespad": 0, "handlelength": 1.4, "columnspacing": 1.2}  # fmt: skip
SMOOTHING = 50  # the smoothed loss is a running mean over a fiftieth of the run
MAX_SMOOTHED = 1e4  # nats; with 1e30, a running sum would lose everything added later
MAX_LOSS_RATIO = 3.0  # ratio to the first loss; higher values are cut off, so the rest stays readable
MAX_FLOAT32 = 3.4e38
MAX_MARKED = 60  # points drawn with markers


class Curve(NamedTuple):
    """Values of one metric, for the steps that measured it. Values that were not finite are NaN."""

    steps: list[int]
    values: list[float]


def draw(metrics: Sequence[Mapping[str, Any]], path: Path) -> bytes:
    """Write the plot of a run as a PNG file, and return its bytes."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'inlayer[train]'") from error

    png = io.BytesIO()
    with style.context(["default", STYLE]):  # independent of the user's style
        make_figure(metrics).savefig(png, format="png", dpi=DPI)
    write_output(path, png.getvalue())
    return png.getvalue()


def make_figure(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE)
    panels = figure.subplots(2, 2, gridspec_kw=MARGINS).flatten().tolist()
    last = max((int(line["step"]) for line in metrics), default=1)
    for panel, (name, title, subtitle, plot) in zip(panels, PANELS, strict=True):
        panel.set_title(title, loc="left", pad=24)
        panel.text(0, 1.035, subtitle, transform=panel.transAxes, color=MUTED, fontsize=SMALL_TEXT)
        panel.set_xlim(0, 1.008 * last)
        panel.grid(axis="y")
        panel.locator_params(axis="x", integer=True, nbins=6)
        panel.locator_params(axis="y", nbins=6)
        panel.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
        curve = curve_of(metrics, name)
        if np.isfinite(curve.values).any():
            plot(panel, metrics, curve)
            panel.legend(**LEGEND)
        else:
            panel.set_yticks([])
            panel.text(0.5, 0.5, "not measured" if not curve.values else "", transform=panel.transAxes, ha="center")
        if nonfinite := [step for step, value in zip(*curve, strict=True) if math.isnan(value)]:
            panel.vlines(nonfinite, 0, 0.03, color=RED, transform=panel.get_xaxis_transform(), linewidth=1)
            text = f"not finite at {pluralize(len(nonfinite), 'step')}"
            panel.text(1, 1.035, text, transform=panel.transAxes, color=RED, ha="right", fontsize=SMALL_TEXT)
    for panel in panels[2:]:
        panel.set_xlabel("step")
    return figure


def curve_of(metrics: Sequence[Mapping[str, Any]], name: str) -> Curve:
    measured = [line for line in metrics if name in line]
    values = np.array([line[name] for line in measured], float)  # None becomes NaN
    values[~(np.abs(values) <= MAX_FLOAT32)] = math.nan
    return Curve([int(line["step"]) for line in measured], values.tolist())


def smooth(values: Sequence[float], span: int) -> list[float]:
    """Return the centered running mean over `span` values on either side.

    At the start, where a loss falls fast, the window shrinks symmetrically. At the end, it is truncated. Values are
    clipped to MAX_SMOOTHED.
    """
    sums = np.concatenate(([0.0], np.cumsum(np.clip(values, -MAX_SMOOTHED, MAX_SMOOTHED))))
    index = np.arange(len(values))
    starts = np.maximum(0, index - span)
    ends = np.minimum(len(values), index + np.minimum(span, index) + 1)
    return list((sums[ends] - sums[starts]) / (ends - starts))


def averaged_steps(losses: Sequence[float]) -> int:
    """Return the number of finite losses whose mean is the last smoothed loss."""
    return int(np.isfinite(losses).sum()) // (2 * SMOOTHING) + 1


def smooth_loss(losses: Sequence[float]) -> list[float]:
    """Return the loss as the plot shows it; NaN values are kept and ignored by the smoothing."""
    smoothed = np.array(losses, float)
    finite = np.isfinite(smoothed)
    smoothed[finite] = smooth(smoothed[finite], averaged_steps(losses) - 1)
    return [float(loss) for loss in smoothed]


# ---- panels


def _loss(panel: Axes, metrics: Sequence[Mapping[str, Any]], training: Curve) -> None:
    smoothed, validation = Curve(training.steps, smooth_loss(training.values)), curve_of(metrics, "validation_loss")
    panel.plot(*training, color=PALE, linewidth=0.8, marker="o" if len(training.values) == 1 else "")
    averaged = averaged_steps(training.values)
    name = f"training, mean of the last {averaged:,} steps:" if averaged > 1 else "training"
    panel.plot(*smoothed, color=PETROL, label=_label(name, smoothed))
    _plot(panel, validation, ORANGE, "validation")
    shown, raw = np.array([*smoothed.values, *validation.values]), np.array(training.values)
    shown, raw = shown[np.isfinite(shown)], raw[np.isfinite(raw)]
    # A few outliers are cut off at the top of the panel.
    low, high = min(shown.min(), np.quantile(raw, 0.005)), max(shown.max(), np.quantile(raw, 0.99))
    high = min(high, max(low, MAX_LOSS_RATIO * raw[0]) if raw[0] > 0 else high)
    margin = 0.06 * (high - low) or 0.5
    panel.set_ylim(low - margin, high + margin)


def _norms(panel: Axes, metrics: Sequence[Mapping[str, Any]], mean: Curve) -> None:
    smallest, largest = curve_of(metrics, "row_norm_min"), curve_of(metrics, "row_norm_max")
    if smallest.steps == largest.steps:
        edge = 6 if len(smallest.steps) == 1 else 0  # a single measurement has no width
        panel.fill_between(
            *smallest, largest.values, color=PETROL, alpha=0.13, linewidth=edge, label="smallest to largest"
        )
    _plot(panel, mean, PETROL, "mean")
    panel.set_ylim(bottom=0)


def _mean_vector(panel: Axes, _: Sequence[Mapping[str, Any]], ratio: Curve) -> None:
    _plot(panel, ratio, PETROL, "")
    panel.set_ylim(0, max(0.1, 1.15 * np.nanmax(ratio.values)))


def _shares(panel: Axes, _: Sequence[Mapping[str, Any]], share: Curve) -> None:
    panel.fill_between(*share, 1, color=PETROL, alpha=0.16, linewidth=0, label="lookups")
    panel.fill_between(share.steps, 0, share.values, color=ORANGE, alpha=0.16, linewidth=0)
    _plot(panel, share, INK, "head")
    panel.set_ylim(0, 1)
    panel.yaxis.set_major_formatter("{x:.0%}")


PANELS = (
    ("loss", "Loss", "nats per token", _loss),
    ("row_norm_mean", "Row norms", "mean, smallest, and largest row norm", _norms),
    ("mean_vector_ratio", "Mean-vector ratio", "0: rows surround the origin; 1: all rows are equal", _mean_vector),
    ("head_gradient_share", "Gradient share", "from the lookups and from the head, by norm", _shares),
)


def _plot(panel: Axes, curve: Curve, color: str, name: str) -> None:
    """Draw a curve if it has values. If it has few, markers are added, because a line does not show a single point."""
    if np.isfinite(curve.values).any():
        marker = "o" if len(curve.values) <= MAX_MARKED else ""
        panel.plot(*curve, color=color, marker=marker, markersize=3.5, markeredgewidth=0, label=_label(name, curve))


def _label(name: str, curve: Curve) -> str:
    """Return a curve's name and its last finite value."""
    last = next(value for value in reversed(curve.values) if math.isfinite(value))
    return f"{name} {f'{last:.3g}' if abs(last) < 100 or abs(last) >= 1e5 else f'{last:,.0f}'}".strip()
