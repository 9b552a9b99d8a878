"""`inlayer inspect` on a remote checkpoint: the report of the local folder, from few bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inlayer.inspection import inspect
from tests.checkpoint.remote.models import make_kimi, make_small
from tests.checkpoint.remote.server import Hub


def test_report_equals_that_of_the_local_folder(hub: Hub, tmp_path: Path) -> None:
    make_small(tmp_path / "repo")
    hub.add("org/name", tmp_path / "repo")
    ours, theirs = inspect("org/name"), inspect(tmp_path / "repo")
    assert (ours.kind, ours.source) == ("hub", "org/name")
    table = replace(theirs.table, model_parameters=None, parameter_share=None)  # not all shards are read
    assert ours == replace(theirs, kind="hub", source="org/name", table=table)


def test_files_in_the_current_folder_are_not_the_tokenizer_of_a_gguf(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.checkpoint.make_gguf import write_gguf

    (tmp_path / "repo").mkdir()
    tensors = {"token_embd.weight": (np.eye(8, dtype=np.float32), None)}
    write_gguf(tmp_path / "repo" / "x.gguf", architecture="mamba", tensors=tensors)
    hub.add("org/name", tmp_path / "repo")
    (tmp_path / "tokenizer.json").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "tokenizer-missing" in {finding.code for finding in inspect("org/name").findings}


@pytest.mark.slow
def test_quick_report_of_a_large_model_moves_few_bytes(hub: Hub, tmp_path: Path) -> None:
    make_kimi(tmp_path / "repo", {})
    hub.add("org/kimi", tmp_path / "repo")
    report = inspect("org/kimi", quick=True)
    assert (report.table.rows, report.table.width) == (163840, 7168)
    assert sum(hub.sent.values()) < 24e6  # a thousand rows, the tokenizer, part of the index; the model has a terabyte
