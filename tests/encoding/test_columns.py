"""The columns besides the texts: they keep their names, and a value of another type is a bad row of its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlayer
from inlayer.encoding import reader, resumable_job


@pytest.mark.parametrize("out", ["v.parquet", "v.jsonl"])
@pytest.mark.parametrize("field", ["title", "text", "file"])
def test_columns_keep_their_names(field, out, run, tmp_path):
    rows = [{"title": "a dog", "text": "runs fast", "file": "x"}, {"title": "seven", "text": "is late", "file": "y"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("embed", "a.jsonl", "--field", field, "--out", out)[0] == 0
    vectors = inlayer.load("default").encode([row[field] for row in rows]).tolist()
    read = pq.read_table(out).to_pylist() if out == "v.parquet" else map(json.loads, Path(out).read_text().splitlines())
    assert [*read] == [row | {"embedding": vector} for row, vector in zip(rows, vectors, strict=True)]
    if out == "v.parquet":
        best = json.loads(run("search", f"{rows[1][field]} ", "--in", out, "-k", "1", "--json")[1])["rows"][0]
        assert (best["row"], best["text"]) == (1, rows[1][field])
        assert best.get("file") == ("y" if field != "file" else None)


def test_texts_of_other_files_get_the_name_of_the_field(run, tmp_path):
    (tmp_path / "a.csv").write_text("review,id\ngood,1\n")
    (tmp_path / "b.txt").write_text("bad\n")
    assert run("embed", "a.csv", "b.txt", "--field", "review", "--out", "v.parquet")[0] == 0
    table = pq.read_table("v.parquet").drop_columns(["embedding"])
    assert table.to_pylist() == [
        {"review": "good", "id": "1", "file": None}, {"review": "bad", "id": None, "file": "b.txt"},
    ]  # fmt: skip


LATE = [1, None, 2, 2.5, "three", [4], 5, {"six": 6}]
FITS = [0, 1, 2, 3, 6]


def test_value_of_another_type_is_a_bad_row(run, monkeypatch, tmp_path):
    lines = [json.dumps({"text": f"row {number}", "n": value}) for number, value in enumerate(LATE)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(resumable_job, "PART_BYTES", 1)  # one row in each part
    command = ["embed", "a.jsonl", "--out", "v.parquet"]
    code, _, err = run(*command)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(
        "inlayer: a.jsonl, line 5: column 'n' cannot be stored as Parquet: Unable to merge: Field n has incompatible"
    )
    assert err.endswith("to skip bad records, use --on-error skip\n")
    assert len([*(tmp_path / ".v.parquet.part").glob("0*")]) == 4  # what is finished stays
    code, _, err = run(*command, "--on-error", "skip")
    assert code == 0
    assert [line.partition(":")[0] for line in err.splitlines()] == [f"skipped a.jsonl, line {n}" for n in (5, 6, 8)]
    table = pq.read_table("v.parquet")
    assert table["n"].to_pylist() == [LATE[row] for row in FITS]
    vectors = inlayer.load("default").encode([f"row {row}" for row in FITS])
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), np.float32), vectors)


def test_value_of_another_type_in_the_same_block(run, tmp_path):
    lines = [json.dumps({"text": f"row {number}", "n": value}) for number, value in enumerate(LATE)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    code, out, err = run("embed", "a.jsonl", "--out", "v.parquet", "--on-error", "skip")
    assert (code, out) == (0, "v.parquet: 5 x 128 float32, 3 bad records skipped\n")
    assert [line.partition(":")[0] for line in err.splitlines()] == [f"skipped a.jsonl, line {n}" for n in (5, 6, 8)]
    assert pq.read_table("v.parquet")["n"].to_pylist() == [LATE[row] for row in FITS]


def test_parquet_file_with_columns_of_another_type_is_named(run, tmp_path):
    for name, value in (("a", 1), ("b", "x")):
        pq.write_table(pa.table({"text": ["one"], "n": [value]}), tmp_path / f"{name}.parquet")
    code, _, err = run("embed", "a.parquet", "b.parquet", "--out", "v.parquet")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("inlayer: b.parquet, row 0: column 'n' cannot be stored as Parquet")


def test_row_group_is_not_read_at_once(monkeypatch, tmp_path):
    texts = [np.random.default_rng(number).bytes(500).hex() for number in range(30_000)]  # 30 MB
    pq.write_table(pa.table({"text": texts, "other": texts}), tmp_path / "a.parquet", use_dictionary=False)
    monkeypatch.setattr(reader, "ROWS_BYTES", 2**20)
    monkeypatch.setattr(reader, "READ_BYTES", 2**20)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for block in reader.Reader(
        [tmp_path / "a.parquet"], field="text", per_file=False, on_bad_row=pytest.fail, keep_columns=True
    ):
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + len(block.texts)
    assert rows == 30_000
    assert most < 2**23
