"""`inlayer embed` on input of which some or all is bad: the file and the place are named, and the rest is embedded."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(("bad", "problem"), [(None, "the text is null"), ("cat", "m/tokenizer.json cannot encode")])
def test_file_of_bad_rows_only_is_skipped(two_words, bad, problem, kind, run, tmp_path):
    for name, text in (("good", "dog"), ("bad", bad)):
        table = pa.table(
            {"text": pa.array([text], pa.string()), "id": [1], "kind": pa.array(["x"]).dictionary_encode()}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    command = ["embed", "good.parquet", "bad.parquet", "--out", f"v.{kind}", "--model", "m", "--on-error", "skip"]
    code, out, err = run(*command)
    assert (code, out) == (0, f"v.{kind}: 1 x 2 float32 from 2 files, 1 bad row skipped\n")
    assert err.startswith(f"skipped bad.parquet, row 0: {problem}")
    rows = pq.read_table("v.parquet").to_pylist() if kind == "parquet" else [json.loads(Path("v.jsonl").read_text())]
    assert rows == [{"text": "dog", "id": 1, "kind": "x", "embedding": [1.0, 2.0]}]
