"""Answers tell what a model is called, and never where it lies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import inlayer
from inlayer.trace import Pipeline
from inlayer.web.routes import find_places, without_places
from tests.web.client import running

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    made = tmp_path / "secret-place" / "my-model"
    shutil.copytree(SAMPLE, made)
    return made


def test_no_answer_holds_the_path(secret: Path) -> None:
    line = Pipeline(inlayer.load(secret), name="mine")
    assert "secret-place" in line.source  # the library tells it all
    with running({"mine": line}) as (place, _):
        models = place.ask("/api/models")
        walk = place.ask("/api/walk", {"texts": ["Hi"]})
        bodies = [models.body, walk.body]
        bodies += [
            place.ask(path).body for path in ("/", "/api/token?id=1", "/api/initialization", "/api/openapi.json")
        ]
        weights = secret / "model.safetensors"
        os.utime(weights, ns=(0, 0))
        changed = place.ask("/api/walk", {"texts": ["Ho"]})
        bodies.append(changed.body)
    assert models.json["models"][0]["source"] == walk.json["source"] == "my-model"
    assert changed.status == 400
    assert changed.error.startswith("model.safetensors was changed")
    assert not any(b"secret-place" in body for body in bodies)


def test_what_no_tokenizer_can_read_is_told_by_name(secret: Path) -> None:
    for file in secret.glob("tokenizer*"):
        file.unlink()
    with running({"mine": Pipeline(inlayer.load(secret), name="mine")}) as (place, _):
        assert place.ask("/api/walk", {"texts": ["Hi"]}).error.startswith("my-model has no tokenizer")


def test_sources(secret: Path, monkeypatch: pytest.MonkeyPatch, line: Pipeline) -> None:
    assert line.title == "default"  # a sample's name is no path
    monkeypatch.chdir(secret)
    here = Pipeline(inlayer.load("."))
    assert here.title == "my-model"
    told = find_places([here])
    assert without_places(f"{secret}/config.json. Done.", told) == "my-model/config.json. Done."
    monkeypatch.chdir(secret.parent)
    beside = Pipeline(inlayer.load("../secret-place/my-model"))
    assert without_places("../secret-place/my-model is gone", find_places([beside])) == "my-model is gone"
