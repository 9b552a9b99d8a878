"""Responses contain a model's name, never its path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import inlayer
from inlayer.trace import Pipeline
from inlayer.web.app import find_paths, redact
from tests.web.client import running

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    made = tmp_path / "secret-folder" / "my-model"
    shutil.copytree(SAMPLE, made)
    return made


def test_no_response_contains_the_path(secret: Path) -> None:
    pipeline = Pipeline(inlayer.load(secret), name="mine")
    assert "secret-folder" in pipeline.source  # the library reports the full path
    with running({"mine": pipeline}) as client:
        models = client.send("/api/models")
        walk = client.send("/api/walk", {"texts": ["Hi"]})
        bodies = [models.body, walk.body]
        bodies += [
            client.send(path).body for path in ("/", "/api/token?id=1", "/api/initialization", "/api/openapi.json")
        ]
        weights = secret / "model.safetensors"
        os.utime(weights, ns=(0, 0))
        changed = client.send("/api/walk", {"texts": ["Ho"]})
        bodies.append(changed.body)
    assert models.json["models"][0]["source"] == walk.json["source"] == "my-model"
    assert changed.status == 400
    assert changed.error.startswith("model.safetensors was modified")
    assert not any(b"secret-folder" in body for body in bodies)


def test_errors_name_the_model_without_its_path(secret: Path) -> None:
    for file in secret.glob("tokenizer*"):
        file.unlink()
    with running({"mine": Pipeline(inlayer.load(secret), name="mine")}) as client:
        assert client.send("/api/walk", {"texts": ["Hi"]}).error.startswith("my-model has no tokenizer")


def test_paths_are_redacted_however_they_are_given(
    secret: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    assert pipeline.title == "default"  # the name of a sample is not a path
    monkeypatch.chdir(secret)
    here = Pipeline(inlayer.load("."))
    assert here.title == "my-model"
    paths = find_paths([here])
    assert redact(f"{secret}/config.json. Done.", paths) == "my-model/config.json. Done."
    monkeypatch.chdir(secret.parent)
    relative = Pipeline(inlayer.load("../secret-folder/my-model"))
    assert redact("../secret-folder/my-model is gone", find_paths([relative])) == "my-model is gone"
