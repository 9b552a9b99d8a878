"""`inlayer embed` and `inlayer search` as programs: formats, bad input, kills, interrupts, a full disk."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace

import inlayer
from inlayer.encoding import lines, outputs, resumable_job
from inlayer.encoding import reader as reader_module
from inlayer.encoding.encode import Encoder

TEXTS = ["I love dogs", "", "naïve 🙂", 'fish, and "chips"', "seven days"]
TIMEOUT = 300


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return inlayer.load("default").encode(TEXTS)


def write_inputs(folder: Path) -> dict[str, Path]:
    """The same texts in every format."""
    lines = "\n".join(TEXTS) + "\n"
    files = {
        name: folder / f"texts{name}" for name in (".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".txt.gz", ".txt.zst")
    }
    files[".txt"].write_text(lines, encoding="utf-8")
    files[".txt.gz"].write_bytes(gzip.compress(lines.encode()))
    files[".txt.zst"].write_bytes(pa.compress(lines.encode(), "zstd", asbytes=True))
    files[".jsonl"].write_text("".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(TEXTS)))
    for name, delimiter in ((".csv", ","), (".tsv", "\t")):
        with files[name].open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("id", "text"), *enumerate(TEXTS)])
    pq.write_table(pa.table({"id": pa.array(range(5), pa.int16()), "text": TEXTS}), files[".parquet"])
    return files


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".txt.gz", ".txt.zst"])
def test_every_input_gives_the_vectors_of_the_library(run, tmp_path, expected, kind):
    file = write_inputs(tmp_path)[kind]
    code, out, err = run("embed", file.name, "--out", "v.npy")
    assert (code, out, err) == (0, "v.npy: 5 x 128 float32, 1 empty text (all zeros)\n", "")
    np.testing.assert_array_equal(np.load("v.npy"), expected)
    assert not (tmp_path / ".v.npy.part").exists()


def test_every_output_has_the_vectors(run, tmp_path, expected):
    write_inputs(tmp_path)
    for name in ("v.safetensors", "v.jsonl", "v.parquet"):
        assert run("embed", "texts.parquet", "--out", name)[0] == 0
    np.testing.assert_array_equal(load_file("v.safetensors")["embeddings"], expected)
    lines = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [(line["text"], line["id"]) for line in lines] == [*zip(TEXTS, range(5), strict=True)]
    np.testing.assert_array_equal(np.array([line["embedding"] for line in lines], np.float32), expected)
    table = pq.read_table("v.parquet")
    assert table.column_names == ["text", "id", "embedding"]
    assert table.schema.field("id").type == pa.int16()  # other columns keep their types
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), np.float32), expected)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_every_string_type_of_parquet_is_read(run, tmp_path, expected, kind):
    structs = [{"a": 1, "b": None}] * 6  # pyarrow fails to cast a slice of them
    table = pa.table(
        {"text": pa.array([*TEXTS, TEXTS[0]]).cast(kind), "c": structs, "d": pa.array(["x"] * 6).dictionary_encode()}
    )
    pq.write_table(table, tmp_path / "v.parquet", row_group_size=2)
    assert run("embed", "v.parquet", "--out", "v.npy")[0] == 0
    np.testing.assert_array_equal(np.load("v.npy"), expected[[*range(5), 0]])
    assert run("embed", "v.parquet", "--out", "w.parquet")[0] == 0
    assert pq.read_table("w.parquet").select(["c", "d"]).equals(table.select(["c", "d"]))


def test_folders_patterns_texts_and_standard_input(run, tmp_path, expected, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/1.txt").write_text("I love dogs\n")
    (tmp_path / "a/b/2.txt").write_text("seven days")
    (tmp_path / "a/ignored.png").write_bytes(b"x")
    (tmp_path / "a/.hidden").mkdir()
    for ignored in ("a/.hidden/3.txt", "a/.4.txt"):
        (tmp_path / ignored).write_text("ignored")
    for number, inputs in enumerate((["a"], ["a/**/*.txt"], ["I love dogs", "a/b/2.txt"])):
        assert run("embed", *inputs, "--out", f"{number}.npy")[0] == 0
        np.testing.assert_array_equal(np.load(f"{number}.npy"), expected[[0, 4]])
    assert run("embed", "I love dogs", "", "--out", "e.npy")[0] == 0  # an empty text is not the current folder
    np.testing.assert_array_equal(np.load("e.npy"), np.stack([expected[0], np.zeros_like(expected[0])]))
    assert run("embed", "a/1.txt", "--per-file", "--out", "p.npy")[0] == 0
    np.testing.assert_array_equal(np.load("p.npy")[0], inlayer.load("default").encode("I love dogs\n"))
    done = subprocess.run(
        [sys.executable, "-m", "inlayer", "embed", "-", "--out", "s.npy"],
        input=b"\xef\xbb\xbfI love dogs\r\nseven days",
        check=True,
    )  # fmt: skip
    assert done.returncode == 0
    np.testing.assert_array_equal(np.load("s.npy"), expected[[0, 4]])
    lines = b'{"body": "I love dogs"}\n{"body": "seven days"}\n'
    subprocess.run(
        [sys.executable, "-m", "inlayer", "embed", "-", "--field", "body", "--out", "j.npy"], input=lines, check=True
    )
    np.testing.assert_array_equal(np.load("j.npy"), expected[[0, 4]])


def test_rows_of_several_files_keep_the_name_of_their_file(run, tmp_path):
    (tmp_path / "a.txt").write_text("I love dogs\nseven days\n")
    (tmp_path / "b.txt").write_text("the king\n")
    (tmp_path / "c.jsonl").write_text('{"text": "a cat", "file": "mine"}\n')
    for name in ("v.parquet", "v.jsonl"):
        code, out, _ = run("embed", "a.txt", "b.txt", "c.jsonl", "one text", "--out", name)
        assert (code, out) == (0, f"{name}: 5 x 128 float32 from 3 files\n")
    files = ["a.txt", "a.txt", "b.txt", "mine", None]
    assert pq.read_table("v.parquet")["file"].to_pylist() == files
    assert [json.loads(line).get("file") for line in Path("v.jsonl").read_text().splitlines()] == files
    assert json.loads(run("search", "the king", "--in", "v.parquet", "-k", "1", "--json")[1])["rows"][0] == {
        "row": 2, "score": pytest.approx(1, abs=1e-6), "text": "the king", "file": "b.txt"
    }  # fmt: skip
    lines = run("search", "the king", "--in", "v.parquet", "-k", "1")[1].splitlines()
    assert [line.rstrip() for line in lines[:2]] == ["cosine  row  text", " 1.000    2  the king  (b.txt)"]
    advice = '"default" is for demonstration only. For useful results, embed the texts again with --model wordllama.'
    assert " ".join(lines[2:]).split() == advice.split()
    assert run("embed", "a.txt", "--out", "one.parquet")[0] == 0
    assert pq.read_schema("one.parquet").names == ["text", "embedding"]


def test_the_note_names_only_what_is_left_out(run, monkeypatch):
    assert "are shown" not in run("embed", "I love dogs", "--dim", "2")[1]
    assert "Only the first 4 of 128 values are shown" in run("embed", "I love dogs")[1]
    monkeypatch.setenv("COLUMNS", "32")
    assert run("embed", "dogs", "cats")[1].count("dogs") == 2  # in both tables


def test_without_arguments_three_sentences_and_their_similarities(run):
    code, out, err = run("embed")
    assert (code, err) == (0, "")
    model = inlayer.load("default")
    vectors = model.encode(["I love dogs", "Dogs are my favorite animals"], normalize=True)
    assert f"{vectors[0] @ vectors[1]:.3f}" in out.splitlines()[1]


def test_table_on_the_terminal_and_json(run, expected):
    code, out, _ = run("embed", "I love dogs", "x [y]")
    assert code == 0
    assert f"{expected[0, 0]:.3f}" in out
    assert "x [y]" in out
    one, other = expected[0], inlayer.load("default").encode("x [y]")
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert f"{cosine:.3f}" in out.partition("cosine similarity")[2]
    assert "cosine" not in run("embed", "I love dogs")[1]
    out = run("embed", "I love dogs", "")[1]
    assert "0.000  0.000\n" in out  # an empty text, not NaN
    assert re.search(r"^\(empty text\) +0\.000", out, flags=re.MULTILINE)
    assert re.search(r"^2 \(empty text\) +0\.000", out, flags=re.MULTILINE)
    rows = json.loads(run("embed", "I love dogs", "--json")[1])["rows"]
    np.testing.assert_array_equal(np.array(rows[0]["embedding"], np.float32), expected[0])


def test_json_has_every_row(run, tmp_path):
    lines = [f"line {number}" for number in range(77)]  # more than are shown, and computed at once
    (tmp_path / "LINES.TXT").write_text("\n".join(lines))  # a suffix in capitals also counts
    code, out, error = run("embed", "LINES.TXT", "--json")
    assert (code, out.count("\n"), error) == (0, 1, "")
    assert [row["text"] for row in json.loads(out)["rows"]] == lines
    (tmp_path / "empty.txt").write_text("")
    assert run("embed", "empty.txt", "--json") == (2, "", "inlayer: the input contains no text\n")


def test_columns_that_only_later_rows_have_are_kept(run, tmp_path):
    (tmp_path / "late.jsonl").write_text('{"text": "a"}\n{"text": "c", "label": 7}\n')
    assert run("embed", "late.jsonl", "--out", "late.parquet")[0] == 0
    assert pq.read_table(tmp_path / "late.parquet")["label"].to_pylist() == [None, 7]


COLUMNS = {
    "mixed": ['{"text": "a", "n": 1}\n{"text": "c", "n": "three"}'],
    "mixed files": ['{"text": "a", "n": 1}', '{"text": "c", "n": "three"}'],
    "too large": ['{"text": "a", "n": 123456789012345678901234567890}'],
    "surrogate": ['{"text": "a", "n": "\\ud800"}'],
    "empty object": ['{"text": "a", "n": {}}'],
    "inexact": ['{"text": "a", "n": 1.5}', '{"text": "a", "n": 9007199254740993}'],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_column_that_parquet_cannot_store_is_one_line(name, run, tmp_path):
    files = [f"{number}.jsonl" for number in range(len(COLUMNS[name]))]
    for file, content in zip(files, COLUMNS[name], strict=True):
        (tmp_path / file).write_text(content)
    code, _, error = run("embed", *files, "--out", "v.parquet")
    assert (code, error.count("\n")) == (2, 1)
    assert "cannot be stored as Parquet" in error
    assert "column 'n'" in error or "Field n " in error or "type 'n'" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert run("embed", *files, "--out", "v.jsonl")[0] == 0  # as the message suggests


@pytest.mark.parametrize(("file", "content", "problem"), [
    ("a.csv", 'id,text\n1,"abc\n2,d\n', "a.csv, lines 2 to 3: a quote is not closed"),
    ("a.tsv", 'id\ttext\n1\t"quo"ted\n2\tfine\n', "a.tsv, line 2: text follows a closing quote"),
])  # fmt: skip
def test_misplaced_quote_is_never_silent(file, content, problem, run, tmp_path):
    (tmp_path / file).write_text(content)
    code, _, error = run("embed", file, "--out", "v.npy")
    assert code == 2
    assert problem in error
    (tmp_path / "more.txt").write_text("one\n")
    assert f"skipped {problem}" in run("embed", file, "more.txt", "--out", "v.npy", "--on-error", "skip")[2]


# ---- bad input: one line, exit code 2, existing files untouched


def bad_inputs(folder: Path) -> None:
    (folder / "latin.txt").write_bytes(b"fine\ncaf\xe9\nalso fine\n")
    (folder / "surrogate.jsonl").write_text('{"text": "fine"}\n{"text": "\\ud800"}\n')
    (folder / "mixed.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n{"other": "x"}\n[1]\nnot json\n"a text"\n')
    (folder / "null.jsonl").write_text('{"text": "fine"}\n{"text": null}\n')
    (folder / "column.csv").write_text("id,body\n1,fine\n")
    (folder / "ragged.csv").write_text("id,text\n1,fine\n2\n3,fine,too\n4,fine\n")
    (folder / "latin.csv").write_bytes(b"id,text\n1,fine\n2,caf\xe9\n")
    (folder / "twice.csv").write_text("id,text,id\n1,fine,2\n")
    (folder / "names.csv").write_text("embedding,text\n1,fine\n")
    (folder / "names.jsonl").write_text('{"text": "fine", "embedding": [1]}\n')
    pq.write_table(pa.table({"text": [1, 2]}), folder / "numbers.parquet")
    pq.write_table(pa.table({"text": ["fine", None]}), folder / "null.parquet")
    pq.write_table(pa.table({"text": ["fine"] * 5000}), folder / "whole.parquet")
    (folder / "cut.parquet").write_bytes((folder / "whole.parquet").read_bytes()[:-100])
    (folder / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(5000).hex().encode())[:-2000])
    (folder / "cut.txt.zst").write_bytes(pa.compress(os.urandom(5000).hex().encode(), "zstd", asbytes=True)[:-2000])
    (folder / "empty.txt").write_text("")
    (folder / "unknown.doc").write_bytes(b"\xd0\xcf\x11\xe0")
    (folder / "folder").mkdir()
    (folder / "folder.npy").mkdir()


def test_categories_of_several_files_are_kept(run, tmp_path):
    for name, kinds in (("a", ["x", "y"]), ("b", ["z", "x"])):
        table = pa.table({"text": ["one", "two"], "kind": pa.array(kinds).dictionary_encode()})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1)
    assert run("embed", "a.parquet", "b.parquet", "--out", "v.parquet")[0] == 0
    assert pq.read_table("v.parquet")["kind"].to_pylist() == ["x", "y", "z", "x"]


def test_columns_that_are_not_kept_may_repeat(run, tmp_path):
    (tmp_path / "twice.csv").write_text("text,,\none,1,2\n")
    assert run("embed", "twice.csv", "--out", "v.npy")[0] == 0
    code, _, err = run("embed", "twice.csv", "--out", "v.jsonl")
    assert code == 2
    assert "more than one column ''" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latin.txt"], "latin.txt, line 2: not valid UTF-8: byte 0xe9 at offset 3"),
        (["surrogate.jsonl"], "surrogate.jsonl, line 2: field 'text' contains the lone surrogate U+D800"),
        (["mixed.jsonl"], "mixed.jsonl, line 2: field 'text' is an int, not a str"),
        (["column.csv"], "it has id, body (the first line is taken as the header); choose one with --field"),
        (["column.csv", "--field", "nope"], "no column 'nope'"),
        (["latin.txt", "x", "--field", "text"], "--field names a column, but texts and text files do not have columns"),
        (
            ["column.csv", "x", "--per-file"],
            "--per-file is for text files, but the input does not contain any; omit it",
        ),
        (["ragged.csv"], "ragged.csv, line 3: 1 column instead of 2"),
        (["latin.csv"], "latin.csv, line 3: column 'text' is not valid UTF-8"),
        (["twice.csv", "--out", "v.jsonl"], "twice.csv has more than one column 'id'; rename all but one"),
        (["names.csv", "--out", "v.parquet"], "names.csv has a column 'embedding', the name of the vectors in the"),
        (["names.csv", "--out", "v.jsonl", "--field", "embedding"], "rename it, or use --out FILE.npy, which has no"),
        (["names.jsonl", "--out", "v.jsonl"], "names.jsonl, line 1: the line has a column 'embedding'"),
        (["numbers.parquet"], "column 'text' has type int64, not string"),
        (["null.parquet"], "null.parquet, row 1: column 'text' is None, not a str"),
        (["null.jsonl"], "null.jsonl, line 2: field 'text' is None, not a str"),
        (["cut.parquet"], "cut.parquet is not a readable Parquet file"),
        (["cut.txt.gz"], "cut.txt.gz cannot be read"),
        (["cut.txt.zst"], "cut.txt.zst cannot be read"),
        (["empty.txt"], "the input contains no text"),
        (["unknown.doc"], "unknown.doc, line 1: not valid UTF-8"),
        (["folder"], "folder has no files to read"),
        (["missing.txt"], "missing.txt: not found"),
        (["-", "-"], "standard input can be read only once"),
        (["x", "--pool", "sum"], "pool is 'sum'"),
        (["x", "--pool", "none"], "--pool is 'none'; it must be one of 'mean', 'first', 'last', 'max'"),
        (["x", "--dim", "500"], "dim is 500; it must be at most 128, the width of the vectors"),
        (["x", "--dtype", "int8"], "dtype is 'int8'"),
        (["x", "--dtype", "bfloat16"], ".npy cannot store bfloat16"),
        (["x", "--on-error", "maybe"], "--on-error is 'maybe'"),
        (["x", "--out", "v.xyz"], "--out is v.xyz; its suffix must be one of"),
        (["x", "--out", "nowhere/v.npy"], "nowhere is not a folder"),
        (
            ["x", "--out", "exists.npy"],
            "exists.npy already exists; choose another name, or use --overwrite to replace it",
        ),
        (["x", "--out", "folder.npy", "--overwrite"], "folder.npy already exists; choose another name\n"),
        (["-", "--weights", "sif"], "--weights sif reads the input twice, so it cannot be standard input"),
        (["x", "--weights", "nowhere"], "nowhere: not found"),
        (["x", "--model", "nowhere"], "nowhere: not found"),
    ],
)
def test_bad_input_is_one_line_and_leaves_files_alone(run, tmp_path, arguments, message):
    bad_inputs(tmp_path)
    (tmp_path / "exists.npy").write_bytes(b"precious")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, out, err = run("embed", *([] if "--out" in arguments else ["--out", "v.npy"]), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("inlayer: ")
    assert err.count("\n") == 1
    assert message in err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert (tmp_path / "exists.npy").read_bytes() == b"precious"


def test_bad_rows_can_be_skipped_but_never_silently(run, tmp_path):
    bad_inputs(tmp_path)
    code, out, err = run("embed", "mixed.jsonl", "latin.txt", "ragged.csv", "--out", "v.npy", "--on-error", "skip")
    assert (code, out) == (0, "v.npy: 6 x 128 float32 from 3 files, 7 bad records skipped\n")
    assert [line.split(":")[0] for line in err.splitlines()] == [
        *(f"skipped mixed.jsonl, line {number}" for number in (2, 3, 4, 5)), "skipped latin.txt, line 2",
        "skipped ragged.csv, line 3", "skipped ragged.csv, line 4",
    ]  # fmt: skip
    vectors = inlayer.load("default").encode(["fine", "a text", "fine", "also fine", "fine", "fine"])
    np.testing.assert_array_equal(np.load("v.npy"), vectors)


def test_columns_of_different_types_are_an_error(run, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "x": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "b", "x": {"y": 2}}\n')
    monkeypatch.setattr(resumable_job, "PART_BYTES", 1)
    code, _, err = run("embed", "a.jsonl", "b.jsonl", "--out", "v.parquet")
    assert (code, err.count("\n")) == (2, 1)
    assert "column 'x' cannot be stored as Parquet: Unable to merge: Field x has incompatible types" in err
    assert not (tmp_path / "v.parquet").exists()


# ---- kills, interrupts and a full disk

SLOW = """
import sys, time
from inlayer.encoding import lines, resumable_job
resumable_job.PART_BYTES, lines.READ_BYTES = 128 * 4 * 50, 300
write = resumable_job.write_part
def slowly(*arguments):
    write(*arguments)
    print("part", flush=True)
    time.sleep({seconds})
