"""The plot shows the metrics, whatever happened in the run."""

from __future__ import annotations

import importlib.util
import io
import math
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from inlayer.errors import InputError, MissingExtraError
from inlayer.training.plot import MAX_LOSS_RATIO, MAX_SMOOTHED, curve_of, draw, make_figure, smooth, smooth_loss
from tests.training.metrics import make_metrics

ROOT = Path(__file__).parents[2]
TITLES = ["Loss", "Row norms", "Mean-vector ratio", "Gradient share"]


def texts(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.texts]


def legend(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.get_legend().get_texts()]


# ---- curves


def test_each_panel_shows_its_metrics() -> None:
    metrics = make_metrics(300)
    loss, norms, ratio, shares = make_figure(metrics).axes
    assert [panel.get_title(loc="left") for panel in (loss, norms, ratio, shares)] == TITLES
    raw, smoothed, validation = loss.lines
    assert list(raw.get_ydata()) == [line["loss"] for line in metrics]
    assert list(smoothed.get_ydata()) == smooth_loss([line["loss"] for line in metrics])
    assert list(validation.get_xdata()) == [100, 200, 300]
    for line, name in (
        (validation, "validation_loss"),
        (norms.lines[0], "row_norm_mean"),
        (ratio.lines[0], "mean_vector_ratio"),
    ):
        assert list(line.get_ydata()) == [metric[name] for metric in metrics if name in metric]
    assert list(shares.lines[0].get_ydata()) == [
        metric["head_gradient_share"] for metric in metrics if "head_gradient_share" in metric
    ]
    band = norms.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == min(metric["row_norm_min"] for metric in metrics if "row_norm_min" in metric)
    assert band[:, 1].max() == max(metric["row_norm_max"] for metric in metrics if "row_norm_max" in metric)
    assert f"head {metrics[-1]['head_gradient_share']:.3g}" in legend(shares)
    assert f"validation {metrics[-1]['validation_loss']:.3g}" in legend(loss)


def test_nonfinite_steps_are_marked_and_leave_a_gap() -> None:
    metrics = make_metrics(60)
    for step, value in ((20, None), (21, math.nan), (22, math.inf)):
        metrics[step - 1]["loss"] = value
    metrics[39]["mean_vector_ratio"] = None
    loss, _, ratio, _ = make_figure(metrics).axes
    assert "not finite at 3 steps" in texts(loss)
    assert "not finite at 1 step" in texts(ratio)
    for line in loss.lines[:2]:
        values = line.get_ydata()
        assert [step for step, value in zip(line.get_xdata(), values, strict=True) if math.isnan(value)] == [20, 21, 22]
    assert sum(map(math.isnan, ratio.lines[0].get_ydata())) == 1


def test_outliers_leave_the_panel() -> None:
    metrics = make_metrics(200)
    usual = make_figure(metrics).axes[0].get_ylim()
    metrics[150]["loss"] = 1e30
    assert make_figure(metrics).axes[0].get_ylim()[1] <= 1.1 * MAX_LOSS_RATIO * metrics[0]["loss"]
    metrics[150]["loss"] = 9.0  # one of 200 steps is below the 1% quantile
    assert make_figure(metrics).axes[0].get_ylim()[1] == pytest.approx(usual[1], abs=0.7)


def slow_mean(values: list[float], span: int) -> list[float]:
    means = []
    for place in range(len(values)):
        right = span if place >= span else place
        near = values[max(0, place - span) : place + right + 1]
        means.append(math.fsum(near) / len(near))
    return means


@given(st.lists(st.floats(-100, 100), max_size=60), st.integers(0, 12))
def test_smoothing_matches_a_plain_loop(values: list[float], span: int) -> None:
    assert smooth(values, span) == pytest.approx(slow_mean(values, span), abs=1e-9)


def test_smoothing_recovers_from_huge_values() -> None:
    values = [2.0] * 30 + [1e300] + [2.0] * 30
    smoothed = smooth(values, 3)
    assert smoothed[:27] == pytest.approx([2.0] * 27)
    assert smoothed[34:] == pytest.approx([2.0] * 27)  # a plain running sum would lose them
    assert max(smoothed) == pytest.approx(MAX_SMOOTHED / 7, rel=0.01)
    assert smooth([5.0, 1.0, 3.0], 0) == [5.0, 1.0, 3.0]
    assert smooth([], 4) == []


