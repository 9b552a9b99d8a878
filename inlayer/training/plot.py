"""Plot of a training run: loss, row norms, mean-vector ratio, and gradient share of both sides, over steps.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- drawn from metrics.jsonl: one dict per step, without the values that a step did not measure. Values that are not
  finite (null, NaN, infinity; a diverged run) are marked, and curves have a gap there
- each curve is labeled with its last value; the loss is smoothed, with the values of single steps behind it
- matplotlib is imported only when a plot is drawn, and pyplot's global state is not used
- elsewhere: when values are measured (trainer.py), the page around the plot (report/page.py)
Tested in tests/training/test_plot.py.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inlayer.errors import InputError, MissingExtraError
from inlayer.files import check_path, shown
from inlayer.render.numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "curve_of", "draw", "make_figure", "smooth", "smooth_loss"]

INK, MUTED, LINE = "#1b2326", "#566267", "#d9dedf"  # the page's colors
PETROL, ORANGE, PALE, RED = "#0d5a66", "#c9600f", "#9fb9be", "#9c2f2a"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # included in matplotlib
    "font.size": 9.5,
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "white",
    "axes.linewidth": 1.0,
    "axes.unicode_minus": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
SIZE, DPI = (11.0, 7.2), 130  # inches
MARGINS = {"left": 0.05, "right": 0.905, "top": 0.905, "bottom": 0.07, "wspace": 0.36, "hspace": 0.42}
SMOOTHING = 50  # the smoothed loss is a running mean over a fiftieth of the run
MAX_SMOOTHED = 1e4  # nats: a running sum that has contained 1e30 loses everything after it
MAX_LOSS_RATIO = 3.0  # to the first loss; higher values leave the panel, so that the rest stays readable
MAX_FLOAT32 = 3.4e38
MAX_MARKED = 60  # points with a marker each


class Curve(NamedTuple):
    """A value over the steps that measured it. `nonfinite` are the steps where it was not finite."""

    steps: list[int]
    values: list[float]
    nonfinite: list[int]


def draw(metrics: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> bytes:
    """Write the plot of a run as a PNG file, and return its bytes."""
    file = check_path(path)
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'inlayer[train]'") from error

    png = io.BytesIO()
    with mpl.rc_context():
        mpl.rcParams.update({**mpl.rcParamsDefault, **STYLE})  # independent of the user's style
        make_figure(metrics).savefig(png, format="png", dpi=DPI)
    try:
        file.write_bytes(png.getvalue())
    except OSError as error:
        raise InputError(f"{shown(file)} cannot be written: {error.strerror}") from error
    return png.getvalue()


def make_figure(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """The figure with its four panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE)
    panels = figure.subplots(2, 2, gridspec_kw=MARGINS).flatten().tolist()
    last = max((int(line["step"]) for line in metrics), default=1)
    for panel, (name, title, subtitle, plot) in zip(panels, PANELS, strict=True):
        _frame(panel, last)
        panel.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=24)
        panel.text(0, 1.035, subtitle, transform=panel.transAxes, color=MUTED, fontsize=8.8)
        curve = curve_of(metrics, name)
        if curve.values:
            plot(panel, metrics, curve)
        else:
            _mark_empty(panel, curve)
        _mark_nonfinite(panel, curve)
    for panel in panels[2:]:
        panel.set_xlabel("step")
    return figure


def curve_of(metrics: Sequence[Mapping[str, Any]], name: str) -> Curve:
    """Extract one value from the metrics."""
    curve = Curve([], [], [])
    for line in metrics:
        if name not in line:
            continue
        value = line[name]
        if value is not None and abs(value) <= MAX_FLOAT32:  # False for NaN
            curve.steps.append(int(line["step"]))
            curve.values.append(float(value))
        else:
            curve.nonfinite.append(int(line["step"]))
    return curve


def smooth(values: Sequence[float], span: int) -> list[float]:
    """Centered running mean over `span` values on either side. At the start, where a loss falls fast, the window is
    symmetric; at the end, it is cut off. Values are clipped to MAX_SMOOTHED.
    """
    sums = np.concatenate(([0.0], np.cumsum(np.clip(values, -MAX_SMOOTHED, MAX_SMOOTHED))))
    index = np.arange(len(values))
    starts = np.maximum(0, index - span)
    ends = np.minimum(len(values), index + np.minimum(span, index) + 1)
    means: list[float] = ((sums[ends] - sums[starts]) / (ends - starts)).tolist()
    return means


