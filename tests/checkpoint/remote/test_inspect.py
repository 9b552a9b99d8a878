"""Inspecting a remote checkpoint: the same report as for a local folder, and little traffic for a quick one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inlayer.inspection import inspect
from tests.checkpoint.remote.models import make_kimi, make_small
from tests.checkpoint.remote.server import Hub


def test_remote_report_equals_the_local_one(hub: Hub, tmp_path: Path) -> None:
    make_small(tmp_path / "repo")
    hub.add("org/name", tmp_path / "repo")
    ours, theirs = inspect("org/name"), inspect(tmp_path / "repo")
    assert (ours.kind, ours.source) == ("hub", "org/name")
    table = replace(theirs.table, model_parameters=None, parameter_share=None)  # would require every shard header
    assert ours == replace(theirs, kind="hub", source="org/name", table=table)


def test_quick_report_of_a_large_model_downloads_little(hub: Hub, tmp_path: Path) -> None:
    make_kimi(tmp_path / "repo", {})
    hub.add("org/kimi", tmp_path / "repo")
    report = inspect("org/kimi", quick=True)
    assert (report.table.rows, report.table.width) == (163840, 7168)
    assert sum(hub.sent.values()) < 24e6  # of a terabyte: a thousand rows, the tokenizer and part of the index
