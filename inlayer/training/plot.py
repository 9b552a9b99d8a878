"""The picture of a run: loss, row norms, mean-row ratio, and whose gradient moves the table, step by step.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- drawn from metrics.jsonl alone: a list of dicts, one a step; what a step did not measure is not there, and what was no
  number (a diverged run) is null, NaN or infinite. Such steps are marked, never joined over
- a curve is read by its last value, which stands at its end; the loss is smoothed, with the steps themselves behind it
- matplotlib is imported here and nowhere else, and only when a picture is asked for; no state of its pyplot is touched
- not here: when something is measured (training/metrics.py), the page around the picture (training/report.py)
Checked in tests/training/test_plot.py.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inlayer.errors import InputError, MissingExtraError
from inlayer.paths import check_path, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "curve_of", "draw", "make_figure", "smooth", "smooth_loss"]

INK, MUTED, LINE = "#1b2326", "#566267", "#d9dedf"  # those of the page
PETROL, ORANGE, PALE, RED = "#0d5a66", "#c9600f", "#9fb9be", "#9c2f2a"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
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
SIZE, DOTS = (11.0, 7.2), 130  # inches, and dots an inch
PLACES = {"left": 0.05, "right": 0.905, "top": 0.905, "bottom": 0.07, "wspace": 0.36, "hspace": 0.42}
SPAN = 50  # the smoothed curve is a running mean over a fiftieth of the run
LARGEST = 1e4  # nats: a sum that once held 1e30 keeps nothing of what comes later
WILDEST = 3.0  # of the first loss: what is above has left the panel, and does not press the rest of it flat
END = 3.4e38  # of float32: what is beyond is infinite there
FEW = 60  # points are marked one by one up to here


class Curve(NamedTuple):
    """One value over the steps where it was measured. `lost` are steps where it was no number."""

    steps: list[int]
    values: list[float]
    lost: list[int]


def draw(metrics: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> bytes:
    """Write the picture of a run as a PNG; the same bytes are handed back."""
    file = check_path(path)
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("the picture of a run is drawn by matplotlib: pip install 'inlayer[train]'") from error

    drawn = io.BytesIO()
    with mpl.rc_context():
        mpl.rcParams.update({**mpl.rcParamsDefault, **STYLE})  # the same picture whatever a user's own style is
        make_figure(metrics).savefig(drawn, format="png", dpi=DOTS)
    try:
        file.write_bytes(drawn.getvalue())
    except OSError as error:
        raise InputError(f"{shown(file)} cannot be written: {error.strerror}") from error
    return drawn.getvalue()


def make_figure(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """The four panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE)
    panels = figure.subplots(2, 2, gridspec_kw=PLACES).flatten().tolist()
    last = max((int(line["step"]) for line in metrics), default=1)
    for panel, fill in zip(panels, (_loss, _norms, _mean_row, _shares), strict=True):
        _frame(panel, last)
        fill(panel, metrics)
    for panel in panels[2:]:
        panel.set_xlabel("step")
    return figure


def curve_of(metrics: Sequence[Mapping[str, Any]], name: str) -> Curve:
    """A value over the steps that measured it."""
    curve = Curve([], [], [])
    for line in metrics:
        if name not in line:
            continue
        value = line[name]
        if value is not None and abs(value) <= END:  # NaN is not
            curve.steps.append(int(line["step"]))
            curve.values.append(float(value))
        else:
            curve.lost.append(int(line["step"]))
    return curve


def smooth(values: Sequence[float], span: int) -> list[float]:
    """A running mean over `span` values to either side: no lag. Where a curve begins, and falls fast, it takes as many
    from the left as from the right; where it ends, what is there. A value beyond LARGEST counts as that.
    """
    sums = np.concatenate(([0.0], np.cumsum(np.clip(values, -LARGEST, LARGEST))))
    places = np.arange(len(values))
    starts = np.maximum(0, places - span)
    ends = np.minimum(len(values), places + np.minimum(span, places) + 1)
    means: list[float] = ((sums[ends] - sums[starts]) / (ends - starts)).tolist()
    return means


