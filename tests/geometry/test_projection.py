"""Maps: PCA against numpy's SVD, t-SNE's interruption and cache, distortion against scikit-learn."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.manifold import trustworthiness

import inlayer
from inlayer.errors import InputError
from inlayer.geometry import projection
from inlayer.geometry.projection import measure_distortion, pca, project
from tests.geometry.test_nearest import random_rows, stored


def by_svd(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], float]:
    centered = rows.astype(np.float64) - rows.astype(np.float64).mean(axis=0)
    _, sizes, axes = np.linalg.svd(centered, full_matrices=False)
    axes = axes[:2] * np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    return centered @ axes.T, float((sizes[:2] ** 2).sum() / (sizes**2).sum())


@pytest.mark.parametrize("exact", [True, False])
def test_pca_equals_svd(tmp_path: Path, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "BLOCK_VALUES", 500)
    monkeypatch.setattr(projection, "MAX_PASSES", 200)
    monkeypatch.setattr(projection, "TOLERANCE", 1e-12)
    if not exact:  # subspace iteration
        monkeypatch.setattr(projection, "EXACT_WIDTH", 1)
        monkeypatch.setattr(projection, "OVERSAMPLING", 6)
    rows = random_rows() * np.linspace(4, 1, 17).astype(np.float32)
    points, explained = by_svd(rows)
    found = pca(stored(tmp_path, rows))
    np.testing.assert_allclose(found.points, points, atol=1e-4)
    assert found.explained_variance_ratio == pytest.approx(explained, abs=1e-6)
    assert not np.allclose(pca(stored(tmp_path, rows[::-1].copy())).points, points, atol=1e-2)  # control


def test_rows_without_direction_are_holes(tmp_path: Path) -> None:
    rows = random_rows()
    rows[3], rows[5, 1], rows[6, 0] = 0, np.nan, np.inf
    points = pca(stored(tmp_path, rows)).points
    assert np.flatnonzero(np.isnan(points).any(axis=1)).tolist() == [3, 5, 6]
    kept = np.delete(rows, [3, 5, 6], axis=0)
    np.testing.assert_allclose(np.delete(points, [3, 5, 6], axis=0), by_svd(kept)[0], atol=1e-4)


@pytest.mark.parametrize("scale", [2.0**126, 2.0**60, 2.0**-100])
@pytest.mark.parametrize("exact", [True, False])
def test_extreme_rows_are_scaled(tmp_path: Path, scale: float, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exact:
        monkeypatch.setattr(projection, "EXACT_WIDTH", 1)
    rows = random_rows() * 0.3
    expected, found = pca(stored(tmp_path, rows)), pca(stored(tmp_path, rows * np.float32(scale)))
    ratio = float(np.abs(found.points).max() / np.abs(expected.points).max())
    assert np.log2(ratio) == pytest.approx(round(np.log2(ratio)), abs=1e-6)  # a power of two
    np.testing.assert_allclose(found.points / ratio, expected.points, atol=1e-5)
    assert found.explained_variance_ratio == pytest.approx(expected.explained_variance_ratio)
    mean = (rows * scale).astype(np.float64).mean(axis=0)
    np.testing.assert_allclose((rows * scale - mean) @ found.axes, found.points, atol=1e-4 * ratio)


@pytest.mark.parametrize("rows", [random_rows()[:, :1], np.ones((1200, 8), np.float32)])
def test_tsne_of_rows_that_do_not_differ_is_an_error(tmp_path: Path, rows: npt.NDArray[Any]) -> None:
    with pytest.raises(InputError, match="t-SNE needs rows that differ in at least two channels"):
        project(stored(tmp_path, rows.copy()), "tsne")


def test_tsne_of_three_rows_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert np.isfinite(project(stored(tmp_path, random_rows()[:3]), "tsne").points).all()
    assert capfd.readouterr() == ("", "")


def test_equal_rows_are_equally_near(tmp_path: Path) -> None:
    """Products of equal rows differ by rounding, which must not decide which are the true neighbors."""
    rows = np.repeat(np.random.default_rng(0).standard_normal((1, 64), np.float32), 3000, axis=0)
    found = measure_distortion(stored(tmp_path, rows), pca(stored(tmp_path, rows)).points, sample=100)
    assert (found.neighborhood_preservation.mean(), found.trustworthiness) == (1.0, 1.0)


def test_one_channel_and_too_few_rows(tmp_path: Path) -> None:
    points = pca(stored(tmp_path, random_rows()[:, :1].copy())).points
    assert np.isfinite(points[:, 0]).all()
    assert (points[:, 1] == 0).all()
    with pytest.raises(InputError, match="a map needs at least 3"):
        pca(stored(tmp_path, random_rows()[:2]))
    with pytest.raises(InputError, match="it must be one of best, pca, tsne"):
        project(stored(tmp_path, random_rows()), "umap")


def test_cache_is_used_and_survives_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, cache = stored(tmp_path, random_rows()), tmp_path / "cache"
    first = project(table, cache=cache)
    file = next(cache.glob("*-pca.npz"))
    monkeypatch.setattr(projection, "pca", lambda *_, **__: pytest.fail("computed again"))
    again = project(table, cache=cache)
    assert np.array_equal(first.points, again.points)
    assert first.explained_variance_ratio == again.explained_variance_ratio
    monkeypatch.undo()
    file.write_bytes(file.read_bytes()[:100])
    assert np.array_equal(project(table, cache=cache).points, first.points)
    (tmp_path / "other").mkdir()
    other = stored(tmp_path / "other", random_rows(seed=9))
    assert not np.array_equal(project(other, cache=cache).points, first.points)


@pytest.mark.slow
def test_tsne_keeps_more_neighbors_than_pca_and_can_be_interrupted(tmp_path: Path) -> None:
    model = inlayer.load("default")
    rows = model.table.rows(np.arange(400, 1100)).astype(np.float32)
    table = stored(tmp_path, rows)
    seen: list[tuple[int, int]] = []
    tsne = project(table, "tsne", progress=lambda *done: seen.append(done))
    assert tsne.complete
    assert seen[-1][0] == seen[-1][1]
    kept = [measure_distortion(table, one.points).neighborhood_preservation.mean() for one in (tsne, pca(table))]
    assert kept[0] > 2 * kept[1]

    def stop(done: int, _: int) -> None:
        if done >= 200:
            raise KeyboardInterrupt

    partial = project(table, "tsne", cache=tmp_path / "cache", progress=stop)
    assert not partial.complete
    assert np.isfinite(partial.points).all()
    assert not (tmp_path / "cache").exists()  # an interrupted map is not kept


def test_interrupt_before_the_first_step_gives_no_map(tmp_path: Path) -> None:
    table = stored(tmp_path, np.random.default_rng(0).standard_normal((20_000, 32), np.float32))

    def interrupt() -> None:
        while not any(thread.name == "inlayer-tsne" for thread in threading.enumerate()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)  # long before the first callback of openTSNE

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        project(table, "tsne", cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_distortion_equals_scikit_learn(tmp_path: Path) -> None:
    rows = random_rows()
    rows[7] = 0
    table = stored(tmp_path, rows)
    points = pca(table).points
    found = measure_distortion(table, points, k=5, sample=10**6)
    kept = np.delete(np.arange(len(rows)), 7)
    expected = trustworthiness(rows[kept], points[kept], n_neighbors=5, metric="cosine")
    assert found.trustworthiness == pytest.approx(expected, abs=1e-6)
    assert len(found.ids) == len(kept)
    unit = rows[kept].astype(np.float64) / np.linalg.norm(rows[kept].astype(np.float64), axis=1, keepdims=True)
    near = np.argsort(-(unit @ unit.T), axis=1)[:, 1:6]
    on_map = np.argsort(np.square(points[kept][:, None] - points[kept][None]).sum(-1), axis=1)[:, 1:6]
    shares = [len(set(one) & set(other)) / 5 for one, other in zip(near.tolist(), on_map.tolist(), strict=True)]
    np.testing.assert_allclose(found.neighborhood_preservation, shares, atol=1e-6)
    itself = measure_distortion(stored(tmp_path, rows[kept][:, :2].copy()), rows[kept][:, :2], k=5, sample=10**6)
    assert itself.trustworthiness > 0.9  # control: cosine against distance in the same plane