resumable_job.write_part = slowly
from inlayer.cli import main
sys.argv = ["inlayer", *sys.argv[1:]]
main()
"""


def start(folder: Path, *arguments: str, seconds: float = 0.0, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=seconds), *arguments], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def write_lines(folder: Path, count: int = 2000) -> list[str]:
    texts = [f"line {number} of a text" for number in range(count)]
    (folder / "lines.txt").write_text("\n".join(texts) + "\n")
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".npy", ".parquet", ".jsonl"])
def test_killed_runs_resume_without_losing_or_repeating_a_row(tmp_path, kind):
    texts, out = write_lines(tmp_path), tmp_path / f"v{kind}"
    for kills in range(3):
        with start(tmp_path, "embed", "lines.txt", "--out", out.name, seconds=0.05) as process:
            for _ in range(4 + kills):
                assert process.stdout.readline() == "part\n"
            process.kill()
        assert not out.exists()
        assert any((tmp_path / f".v{kind}.part").iterdir())
    with start(tmp_path, "embed", "lines.txt", "--out", out.name) as process:
        printed, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (0, "")
    assert printed.count("part") < 2000 // 50 - 9  # control: it continued, it did not start again
    expected = inlayer.load("default").encode(texts)
    if kind == ".npy":
        found = np.load(out)
    else:
        rows = pq.read_table(out).to_pylist() if kind == ".parquet" else map(json.loads, out.read_text().splitlines())
        rows = list(rows)
        assert [row["text"] for row in rows] == texts
        found = np.array([row["embedding"] for row in rows], np.float32)
    np.testing.assert_array_equal(found, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", out.name]


@pytest.mark.slow
def test_interrupt_prints_the_command_that_resumes(tmp_path):
    texts = write_lines(tmp_path)
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy", "--normalize", seconds=0.1) as process:
        assert process.stdout.readline() == "part\n"
        assert process.stdout.readline() == "part\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert err == "interrupted; to resume, run: inlayer embed lines.txt --out v.npy --normalize\n"
    assert not [path for path in (tmp_path / ".v.npy.part").iterdir() if path.name.startswith(".")]
    resume = err.split("run: ")[1].split()[1:]
    subprocess.run([sys.executable, "-m", "inlayer", *resume], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), inlayer.load("default").encode(texts, normalize=True))


@pytest.mark.slow
def test_resuming_with_other_input_or_arguments_is_an_error(tmp_path):
    write_lines(tmp_path)
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy", seconds=0.1) as process:
        assert process.stdout.readline() == "part\n"
        assert process.stdout.readline() == "part\n"
        process.kill()
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy", "--normalize") as process:
        assert "interrupted run with different arguments" in process.communicate(timeout=TIMEOUT)[1]
        assert process.returncode == 2
    (tmp_path / "lines.txt").write_text("other\n" * 2000)
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy") as process:
        assert "the input has changed since the interrupted run" in process.communicate(timeout=TIMEOUT)[1]
        assert process.returncode == 2
    assert not (tmp_path / "v.npy").exists()


def test_weights_in_a_folder(run, tmp_path, expected):
    """`Weighting.save(folder)` writes weighting.safetensors."""
    weighting = inlayer.Weighting.fit(inlayer.load("default"), ["one text", "two texts"])
    weighting.save(tmp_path / "w.safetensors")
    (tmp_path / "folder").mkdir()
    weighting.save(tmp_path / "folder")
    for name in ("w.safetensors", "folder"):
        assert run("embed", "I love dogs", "--out", f"{name}.npy", "--weights", name)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "folder.npy"), np.load(tmp_path / "w.safetensors.npy"))
    assert not np.array_equal(np.load(tmp_path / "folder.npy")[0], expected[0])  # control: they have an effect


@pytest.mark.slow
def test_resuming_with_other_columns_weights_or_rows_is_an_error(tmp_path):
    model = inlayer.load("default")
    command = ["embed", "t.csv", "--out", "v.parquet", "--model", "model", "--weights", "w.safetensors"]
    shutil.copytree(Path(inlayer.__file__).parent / "samples" / "default", tmp_path / "model")
    weights, table = tmp_path / "w.safetensors", tmp_path / "model" / "model.safetensors"

    def write(column: str, texts: list[str]) -> None:
        rows = "".join(f"{column}{number},line {number} of a text\n" for number in range(500))
        (tmp_path / "t.csv").write_text(f"id,text\n{rows}")
        inlayer.Weighting.fit(model, texts).save(weights)

    def resume() -> str:
        with start(tmp_path, *command) as process:
            error = process.communicate(timeout=TIMEOUT)[1]
        assert (process.returncode, (tmp_path / "v.parquet").exists()) == (2, False)
        return error

    write("a", ["one text", "two texts"])
    with start(tmp_path, *command, seconds=0.1) as process:
        assert process.stdout.readline() == "part\n"
        assert process.stdout.readline() == "part\n"
        process.kill()
    before = weights.read_bytes()
    write("a", ["others", "three of them", "here"])
    assert "with different arguments" in resume()
    weights.write_bytes(before)
    rows = load_file(table)
    save_file({name: np.zeros_like(value) for name, value in rows.items()}, table)
    assert "with different arguments" in resume()
    save_file(rows, table)
    write("b", ["one text", "two texts"])
    weights.write_bytes(before)
    assert "the input has changed since the interrupted run" in resume()


@pytest.mark.slow
def test_two_runs_do_not_write_the_same_output(tmp_path):
    write_lines(tmp_path)
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy", seconds=60) as process:
        assert process.stdout.readline() == "part\n"
        with start(tmp_path, "embed", "lines.txt", "--out", "v.npy") as second:
            assert "another inlayer embed process is writing this output" in second.communicate(timeout=TIMEOUT)[1]
        process.kill()


@pytest.mark.slow
def test_full_disk_is_one_line_and_can_be_resumed(tmp_path):
    texts = write_lines(tmp_path)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # noqa: E731
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy", preexec_fn=limit) as process:
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2  # the parts are small enough, the whole is not
    assert err == "inlayer: v.npy cannot be written: File too large\n"
    assert not (tmp_path / "v.npy").exists()
    with start(tmp_path, "embed", "lines.txt", "--out", "v.npy") as process:
        printed, _ = process.communicate(timeout=TIMEOUT)
    assert "part" not in printed
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), inlayer.load("default").encode(texts))
    with pytest.raises(OSError, match="No space left on device"):
        outputs.write_part(Path("/dev/full"), ".npy", [], np.zeros((2, 3), np.float32))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path):
    peaks = []
    for megabytes in (4, 32):
        with (tmp_path / "lines.txt").open("w") as file:
            for number in range(megabytes * 4000):
                file.write(f"{number} {'dogs and cats ' * 18}\n")
        code = (
            "import sys\nfrom inlayer.encoding import resumable_job\nresumable_job.PART_BYTES = 2**20\n"
            "from inlayer.cli import main\n"
            f"sys.argv = ['inlayer', 'embed', 'lines.txt', '--out', 'v{megabytes}.npy', '--dim', '4']\n"
            "try:\n    main()\nfinally:\n    w = open('/proc/self/status').read().split()\n"
            "    print(w[w.index('VmHWM:') + 1])"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < peaks[0] + 100_000  # kilobytes; the whole input would add more than twice that


@pytest.mark.parametrize("kind", ["long.parquet", "long.csv"])
def test_tables_of_long_texts_are_read_a_few_rows_at_a_time(run, tmp_path, monkeypatch, kind):
    texts = [f"{number} {'dogs and cats ' * 40}" for number in range(300)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "long.parquet", row_group_size=100, use_dictionary=False)
    (tmp_path / "long.csv").write_text("\n".join(["text", *texts]))
    monkeypatch.setattr(reader_module, "ROWS_BYTES", 10_000)
    reader = reader_module.Reader(
        [tmp_path / kind], field=None, per_file=False, on_bad_row=pytest.fail, keep_columns=False
    )
    sizes = [sum(map(len, rows.texts)) for rows in reader]
    assert max(sizes) < 12_000
    assert sum(sizes) == sum(map(len, texts))
    assert run("embed", kind, "--out", "v.npy")[0] == 0
    np.testing.assert_array_equal(np.load("v.npy"), inlayer.load("default").encode(texts))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["lines.txt", "--out", "t.npy"], "--engine ray reads only .parquet files, not lines.txt"),
        (["lines.txt"], "--engine ray requires an output file; specify it with --out"),
    ],
)
def test_ray_needs_parquet_files_and_an_output(run, tmp_path, given, problem):
    write_lines(tmp_path, 2)
    assert run("embed", *given, "--engine", "ray") == (2, "", f"inlayer: {problem}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_an_output_is_replaced_only_if_asked(run, tmp_path, expected):
    (tmp_path / "v.npy").write_bytes(b"precious")
    (tmp_path / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    assert run("embed", "latin.txt", "--out", "v.npy", "--overwrite")[0] == 2
    assert (tmp_path / "v.npy").read_bytes() == b"precious"
    for _ in range(2):
        assert run("embed", "I love dogs", "--out", "v.npy", "--overwrite")[0] == 0
    np.testing.assert_array_equal(np.load("v.npy"), expected[:1])


def test_any_text_file_can_be_named_and_other_files_of_a_folder_are_reported(run, tmp_path, expected):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/notes.md").write_text("I love dogs\n")
    (tmp_path / "a/LICENSE").write_text("seven days\n")
    for inputs in (["a/notes.md", "a/LICENSE"], ["a/*.md", "a/LICENSE"]):
        assert run("embed", *inputs, "--out", "v.npy", "--overwrite") == (
            0,
            "v.npy: 2 x 128 float32 from 2 files\n",
            "",
        )
        np.testing.assert_array_equal(np.load("v.npy"), expected[[0, 4]])
    (tmp_path / "a/b.txt").write_text("I love dogs\n")
    note = "note: 2 files skipped: unknown suffix, such as a/LICENSE; to read a file as text, name it explicitly\n"
    for inputs in ("a", "a/*"):
        code, out, err = run("embed", inputs, "--out", "v.npy", "--overwrite")
        assert (code, out, err) == (0, "v.npy: 1 x 128 float32\n", note)
    assert "a/L* matches no files to read: .txt, .jsonl" in run("embed", "a/L*", "--out", "w.npy")[2]


def test_empty_texts_and_files_are_counted(run, tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n\ntwo\n")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.csv").write_text("text\n")
    code, out, err = run("embed", "a.txt", "b.txt", "c.csv", "--out", "v.npy")
    assert (code, out) == (0, "v.npy: 4 x 128 float32 from 3 files, 2 empty texts (all zeros)\n")
    assert err == "note: 2 files without text: b.txt, c.csv\n"
    assert not np.load("v.npy")[1:3].any()
    assert json.loads(run("embed", "a.txt", "--out", "w.npy", "--json")[1])["empty"] == 2


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
def test_weights_can_be_fitted_to_the_input(run, tmp_path, kind):
    texts = write_lines(tmp_path, 20)
    model = inlayer.load("default")
    with (tmp_path / "lines.txt").open("ab") as file:
        file.write(b"caf\xe9\n")  # a bad row is reported once
    embed = ["embed", "lines.txt", "--weights", "sif", "--on-error", "skip", "--out", f"v{kind}"]
    code, _, err = run(*embed)
    assert (code, err.count("\n")) == (0, 1)
    weighting = inlayer.Weighting.fit(model, texts, remove_components=0)
    vectors = np.load("v.npy") if kind == ".npy" else np.array(pq.read_table("v.parquet")["embedding"].to_pylist())
    np.testing.assert_array_equal(vectors, model.encode(texts, weights=weighting))
    assert not np.allclose(vectors, model.encode(texts))  # control: the weights have an effect
    search = ["search", texts[7], "--in", f"v{kind}", "--json", "-k", "1"]
    row = json.loads(run(*search, *["--weights", "sif"] * (kind == ".npy"))[1])["rows"][0]
    assert (row["row"], row["score"]) == (7, pytest.approx(1, abs=1e-6))


def test_texts_are_tokenized_once_to_fit_the_weights(run, tmp_path, monkeypatch):
    texts, tokenized, all_ids = write_lines(tmp_path, 20), [], Encoder.all_ids
    monkeypatch.setattr(Encoder, "all_ids", lambda self, batch: tokenized.extend(batch) or all_ids(self, batch))
    assert run("embed", "lines.txt", "--weights", "sif", "--out", "v.npy")[0] == 0
    assert tokenized == texts + texts  # the second time for the vectors


# ---- search


@pytest.mark.parametrize("name", ["nosuchdir/", "folder/*.log", "report.docx", "*.log", "/data/a b", "../x y", "a/b"])
def test_a_missing_path_is_not_a_text(run, name):
    message = f"inlayer: {name}: not found; to embed it as text, pass it on standard input (-)\n".replace("r/:", "r:")
    assert run("embed", name, "--out", "v.npy") == (2, "", message)


@pytest.mark.parametrize(
    "text", ["this and/or that", "U.S.", "3.14", "what?", "Why not?", "a.b", "[1]", "e.g. this", "wait..."]
)
def test_a_text_with_signs_of_a_path_is_a_text(run, text):
    assert run("embed", text, "--out", "v.npy")[0] == 0


def test_one_word_that_is_no_file_is_noted(run):
    assert run("embed", "corpus", "--out", "v.npy")[2] == "'corpus' is not a file; it was embedded as text\n"
    assert run("embed", "two words", "--out", "w.npy")[2] == ""
    assert run("search", "corpus", "--in", "v.npy", "--model", "default")[2] == ""


def test_a_truncated_array_is_explained(run, tmp_path):
    assert run("embed", "two words", "--out", "v.npy")[0] == 0
    data = Path("v.npy").read_bytes()
    for size in (90, len(data) - 8):
        Path("cut.npy").write_bytes(data[:size])
        code, _, err = run("search", "x", "--in", "cut.npy")
        assert code == 2
        assert err.endswith("; was the download cut short?\n")


def test_invalid_json_has_one_line_number(run, tmp_path):
    Path("bad.jsonl").write_text('{"text": "a"}\n{x\n')
    err = run("embed", "bad.jsonl", "--out", "v.npy")[2]
    assert "bad.jsonl, line 2: not valid JSON (Expecting property name enclosed in double quotes at column 2)" in err


def test_one_word_is_searched_as_in_running_text(run, tmp_path):
    (tmp_path / "lines.txt").write_text("hello there\nthe king sat in his palace\na small pet\ngood morning\n")
    assert run("embed", "lines.txt", "--out", "v.parquet")[0] == 0
    for word, line in (("pet", "a small pet"), ("king", "the king sat in his palace")):
        assert json.loads(run("search", word, "--in", "v.parquet", "--json")[1])["rows"][0]["text"] == line
    code, out, err = run("search", "pet", "--in", "v.parquet", "--model", "minilm")
    assert (code, out) == (2, "")
    assert "v.parquet was created with model 'default', but the table of minilm has a different size" in err


def test_search_notices_a_moved_model_and_a_changed_weighting(run, tmp_path):
    model = inlayer.load("default")
    weights = inlayer.Weighting.fit(model, TEXTS).save(tmp_path / "w.safetensors")
    assert run("embed", *TEXTS, "--weights", "w.safetensors", "--out", "v.safetensors")[0] == 0
    search = ["search", "I love cats", "--in", "v.safetensors"]
    assert run(*search)[2] == ""
    inlayer.Weighting.fit(model, TEXTS, remove_components=2).save(weights)
    code, _, err = run(*search)
    assert code == 0
    assert err.startswith("note: v.safetensors was created with a different version of the model or the weighting, ")
    weights.rename(tmp_path / "moved.safetensors")
    assert run(*search)[::2] == (
        2,
        "inlayer: w.safetensors: not found; if the model or weights that created v.safetensors were moved, pass "
        "--model or --weights\n",
    )


def test_one_word_also_finds_itself(run, tmp_path):
    (tmp_path / "w.txt").write_text("hello\ndog\nHello there\n dog\n")
    assert run("embed", "w.txt", "--out", "v.parquet")[0] == 0
    rows = json.loads(run("search", "dog", "--in", "v.parquet", "-k", "3", "--json")[1])["rows"]
    assert {(row["row"], round(row["score"], 6)) for row in rows[:2]} == {(1, 1.0), (3, 1.0)}
    assert len({row["row"] for row in rows}) == 3


def test_an_empty_query_is_rejected(run):
    assert run("search", " ", "--in", "v.npy") == (2, "", "inlayer: the query is empty; specify a text to search for\n")


@pytest.mark.parametrize("kind", [".npy", ".safetensors", ".parquet", ".jsonl"])
def test_search_equals_a_plain_computation(run, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(resumable_job, "PART_BYTES", 128 * 4 * 100)
    texts = write_lines(tmp_path, 500)
    assert run("embed", "lines.txt", "--out", f"v{kind}")[0] == 0
    code, out, err = run("search", "line 77 of a text", "--in", f"v{kind}", "-k", "3", "--json")
    assert code == 0
    note = f"note: v{kind} does not record its model; searched with --model default"
    assert (err.count(note), err.count("\n")) == ((kind in {".npy", ".jsonl"},) * 2)
    assert run("search", "line 77 of a text", "--in", f"v{kind}", "--model", "default", "--pool", "mean")[2] == ""
    vectors = inlayer.load("default").encode(texts, normalize=True).astype(np.float64)
    order = np.argsort(-(vectors @ vectors[77]), kind="stable")[:3]
    rows = json.loads(out)["rows"]
    assert [row["row"] for row in rows] == order.tolist()
    assert rows[0]["score"] == pytest.approx(1.0, abs=1e-6)
    assert rows[0]["text"] == ("line 77 of a text" if kind in {".parquet", ".jsonl"} else None)
    assert run("search", "line 77 of a text", "--in", f"v{kind}", "-k", "1")[1].splitlines()[1].split()[:2] == [
        "1.000",
        "77",
    ]


def test_search_uses_the_settings_of_the_file(run, tmp_path):
    write_lines(tmp_path, 50)
    assert run("embed", "lines.txt", "--out", "v.parquet", "--pool", "max", "--dim", "9", "--model", "minilm")[0] == 0
    rows = json.loads(run("search", "line 7 of a text", "--in", "v.parquet", "-k", "1", "--json")[1])["rows"]
    assert (rows[0]["row"], round(rows[0]["score"], 5)) == (7, 1.0)
    code, _, err = run("search", "line 7 of a text", "--in", "v.parquet")
    assert (code, err) == (0, "")
    np.save("cut.npy", np.ones((3, 9), np.float32))  # of another model, or cut: only its maker knows
    code, _, err = run("search", "line 7 of a text", "--in", "cut.npy")
    assert (code, err.count("\n")) == (0, 2)
    assert "note: cut.npy has vectors of 9 values, so only that many of the 128 values of default are compared" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npy", "missing.npy: not found"),
        ("bad.npy", "bad.npy is not a .npy file of numbers"),
        ("flat.npy", "flat.npy is not an array of vectors"),
        ("wide.npy", "wide.npy has vectors of 500 values, but default has 128"),
        ("bad.safetensors", "not a readable safetensors file"),
        ("bad.parquet", "bad.parquet is not a readable Parquet file"),
        ("plain.parquet", "plain.parquet has no column 'embedding' of vectors"),
        ("v.txt", "v.txt cannot be searched"),
        ("nan.npy", "nan.npy has no usable vectors"),
        ("empty.jsonl", "empty.jsonl is empty"),
        (
            "plain.jsonl",
            "plain.jsonl, line 1: needs numbers in the field 'embedding'; write the file with inlayer embed",
        ),
        ("short.jsonl", "short.jsonl, line 2: needs 128 numbers in the field 'embedding'"),
    ],
)
def test_bad_files_to_search(run, tmp_path, name, message):
    for bad in ("bad.npy", "bad.safetensors", "bad.parquet", "v.txt"):
        (tmp_path / bad).write_bytes(b"\x93NUMPY nonsense" * 3)
    np.save(tmp_path / "flat.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "wide.npy", np.zeros((3, 500), np.float32))
    np.save(tmp_path / "nan.npy", np.full((3, 128), np.nan, np.float32))
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "plain.parquet")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "plain.jsonl").write_text('{"text": "a"}\n')
    lines = (json.dumps({"text": "a", "embedding": [1] * size}) for size in (128, 1))
    (tmp_path / "short.jsonl").write_text("\n".join(lines))
    code, out, err = run("search", "dogs", "--in", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_lines_of_a_record_with_a_bad_quote_are_named(run, tmp_path):
    rows = [f"{number},text {number}" for number in range(50)]
    (tmp_path / "q.csv").write_text("\n".join(["id,text", *rows[:9], '9,"unclosed', *rows[10:]]) + "\n")
    code, out, err = run("embed", "q.csv", "--out", "v.npy", "--on-error", "skip")
    assert (code, out) == (0, "v.npy: 9 x 128 float32, 1 bad record skipped\n")
    assert err == (
        "skipped q.csv, lines 11 to 51: a quote is not closed, so the rest of the file is one record; close it, or "
        'write "" for a quote in a field\n'
    )


@pytest.mark.parametrize("file", ["a.txt", "a.jsonl", "a.csv", "quoted.csv"])
def test_line_that_is_too_long_is_skipped_and_reported(file, run, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_TEXT_BYTES", 50)
    monkeypatch.setattr(lines, "READ_BYTES", 16)
    texts = ["one", "x" * 500, "y" * 51, "two"]
    written = {".txt": texts, ".jsonl": [json.dumps({"text": text}) for text in texts], ".csv": ["text", *texts]}
    content = "\n".join(written[Path(file).suffix])
    (tmp_path / file).write_text(
        content.replace("xxx\n", 'xxx"\n').replace("\nxxx", '\n"xxx') if "q" in file else content
    )
    code, out, err = run("embed", file, "--out", "v.npy", "--on-error", "skip")
    assert (code, out) == (0, "v.npy: 2 x 128 float32, 2 bad records skipped\n")
    first = 3 if file.endswith(".csv") else 2
    start = [f"skipped {file}, line {line}: more than 67,108,864 bytes" for line in (first, first + 1)]
    assert [line[: len(start[0])] for line in err.splitlines()] == start
    np.testing.assert_array_equal(np.load("v.npy"), inlayer.load("default").encode(["one", "two"]))
    assert run("embed", file, "--out", "w.npy")[0] == 2


def test_bad_value_in_another_column_is_named(run, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,text,note\n1,fine,\xe9\n")
    assert "a.csv, line 2: column 'note' is not valid UTF-8" in run("embed", "a.csv", "--out", "v.jsonl")[2]
    bad = pa.array([b"\xe9"]).view(pa.string())
    pq.write_table(pa.table({"text": ["fine"], "note": bad}), tmp_path / "a.parquet")
    problem = "column 'note' cannot be stored as JSON: 'utf-8' codec can't decode byte 0xe9"
    assert problem in run("embed", "a.parquet", "--out", "v.jsonl")[2]
    assert run("embed", "a.parquet", "--out", "v.parquet")[0] == 0  # as the message suggests


@pytest.mark.parametrize(
    ("kind", "content", "where"),
    [
        ("txt", "dog\ncat\nfox\n", "line 2"),
        ("jsonl", '{"text": "dog", "id": 1}\n\n{"text": "cat", "id": 2}\n{"text": "fox", "id": 3}\n', "line 3"),
        ("csv", "text,id\ndog,1\ncat,2\nfox,3\n", "line 3"),
        ("parquet", "", "row 1"),
    ],
)
def test_text_that_the_model_cannot_encode_is_a_bad_row(two_words, kind, content, where, run, tmp_path):
    name = f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": ["dog", "cat", "fox"], "id": ["1", "2", "3"]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(content)
    for arguments in (("--out", "v.jsonl"), ()):
        code, _, err = run("embed", name, *arguments, "--model", "m")
        assert (code, err.count("\n"), (tmp_path / "v.jsonl").exists()) == (2, 1, False)
        assert err.startswith(f"inlayer: {name}, {where}: m/tokenizer.json cannot encode this text")
        assert "--on-error skip" in err
    code, out, err = run("embed", name, "--model", "m", "--on-error", "skip", "--out", "v.jsonl")
    assert (code, out) == (0, "v.jsonl: 2 x 2 float32, 1 bad record skipped\n")
    assert err.startswith(f"skipped {name}, {where}: m/tokenizer.json cannot encode this text")
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [(row["text"], row["embedding"]) for row in rows] == [("dog", [1, 2]), ("fox", [3, 4])]
    if kind != "txt":
        assert [str(row["id"]) for row in rows] == ["1", "3"]


def test_input_of_bad_rows_only_has_no_texts(two_words, run, tmp_path):
    code, _, err = run("embed", "a cat", "a bird", "--model", "m", "--on-error", "skip", "--out", "v.npy")
    assert (code, err.splitlines()[-1]) == (2, "inlayer: the input contains no text")
    assert [line.split(":")[0] for line in err.splitlines()[:-1]] == ["skipped text 1", "skipped text 2"]
    assert not [*tmp_path.glob(".v.npy*"), *tmp_path.glob("v.npy")]


@pytest.mark.parametrize("kind", ["npy", "safetensors", "parquet", "jsonl"])
def test_interrupted_run_that_skips_rows_resumes(two_words, kind, run, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("cat\ndog\ncat\nfox\ndog\ncat\n")
    command = ("embed", "a.txt", "--model", "m", "--on-error", "skip", "--out")
    whole = run(*command, f"whole.{kind}")
    monkeypatch.setattr(resumable_job, "PART_BYTES", 1)  # a part per row
    calls = iter(range(100))

    def write_part(*arguments):
        if next(calls) == interrupted_at:
            raise KeyboardInterrupt
        outputs.write_part(*arguments)

    monkeypatch.setattr(resumable_job, "write_part", write_part)
    interrupted_at = 3
    assert run(*command, f"v.{kind}")[0] == 130
    assert not (tmp_path / f"v.{kind}").exists()
    assert run(*command, f"v.{kind}")[0] == whole[0] == 0
    if kind == "parquet":
        assert pq.read_table(tmp_path / "v.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))
    else:
        assert (tmp_path / f"v.{kind}").read_bytes() == (tmp_path / f"whole.{kind}").read_bytes()


@pytest.mark.parametrize("change", ["normalizer", "vocabulary"])
def test_changed_tokenizer_is_noticed(two_words, change, run, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    (tmp_path / "a.txt").write_text("dog\nfox\n")
    command = ("embed", "a.txt", "--model", "m", "--out")
    assert run(*command, "v.safetensors")[0] == 0
    assert "other values" not in run("search", "dog", "--in", "v.safetensors")[2]
    with monkeypatch.context() as patch:
        patch.setattr(resumable_job, "join_parts", interrupt)
        assert run(*command, "w.npy")[0] == 130
    vocabulary = {"dog": 0, "fox": 1} if change == "normalizer" else {"dog": 1, "fox": 0}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    if change == "normalizer":
        tokenizer.normalizer = Replace("d", "f")
    tokenizer.save(str(two_words / "tokenizer.json"))
    assert "an interrupted run with different arguments" in run(*command, "w.npy")[2]
    assert "was created with a different version of the model" in run("search", "fox", "--in", "v.safetensors")[2]


def test_folder_of_another_program_is_never_removed(run, tmp_path):
    folder = tmp_path / ".v.npy.part"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    code, _, err = run("embed", "a text", "--out", "v.npy")
    assert (code, err.count("\n")) == (2, 1)
    assert ".v.npy.part was not created by inlayer embed: it contains thesis.tex; choose another --out, or move" in err
    assert (folder / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_json_output_is_json(run, tmp_path):
    pq.write_table(pa.table({"text": ["a", "NaN"], "value": [float("nan"), 1.0]}), tmp_path / "p.parquet")
    assert run("embed", "p.parquet", "--out", "v.jsonl")[0] == 0
    rows = [json.loads(line, parse_constant=pytest.fail) for line in Path("v.jsonl").read_text().splitlines()]
    assert [(row["text"], row["value"]) for row in rows] == [("a", None), ("NaN", 1.0)]
    (tmp_path / "n.jsonl").write_text('{"text": "a", "value": NaN}\n')
    assert run("embed", "n.jsonl", "--out", "n.npy")[2].startswith(
        "inlayer: n.jsonl, line 1: not valid JSON (NaN is not"
    )
    (tmp_path / "n.jsonl").write_text('{"text": "a", "value": 1e999}\n')  # Python reads infinity, which is not JSON
    assert run("embed", "n.jsonl", "--out", "n.npy")[2].startswith(
        "inlayer: n.jsonl, line 1: the number 1e999 is too large for float64"
    )


def test_links_are_not_replaced_and_not_followed_in_circles(run, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.txt").write_text("one\n")
    (tmp_path / "d/loop").symlink_to(tmp_path / "d")
    assert run("embed", "d/**/*.txt", "--out", "v.npy")[1] == "v.npy: 1 x 128 float32\n"
    (tmp_path / "link.npy").symlink_to("nowhere.npy")
    assert "link.npy already exists" in run("embed", "one", "--out", "link.npy")[2]
    assert (tmp_path / "link.npy").is_symlink()


def test_a_whole_file_has_no_byte_order_mark(run, tmp_path, expected):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfI love dogs")
    assert run("embed", "a.txt", "--per-file", "--out", "v.npy")[0] == 0
    np.testing.assert_array_equal(np.load("v.npy"), expected[:1])