def smooth_loss(losses: Sequence[float]) -> list[float]:
    """As the picture shows it."""
    return smooth(losses, len(losses) // (2 * SPAN))


# ---- the panels


def _loss(panel: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    _title(panel, "Loss", "nats a token")
    training, validation = curve_of(metrics, "loss"), curve_of(metrics, "validation_loss")
    if training.values:
        panel.plot(*_gapped(training), color=PALE, linewidth=0.8, **_marks(training, PALE, 2.5))
        smoothed = smooth_loss(training.values)
        panel.plot(*_gapped(training._replace(values=smoothed)), color=PETROL)
        _limit(panel, [*smoothed, *validation.values], training.values)
        ends = [(training.steps[-1], smoothed[-1], PETROL, "training")]
        if validation.values:
            panel.plot(*_gapped(validation), color=ORANGE, **_marks(validation, ORANGE, 4.0))
            ends.append((validation.steps[-1], validation.values[-1], ORANGE, "validation"))
        _ends(panel, ends)
    _lost(panel, training)
    _empty(panel, training, "no step was taken")


def _norms(panel: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    _title(panel, "Row norms", "length of a row: mean, and from the shortest to the longest")
    mean, least, most = (curve_of(metrics, f"row_norm_{name}") for name in ("mean", "min", "max"))
    if mean.values:
        if least[::2] == most[::2]:  # measured at the same steps
            edge = 6 if len(least.steps) == 1 else 0  # a single measurement has no width
            panel.fill_between(*_gapped(least), _gapped(most)[1], color=PETROL, alpha=0.13, linewidth=edge)
        panel.plot(*_gapped(mean), color=PETROL, **_marks(mean, PETROL, 3.0))
        panel.set_ylim(bottom=0)
        curves = ((most, MUTED, "longest"), (mean, PETROL, "mean"), (least, MUTED, "shortest"))
        _ends(panel, [(curve.steps[-1], curve.values[-1], tint, name) for curve, tint, name in curves if curve.values])
    _lost(panel, mean)
    _empty(panel, mean)


def _mean_row(panel: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    _title(panel, "Mean-row ratio", "0: rows surround the origin; 1: all are the same")
    ratio = curve_of(metrics, "mean_row_ratio")
    if ratio.values:
        panel.plot(*_gapped(ratio), color=PETROL, **_marks(ratio, PETROL, 3.0))
        panel.set_ylim(0, max(0.1, 1.15 * max(ratio.values)))
        _ends(panel, [(ratio.steps[-1], ratio.values[-1], PETROL, "")])
    _lost(panel, ratio)
    _empty(panel, ratio)


def _shares(panel: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    _title(panel, "Gradient share", "of the input and the output side, by norm")
    share = curve_of(metrics, "output_share")
    if share.values:
        steps, shares = _gapped(share)
        panel.fill_between(steps, 0, shares, color=ORANGE, alpha=0.16, linewidth=0)
        panel.fill_between(steps, shares, 1, color=PETROL, alpha=0.16, linewidth=0)
        panel.plot(steps, shares, color=INK, linewidth=1.4, **_marks(share, INK, 3.0))
        panel.set_ylim(0, 1)
        panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        last = share.values[-1]
        sides = ((last / 2, last, ORANGE, "output"), ((1 + last) / 2, 1 - last, PETROL, "input"))
        for middle, part, tint, name in sides:
            _beside(panel, share.steps[-1], min(0.96, max(0.04, middle)), f"{name} {part:.0%}", tint)
    _lost(panel, share)
    _empty(panel, share)


# ---- what all of them have


def _frame(panel: Axes, last: int) -> None:
    panel.set_xlim(0, 1.008 * last)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.grid(axis="y")
    panel.set_axisbelow(True)
    panel.tick_params(length=0, pad=6)
    panel.locator_params(axis="x", integer=True, nbins=6)
    panel.locator_params(axis="y", nbins=6)
    panel.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")


def _title(panel: Axes, title: str, meaning: str) -> None:
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=24)
    panel.text(0, 1.035, meaning, transform=panel.transAxes, color=MUTED, fontsize=8.8)


def _gapped(curve: Curve) -> tuple[list[int], list[float]]:
    """Steps and values, with a gap where a step has no number."""
    points = sorted([*zip(curve.steps, curve.values, strict=True), *((step, math.nan) for step in curve.lost)])
    return [step for step, _ in points], [value for _, value in points]


def _marks(curve: Curve, color: str, size: float) -> dict[str, Any]:
    """Few points are marked: a single one would be no line at all."""
    few = len(curve.values) <= FEW and (len(curve.values) == 1 or size > 2.5)
    return {"marker": "o", "markersize": size, "markeredgewidth": 0, "markerfacecolor": color} if few else {}


def _limit(panel: Axes, smoothed: Sequence[float], raw: Sequence[float]) -> None:
    """A few wild steps do not press the curve flat: they leave the panel at its top."""
    ordered = sorted(raw)
    usual = ordered[int(0.99 * (len(ordered) - 1))]
    low, high = min(*smoothed, ordered[int(0.005 * len(ordered))]), max(*smoothed, usual)
    high = min(high, max(low, WILDEST * raw[0]) if raw[0] > 0 else high)
    room = 0.06 * (high - low) or 0.5
    panel.set_ylim(low - room, high + room)


def _ends(panel: Axes, ends: Sequence[tuple[int, float, str, str]]) -> None:
    """Each curve's last value at its end, pushed apart where they would stand on each other."""
    bottom, top = panel.get_ylim()
    apart, below = 0.062 * (top - bottom), math.inf
    for step, value, color, name in sorted(ends, key=lambda end: -end[1]):
        below = min(value, below - apart, top)
        _beside(panel, step, below, f"{name} {_short(value)}".strip(), color)


def _beside(panel: Axes, step: int, height: float, text: str, color: str) -> None:
    panel.annotate(
        text, (step, height), xytext=(7, 0), textcoords="offset points", color=color, va="center", fontsize=8.8,
        annotation_clip=False,
    )  # fmt: skip


def _lost(panel: Axes, curve: Curve) -> None:
    """Steps without a number, as ticks at the foot of the panel."""
    if curve.lost:
        foot = panel.get_xaxis_transform()
        panel.vlines(curve.lost, 0, 0.03, color=RED, transform=foot, linewidth=1)
        many = f"{len(curve.lost):,} steps" if len(curve.lost) > 1 else "1 step"
        panel.text(1, 1.105, f"no number at {many}", transform=panel.transAxes, color=RED, ha="right", fontsize=8.8)


def _empty(panel: Axes, curve: Curve, why: str = "not measured in this run") -> None:
    if not curve.values:
        panel.set_yticks([])
        if not curve.lost:
            panel.set_xticks([])
            panel.text(0.5, 0.5, why, transform=panel.transAxes, color=MUTED, ha="center", va="center")


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e5 else f"{value:,.0f}"