def smooth_loss(losses: Sequence[float]) -> list[float]:
    """The loss as the plot shows it."""
    return smooth(losses, len(losses) // (2 * SMOOTHING))


# ---- panels


def _loss(panel: Axes, metrics: Sequence[Mapping[str, Any]], training: Curve) -> None:
    validation, smoothed = curve_of(metrics, "validation_loss"), smooth_loss(training.values)
    panel.plot(*_gapped(training), color=PALE, linewidth=0.8, **_marks(training, PALE, 2.5))
    panel.plot(*_gapped(training._replace(values=smoothed)), color=PETROL)
    _limit(panel, [*smoothed, *validation.values], training.values)
    ends = [(training.steps[-1], smoothed[-1], PETROL, "training")]
    if validation.values:
        panel.plot(*_gapped(validation), color=ORANGE, **_marks(validation, ORANGE, 4.0))
        ends.append((validation.steps[-1], validation.values[-1], ORANGE, "validation"))
    _label_ends(panel, ends)


def _norms(panel: Axes, metrics: Sequence[Mapping[str, Any]], mean: Curve) -> None:
    least, most = curve_of(metrics, "row_norm_min"), curve_of(metrics, "row_norm_max")
    if least[::2] == most[::2]:  # measured at the same steps
        edge = 6 if len(least.steps) == 1 else 0  # a single measurement has no width
        panel.fill_between(*_gapped(least), _gapped(most)[1], color=PETROL, alpha=0.13, linewidth=edge)
    panel.plot(*_gapped(mean), color=PETROL, **_marks(mean, PETROL, 3.0))
    panel.set_ylim(bottom=0)
    curves = ((most, MUTED, "largest"), (mean, PETROL, "mean"), (least, MUTED, "smallest"))
    _label_ends(
        panel, [(curve.steps[-1], curve.values[-1], color, name) for curve, color, name in curves if curve.values]
    )


def _mean_vector(panel: Axes, _: Sequence[Mapping[str, Any]], ratio: Curve) -> None:
    panel.plot(*_gapped(ratio), color=PETROL, **_marks(ratio, PETROL, 3.0))
    panel.set_ylim(0, max(0.1, 1.15 * max(ratio.values)))
    _label_ends(panel, [(ratio.steps[-1], ratio.values[-1], PETROL, "")])


def _shares(panel: Axes, _: Sequence[Mapping[str, Any]], share: Curve) -> None:
    steps, shares = _gapped(share)
    panel.fill_between(steps, 0, shares, color=ORANGE, alpha=0.16, linewidth=0)
    panel.fill_between(steps, shares, 1, color=PETROL, alpha=0.16, linewidth=0)
    panel.plot(steps, shares, color=INK, linewidth=1.4, **_marks(share, INK, 3.0))
    panel.set_ylim(0, 1)
    panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    last = share.values[-1]
    sides = ((last / 2, last, ORANGE, "head"), ((1 + last) / 2, 1 - last, PETROL, "lookups"))
    for middle, part, color, name in sides:
        _label(panel, share.steps[-1], min(0.96, max(0.04, middle)), f"{name} {part:.0%}", color)


PANELS = (
    ("loss", "Loss", "nats per token", _loss),
    ("row_norm_mean", "Row norms", "mean, smallest and largest norm of a row", _norms),
    ("mean_vector_ratio", "Mean-vector ratio", "0: rows surround the origin; 1: all rows are equal", _mean_vector),
    ("output_share", "Gradient share", "from the lookups and from the head, by norm", _shares),
)


# ---- elements of all panels


def _frame(panel: Axes, last: int) -> None:
    panel.set_xlim(0, 1.008 * last)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.grid(axis="y")
    panel.set_axisbelow(True)
    panel.tick_params(length=0, pad=6)
    panel.locator_params(axis="x", integer=True, nbins=6)
    panel.locator_params(axis="y", nbins=6)
    panel.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")


def _gapped(curve: Curve) -> tuple[list[int], list[float]]:
    """Steps and values, with NaN where a value is not finite."""
    points = sorted([*zip(curve.steps, curve.values, strict=True), *((step, math.nan) for step in curve.nonfinite)])
    return [step for step, _ in points], [value for _, value in points]


def _marks(curve: Curve, color: str, size: float) -> dict[str, Any]:
    """Marker options if there are few points: a single one would not show as a line."""
    few = len(curve.values) <= MAX_MARKED and (len(curve.values) == 1 or size > 2.5)
    return {"marker": "o", "markersize": size, "markeredgewidth": 0, "markerfacecolor": color} if few else {}


def _limit(panel: Axes, smoothed: Sequence[float], raw: Sequence[float]) -> None:
    """Set limits that ignore a few outliers; they leave the panel at the top."""
    ordered = sorted(raw)
    usual = ordered[int(0.99 * (len(ordered) - 1))]
    low, high = min(*smoothed, ordered[int(0.005 * len(ordered))]), max(*smoothed, usual)
    high = min(high, max(low, MAX_LOSS_RATIO * raw[0]) if raw[0] > 0 else high)
    margin = 0.06 * (high - low) or 0.5
    panel.set_ylim(low - margin, high + margin)


def _label_ends(panel: Axes, ends: Sequence[tuple[int, float, str, str]]) -> None:
    """Label each curve with its last value, moved apart where labels would overlap."""
    bottom, top = panel.get_ylim()
    spacing, height = 0.062 * (top - bottom), math.inf
    for step, value, color, name in sorted(ends, key=lambda end: -end[1]):
        height = min(value, height - spacing, top)
        _label(panel, step, height, f"{name} {_format(value)}".strip(), color)


def _label(panel: Axes, step: int, height: float, text: str, color: str) -> None:
    panel.annotate(
        text, (step, height), xytext=(7, 0), textcoords="offset points", color=color, va="center", fontsize=8.8,
        annotation_clip=False,
    )  # fmt: skip


def _mark_nonfinite(panel: Axes, curve: Curve) -> None:
    """Mark steps with values that are not finite by ticks at the bottom of the panel."""
    if curve.nonfinite:
        bottom = panel.get_xaxis_transform()
        panel.vlines(curve.nonfinite, 0, 0.03, color=RED, transform=bottom, linewidth=1)
        text = f"not finite at {count(len(curve.nonfinite), 'step')}"
        panel.text(1, 1.105, text, transform=panel.transAxes, color=RED, ha="right", fontsize=8.8)


def _mark_empty(panel: Axes, curve: Curve) -> None:
    panel.set_yticks([])
    if not curve.nonfinite:
        panel.set_xticks([])
        panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, color=MUTED, ha="center", va="center")


def _format(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e5 else f"{value:,.0f}"
