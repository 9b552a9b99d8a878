"""Maps, scenes, learning and inspections over HTTP, equal to the library; a stopped server leaves no partial map."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import inlayer
from inlayer.facts_base import plain
from inlayer.geometry import background_maps
from inlayer.geometry.background_maps import BackgroundMaps
from inlayer.inspection.html import inspect_facts
from inlayer.tables.stored_table import StoredTable
from inlayer.trace import Pipeline
from inlayer.trace.gradient_step import take_gradient_step
from inlayer.trace.scene import describe_scene
from tests.web.client import Client, process

WALK = {"texts": ["I love dogs", "dogs"], "positions": "learned", "first_token": 1}


def points(facts: dict[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(facts["points"]), "<f4").reshape(-1, 2)


@pytest.mark.slow
def test_points_equal_project(client: Client) -> None:
    model = inlayer.load("default")
    for method, name in (("best", "tsne"), ("tsne", "tsne"), ("pca", "pca")):
        facts = client.send(f"/api/map?method={method}").json
        assert (facts["method"], facts["is_improving"], facts["complete"]) == (name, False, True)
        np.testing.assert_array_equal(points(facts), model.project(method).points)
        assert facts["texts"][812] == " love"
        assert (facts["n_omitted"], facts["omitted_ids"]) == (1, [6142])
        kept = np.frombuffer(base64.b64decode(facts["neighborhood_preservation"]), "<f4")
        assert np.flatnonzero(np.isnan(kept)).tolist() == [6142]
        assert facts["mean_preservation"] == pytest.approx(np.nanmean(kept), abs=1e-6)
    assert "pca" in client.send("/api/map?method=umap").error


def test_scene_table_and_learning_equal_the_library(client: Client, pipeline: Pipeline) -> None:
    from inlayer.trace import Change

    change = Change(positions="learned")
    expected = plain(describe_scene(pipeline, WALK["texts"], change=change, first_token=1))
    assert client.send("/api/scene", WALK).json == json.loads(json.dumps(expected))
    assert client.send("/api/table-scene").json == json.loads(json.dumps(plain(pipeline.table_scene)))
    projection = inlayer.load("default").project("pca")
    learned = take_gradient_step(
        pipeline, WALK["texts"], learning_rates=[0.0, 0.5], first_token=1, max_tokens=64, change=change,
        projection=projection,
    )  # fmt: skip
    body = WALK | {"learning_rates": [0, 0.5], "method": "pca"}
    assert client.send("/api/gradient-step", body).json == json.loads(json.dumps(plain(learned)))
    for rates in ([], [-1], [1e9], ["a"], [0] * 33):
        assert client.send("/api/gradient-step", WALK | {"learning_rates": rates}).status == 400
    assert "the maximum is 3" in client.send("/api/walk", {"texts": ["I love dogs"], "first_token": 4}).error
    assert "0..127" in client.send("/api/walk", {"texts": ["I love dogs"], "first_channel": 128}).error


def test_inspection_equals_the_library(client: Client) -> None:
    found = client.send("/api/inspect").json
    expected = inspect_facts(inlayer.inspect("default"))
    assert found == json.loads(json.dumps(expected))
    assert sum(found["norms"]["counts"]) > 6000
    assert len(found["norms"]["edges"]) == len(found["norms"]["counts"]) + 1
    assert len(found["ids"]["undertrained-tokens"]) == 62
    page = client.send("/inspect")
    assert page.status == 200
    assert "script-src 'sha256-" in page.headers["content-security-policy"]


def make_model(folder: Path, rows: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({"model.embed_tokens.weight": rows}, folder / "model.safetensors")
    return folder


def maps_of(folder: Path, rows: Any) -> BackgroundMaps:
    model = inlayer.load(make_model(folder, rows))
    return BackgroundMaps(model.table, model.vocabulary)


def test_maps_of_unusual_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    rows[3], rows[5, 2] = 0, np.nan
    facts = maps_of(tmp_path / "holes", rows).get("pca")
    assert (facts.n_omitted, facts.omitted_ids, facts.texts[7]) == (2, [3, 5], "#7")
    assert maps_of(tmp_path / "one-channel", rows[:, :1].copy()).get("pca").n_omitted == 1
    for name, table in {"one-row": rows[:1], "nan": np.full_like(rows, np.nan)}.items():
        with pytest.raises(inlayer.errors.InputError, match="a map needs at least 3"):
            maps_of(tmp_path / name, table).get("pca")
    monkeypatch.setattr(background_maps, "MAX_ROWS", 39)
    with pytest.raises(inlayer.errors.InputError, match="a map shows up to 39"):
        maps_of(tmp_path / "holes", rows).get("pca")
    with pytest.raises(inlayer.errors.InputError, match="remote"):
        BackgroundMaps(inlayer.load("default").table, inlayer.load("default").vocabulary, remote=True).get()
    monkeypatch.undo()
    assert background_maps.NOT_READY.is_improving


def test_a_table_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(background_maps, "MAX_TSNE_ROWS", 0)
    hashed: list[StoredTable] = []
    for module in ("background_maps", "projection"):
        name = f"inlayer.geometry.{module}.table_fingerprint"
        monkeypatch.setattr(name, lambda table: hashed.append(table) or "hash")
    rows = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    assert maps_of(tmp_path / "model", rows).get("best").method == "pca"
    assert len(hashed) == 1


@pytest.mark.slow
def test_a_failed_tsne_is_one_line_and_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    maps = maps_of(tmp_path / "one-channel", np.random.default_rng(0).standard_normal((40, 1)).astype(np.float32))
    assert maps.get().is_improving
    assert maps._process is not None
    maps._process.join(60)
    assert not maps.get().is_improving
    captured = capfd.readouterr().err
    assert captured.startswith("inlayer: t-SNE failed, so the map remains PCA: t-SNE needs rows that differ")
    assert captured.count("\n") == 1
    nothing = maps_of(tmp_path / "nan", np.full((40, 4), np.nan, np.float32))
    with pytest.raises(inlayer.errors.InputError, match="a map needs at least 3"):
        nothing.get()
    assert nothing._process is None


def test_a_result_that_could_not_be_saved_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    maps = maps_of(tmp_path / "model", np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32))
    maps._process = SimpleNamespace(is_alive=lambda: False)  # type: ignore[assignment]
    assert not maps.get().is_improving


@pytest.mark.slow
def test_a_stopped_server_leaves_no_partial_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = np.random.default_rng(0).standard_normal((20_000, 64)).astype(np.float32)
    with process("--model", str(make_model(tmp_path / "model", rows))) as (program, client, _):
        facts = client.send("/api/map").json
        assert (facts["method"], facts["is_improving"]) == ("pca", True)
        program.terminate()
        program.wait(60)
    left = sorted(path.name for path in (tmp_path / "cache" / "inlayer" / "maps").iterdir())
    assert [name for name in left if name != "lock" and not name.endswith("-pca.npz")] == []
