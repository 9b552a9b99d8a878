"""N-gram memories in a report: healthy ones are described, and damaged ones are errors of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlayer
from tests.checkpoint.test_ngram_tables import DAMAGED, write_engram


def test_memories_are_described(tmp_path: Path) -> None:
    write_engram(tmp_path)
    report = inlayer.inspect(tmp_path)
    assert [(memory.layer, memory.rows, memory.heads, memory.orders) for memory in report.ngrams] == [
        (1, 3698, 24, (2, 3, 4)), (14, 6938, 24, (2, 3, 4)),
    ]  # fmt: skip
    assert [memory.n_tensors for memory in report.ngrams] == [1, 1]
    assert (report.ngrams[0].min_modulus, report.ngrams[1].max_modulus) == (97, 359)
    assert not [finding for finding in report.findings if finding.severity == "error"]
    assert report.to_dict()["ngrams"][1]["layer"] == 14
    rows = inlayer.load(tmp_path).ngram_memories[0].table.rows(range(3698)).astype("float32")
    table = next(table for table in report.tables if table.role == "ngram")
    norms = (rows.astype("float64") ** 2).sum(1) ** 0.5
    assert table.norm_median == pytest.approx(np.median(norms), rel=1e-2)  # with their scales; rows are in bfloat16
    assert inlayer.inspect("default").ngrams == ()


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_an_error(case: str, tmp_path: Path) -> None:
    change, _ = DAMAGED[case]
    write_engram(tmp_path, change=change)
    report = inlayer.inspect(tmp_path)
    found = [finding for finding in report.findings if finding.code == "ngram-mismatch"]
    assert [finding.severity for finding in found] == ["error"]
    assert "\n" not in found[0].message
    assert sorted(memory.n_tensors for memory in report.ngrams) == [0, 1]


def test_another_tokenizer_is_an_error(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"engram_compressed_vocab_size": 200}
    write_engram(tmp_path, **settings)
    messages = [finding.message for finding in inlayer.inspect(tmp_path).findings if finding.severity == "error"]
    assert len(messages) == 2  # one per memory
    assert "distinct normalized tokens, but its config requires 200" in messages[0]
    assert not [one for one in inlayer.inspect(tmp_path, quick=True).findings if one.severity == "error"]