def test_curves() -> None:
    lines = [
        {"step": 1, "a": 1},
        {"step": 2},
        {"step": 3, "a": None},
        {"step": 4, "a": math.nan},
        {"step": 5, "a": 2.5},
    ]
    steps, values = curve_of(lines, "a")
    assert steps == [1, 3, 4, 5]
    np.testing.assert_array_equal(values, [1.0, math.nan, math.nan, 2.5])
    assert curve_of(lines, "b") == ([], [])
    extremes = [{"step": 1, "a": -math.inf}, {"step": 2, "a": 1e308}, {"step": 3, "a": -3e38}]
    np.testing.assert_array_equal(curve_of(extremes, "a").values, [math.nan, math.nan, -3e38])


# ---- files


def diverged(how: float | None) -> list[dict[str, Any]]:
    metrics = make_metrics(120)
    for line in metrics[70:]:
        line |= {name: how for name in line if name not in ("step", "tokens", "seconds")}
    return metrics


ODD = {
    "nothing": [],
    "one step": make_metrics(1),
    "bare": [
        {"step": s, "loss": 2.0, "tokens": s, "seconds": s, "learning_rate": 0.0, "gradient_norm": 0.0} for s in (1, 2)
    ],
    "null": diverged(None),
    "nan": diverged(math.nan),
    "huge": diverged(3e38),
    "all nonfinite": [
        {"step": step, "loss": None, "row_norm_mean": math.nan, "head_gradient_share": None} for step in range(1, 9)
    ],
    "zero": [{"step": 1, "loss": 0.0, "mean_vector_ratio": 0.0, "row_norm_mean": 0.0, "head_gradient_share": 0.0}],
    "negative": [{"step": step, "loss": -1.0 * step, "head_gradient_share": 1.0} for step in (1, 2, 3)],
    "late": [{"step": step, "loss": 2.0} for step in range(10**9, 10**9 + 3)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_any_run_can_be_plotted(name: str, tmp_path: Path) -> None:
    data = draw(ODD[name], tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes() == data
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "PNG"
        assert picture.size == (1430, 936)
        assert len(picture.convert("RGB").getcolors(2**20)) > 20  # not empty


def test_same_metrics_give_the_same_plot(tmp_path: Path) -> None:
    metrics = make_metrics(50)
    plain = draw(metrics, tmp_path / "a.png")
    with mpl.rc_context({"lines.linewidth": 9.0, "font.size": 30, "axes.facecolor": "red"}):  # a user's own style
        assert draw(metrics, tmp_path / "b.png") == plain
        assert mpl.rcParams["lines.linewidth"] == 9.0
    metrics[10]["loss"] += 1
    assert draw(metrics, tmp_path / "c.png") != plain


def test_labels_stay_inside_the_plot(tmp_path: Path) -> None:
    """Labels end before the edge: the outermost pixels are white."""
    metrics = make_metrics(12345, every=500)
    with Image.open(io.BytesIO(draw(metrics, tmp_path / "a.png"))) as picture:
        pixels = np.asarray(picture.convert("L"))
    for edge in (pixels[:6], pixels[-6:], pixels[:, :6], pixels[:, -6:]):
        assert edge.min() == 255
    assert pixels.min() < 60


def test_legends_cover_no_curve_and_no_other_text() -> None:
    figure = make_figure(diverged(math.nan))
    figure.draw_without_rendering()
    for panel in figure.axes:
        box = panel.get_legend().get_window_extent()
        others = [panel.bbox, panel._left_title.get_window_extent(), *(t.get_window_extent() for t in panel.texts)]
        assert len(others) == 4  # with the subtitle, and what is not finite
        assert not any(box.overlaps(other) for other in others), panel.get_title(loc="left")
        assert box.ymax < figure.bbox.ymax


def test_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere/a\.png cannot be written: No such file"):
        draw(make_metrics(2), tmp_path / "nowhere" / "a.png")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Importing the module works without matplotlib; drawing names the extra to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = importlib.util.spec_from_file_location("fresh", ROOT / "inlayer" / "training" / "plot.py")
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    for function in (draw, fresh.draw):
        with pytest.raises(MissingExtraError, match=r"pip install 'inlayer\[train\]'"):
            function([], tmp_path / "never.png")
    assert not (tmp_path / "never.png").exists()
    assert re.search(r'^train = .*"matplotlib', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
