"""An interrupted `inlayer embed` never continues with another version of its input or its model."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import inlayer
from inlayer.encoding import resumable_job


@pytest.fixture
def interrupted(run, monkeypatch):
    """Run a command until all of its parts are written."""

    def interrupt(*_):
        raise KeyboardInterrupt

    def call(*command: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(resumable_job, "join_parts", interrupt)
            assert run(*command)[0] == 130

    return call


@pytest.mark.parametrize("change", ["none", "name", "category"])
def test_changed_columns_of_parquet_are_noticed(change, run, interrupted, tmp_path):
    def write(name: str, kind: str) -> None:
        kinds = pa.array(["x", kind]).dictionary_encode()
        pq.write_table(pa.table({"text": ["one", "two"], name: [1, 2], "kind": kinds}), tmp_path / "a.parquet")

    command = ("embed", "a.parquet", "--out", "v.parquet")
    write("id", "y")
    interrupted(*command)
    write("number" if change == "name" else "id", "z" if change == "category" else "y")
    code, _, err = run(*command)
    assert code == (0 if change == "none" else 2)
    assert ("the input has changed since the interrupted run" in err) == (change != "none")


@pytest.mark.parametrize(("source", "advice"), [("-", "pass the same standard input to"), ("a.txt", "run")])
def test_advice_after_an_interrupt_names_standard_input(source, advice, run, monkeypatch, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(b"one\n")))
    monkeypatch.setattr(resumable_job, "join_parts", Mock(side_effect=KeyboardInterrupt))
    expected = f"interrupted; to resume, {advice}: inlayer embed {source} --out v.npy\n"
    assert run("embed", source, "--out", "v.npy") == (130, "", expected)


@pytest.mark.parametrize("changed", [False, True])
def test_any_changed_row_of_the_model_is_noticed(changed, run, interrupted, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(Path(inlayer.__file__).parent / "samples" / "default", folder)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    command = ("embed", "a.txt", "--out", "v.npy", "--model", "model")
    interrupted(*command)
    checksum = inlayer.load(folder).encoder().checksum()
    tensors = load_file(folder / "model.safetensors")
    if changed:
        next(iter(tensors.values()))[2] += np.ones((), "bfloat16")
    save_file(tensors, folder / "model.safetensors")
    assert inlayer.load(folder).encoder().checksum() == checksum  # control: it does not include this row
    code, _, err = run(*command)
    assert code == (2 if changed else 0)
    assert ("or a different version of the model" in err) == changed


def test_version_of_remote_rows_reads_none_of_them(monkeypatch):
    model = inlayer.load("default")
    encoder = model.encoder()
    monkeypatch.setattr(encoder, "_remote", True)
    monkeypatch.setattr(model.table, "source", SimpleNamespace(file=SimpleNamespace(version=(7, "etag"))))
    assert encoder.version() == "(7, 'etag')"
