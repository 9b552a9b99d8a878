"""`inlayer embed` on input that is partly or entirely bad: file and place are named, and the rest is embedded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlayer.encoding import outputs


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("bad", "problem"), [(None, "column 'text' is None"), ("cat", "m/tokenizer.json cannot encode")]
)
def test_file_of_bad_rows_only_is_skipped(two_words, bad, problem, kind, run, tmp_path):
    for name, text in (("good", "dog"), ("bad", bad)):
        table = pa.table(
            {"text": pa.array([text], pa.string()), "id": [1], "kind": pa.array(["x"]).dictionary_encode()}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    command = ["embed", "good.parquet", "bad.parquet", "--out", f"v.{kind}", "--model", "m", "--on-error", "skip"]
    code, out, err = run(*command)
    assert (code, out) == (0, f"v.{kind}: 1 x 2 float32 from 2 files, 1 bad record skipped\n")
    assert err.startswith(f"skipped bad.parquet, row 0: {problem}")
    rows = pq.read_table("v.parquet").to_pylist() if kind == "parquet" else [json.loads(Path("v.jsonl").read_text())]
    assert rows == [{"text": "dog", "id": 1, "kind": "x", "embedding": [1.0, 2.0]}]


def test_header_of_a_table_must_be_utf8(run, tmp_path):
    (tmp_path / "h.csv").write_text("tëxt\nworld\n", encoding="latin-1")
    for skip in ([], ["--on-error", "skip"]):  # without a header, there is no row to skip
        assert run("embed", "h.csv", "--out", "v.npy", *skip) == (
            2,
            "",
            "inlayer: h.csv, line 1: the header is not valid UTF-8\n",
        )


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin"), pa.date32(), pa.duration("s"), pa.date64()]
)
def test_date_outside_the_range_of_python_is_one_line(kind, run, tmp_path):
    value = 2**30 if kind == pa.date32() else 2**60 // 86_400_000 * 86_400_000
    pq.write_table(pa.table({"text": ["one"], "when": pa.array([value], kind)}), tmp_path / "a.parquet")
    code, _, err = run("embed", "a.parquet", "--out", "v.jsonl")
    assert (code, err.count("\n")) == (2, 1)
    assert "column 'when' cannot be stored as JSON: " in err
    assert run("embed", "a.parquet", "--out", "v.parquet")[0] == 0  # as the message suggests


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('"\\ud800"', "'utf-8' codec can't encode character '\\ud800'"),
        ('"\ud800"', "'utf-8' codec can't encode character '\\ud800'"),
        ("[-98765432109876543210]", "Python int too large"),
    ],
)
def test_line_with_a_value_that_parquet_cannot_store_is_skipped(value, problem, run, tmp_path):
    lines = ['{"text": "one", "n": null}', f'{{"text": "two", "n": {value}}}', '{"text": "\\ud83d\\ude42", "n": null}']
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    problem = f"a.jsonl, line 2: column 'n' cannot be stored as Parquet: {problem}"
    code, _, err = run("embed", "a.jsonl", "--out", "v.parquet")
    assert (code, err.startswith(f"inlayer: {problem}")) == (2, True)
    code, _, err = run("embed", "a.jsonl", "--out", "v.parquet", "--on-error", "skip")
    assert (code, err.startswith(f"skipped {problem}")) == (0, True)
    assert pq.read_table("v.parquet")["text"].to_pylist() == ["one", "🙂"]
    assert run("embed", "a.jsonl", "--out", "v.jsonl")[0] == 0  # as the message suggests


@pytest.mark.parametrize("name", ["a.txt.gz", "a.csv.zst"])
def test_empty_compressed_file_was_cut_short(name, run, tmp_path):
    (tmp_path / name).touch()
    message = f"inlayer: {name} is empty; was the download cut short?\n"
    assert run("embed", name, "--out", "v.npy") == (2, "", message)


def test_file_name_that_parquet_cannot_store_is_reported(run, tmp_path):
    (tmp_path / "d").mkdir()
    for name in (b"a.txt", b"\xff.txt"):
        Path(os.fsdecode(os.fsencode(tmp_path / "d") + b"/" + name)).write_text("one\n")
    code, _, err = run("embed", "d", "--out", "v.parquet")
    assert (code, err.count("\n")) == (2, 1)
    problem = "column 'file' cannot be stored as Parquet: 'utf-8' codec can't encode character '\\udcff'"
    assert err.startswith(f"inlayer: d/\\udcff.txt, line 1: {problem}")
    assert "remove it, or use --out FILE.jsonl" in err
    assert run("embed", "d", "--out", "v.jsonl")[0] == 0


def test_search_in_a_damaged_file_is_one_line(run, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(2000)))
    assert run("embed", "a.txt", "--out", "v.parquet")[0] == 0
    data, seen = Path("v.parquet").read_bytes(), set()
    damaged = [data[:at] + b"\xff" * 400 + data[at + 400 :] for at in range(4, len(data) - 2000, len(data) // 20)]
    damaged.append(data.replace(b"embedding", b"\xffmbedding"))
    for content in damaged:
        Path("v.parquet").write_bytes(content)
        code, _, err = run("search", "x y", "--in", "v.parquet")
        message = "inlayer: v.parquet is not a readable Parquet file: "
        seen.add((code, err.count("\n"), err[: len(message)] == message))
    assert (2, 1, True) in seen
    assert seen <= {(2, 1, True), (0, 0, False)}  # damaged values may still be vectors
    code, _, err = run("embed", "v.parquet", "--out", "w.npy")  # the last one
    assert (code, err.startswith(message)) == (2, True)


def test_an_error_of_reading_is_not_one_of_writing(run, monkeypatch, tmp_path):
    (tmp_path / "v.npy").touch()

    def fail(*_):
        raise OSError("a reason without a number")

    monkeypatch.setattr(outputs, "open_vectors", fail)
    assert run("search", "x y", "--in", "v.npy") == (2, "", "inlayer: a reason without a number\n")
