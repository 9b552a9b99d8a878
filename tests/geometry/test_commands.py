"""The commands neighbors, analogy, map, compare and evaluate: output, JSON, files and errors."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from safetensors.numpy import save_file

import inlayer
from inlayer.checkpoint.model import Model
from inlayer.cli import main
from inlayer.geometry import map_page
from inlayer.geometry.projection import TableProjection

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run_here(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["inlayer", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run_here


def test_neighbors(run: Run) -> None:
    code, out, _ = run("neighbors", "seven", "-k", "3")
    assert code == 0
    assert out.endswith('"default" is for demonstration only. For useful results, try --model wordllama.\n')
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["nearest", "to", "seven", "id", "cosine"],
        ["␣five", str(inlayer.load("default").neighbors("seven", 1)[0].id), "0.780"],
    ]
    code, out, _ = run("neighbors", "seven", "-k", "3", "--json")
    expected = [one._asdict() for one in inlayer.load("default").neighbors("seven", 3)]
    assert json.loads(out) == {"query": "seven", "neighbors": expected}
    code, out, _ = run("neighbors", "--id", "1988", "--words-only", "--head", "-k", "2")
    assert "␣prince" in out
    assert "is 2 tokens" not in out
    _, out, _ = run("neighbors", "qqzzz", "-k", "1")  # this is not a word; the output says what was searched instead
    assert "qqzzz is split into 4 tokens; the mean of their rows was used: q q zz z" in out


def test_neighbors_says_why_there_are_none(run: Run, tmp_path: Path) -> None:
    assert run("neighbors", "king", "--unicode-script", "Cherokee")[:2] == (
        0,
        "no other token matches --unicode-script Cherokee\n",
    )
    assert (
        "matches --words-only --unicode-script Cherokee"
        in run("neighbors", "king", "--words-only", "--unicode-script", "Cherokee")[1]
    )
    save_file({"model.embed_tokens.weight": np.ones((1, 4), np.float32)}, tmp_path / "model.safetensors")
    file = str(tmp_path / "model.safetensors")
    assert run("neighbors", "--id", "0", "--model", file)[1] == "no other row is nonzero and finite\n"


def test_narrow_terminal_and_pipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = run("analogy", "king - man + woman", "-k", "2")[1].splitlines()
        assert lines == [line.rstrip() for line in lines]
        assert max(map(len, lines)) <= int(columns)
        assert "…" not in "".join(lines)
        assert ("␣mother              0.504" in lines) == (columns == "40")  # one list after the other
        assert lines.count("") == (2 if columns == "40" else 0)  # with a blank line between two


def test_sentencepiece_marks_are_shown_as_spaces_and_kept_in_json(run: Run) -> None:
    assert "␣King  " in run("neighbors", "king", "--model", "wordllama", "-k", "1")[1]
    out = run("neighbors", "king", "--model", "wordllama", "-k", "1", "--json")[1]
    assert json.loads(out)["neighbors"][0]["text"] == "▁King"


def test_analogy(run: Run) -> None:
    code, out, _ = run("analogy", "father", "-", "man", "+", "woman", "-k", "2", "--words-only")
    assert code == 0
    assert "father alone  cosine" in out
    assert "the arithmetic added nothing" in out  # here, it is similarity alone
    _, out, _ = run("analogy", "king - man + woman", "--words-only")
    assert "The arithmetic changed the top answer" in out
    assert "For useful results, try --model wordllama." in out
    assert "New York is split into 2 tokens" in run("analogy", "New York", "-", "city", "+", "country")[1]
    _, out, _ = run("analogy", "king - man + woman", "--json")
    found = json.loads(out)
    assert found["words"] == ["king", "man", "woman"]
    assert [one["id"] for one in found["answers"]] == [
        one.id for one in inlayer.load("default").analogy("king", "man", "woman").answers
    ]


@pytest.mark.slow
def test_map_writes_every_file(run: Run, tmp_path: Path) -> None:
    page, picture, table = tmp_path / "map.html", tmp_path / "map.png", tmp_path / "map.parquet"
    code, written, _ = run("map", "--html", str(page), "--png", str(picture), "--parquet", str(table))
    assert code == 0
    assert "trustworthiness" in written
    points = inlayer.load("default").project("best").points
    columns = pyarrow.parquet.read_table(table)
    # as the help of --parquet names them
    assert columns.column_names == ["id", "text", "x", "y", "neighborhood_preservation"]
    np.testing.assert_array_equal(columns["x"].to_numpy(), points[:, 0])
    assert columns["text"].to_pylist()[1988] == " king"
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "Not shown (zero or non-finite rows): 6142 (&lt;pad&gt;). Click a token" in text
    assert "http" not in text.replace("http-equiv", "").replace("xmlns='http://www.w3.org/2000/svg'", "")  # the icon
    code, out, _ = run("map", "--json")
    facts = json.loads(out)
    assert (facts["rows"], facts["measured_rows"]) == (len(points), 6143)  # saved with the map
    assert f"{facts['mean_preservation']:.1%} of a token's" in " ".join(written.split())  # one number per map
    assert facts["points"][1988] == points[1988].tolist()


def test_map_names_rows_without_a_direction(run: Run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    rows[3], rows[7, 2], rows[9] = np.nan, np.inf, 0
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model.safetensors")
    file = str(tmp_path / "model.safetensors")
    assert "3 rows not shown (zero or non-finite): id 3, 7, 9" in run("map", file, "--method", "pca")[1]
    assert "1 row not shown (zero or non-finite): id 6142 (<pad>)" in run("map", "--method", "pca")[1]
    found = json.loads(run("map", file, "--method", "pca", "--json")[1])
    assert found["omitted_ids"] == [row for row, point in enumerate(found["points"]) if point is None] == [3, 7, 9]
    code, _, error = run("neighbors", "--id", "3", "--model", file)
    assert (code, "row 3 is zero or not finite" in error) == (2, True)


@pytest.mark.parametrize("neighbors", [60_000, 30])
def test_map_page_of_a_table_without_tokenizer(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbors: int
) -> None:
    monkeypatch.setattr(map_page, "MAX_NEIGHBOR_ROWS", neighbors)
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    rows[3] = 0
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model.safetensors")
    page = tmp_path / "map.html"
    assert run("map", str(tmp_path / "model.safetensors"), "--method", "pca", "--html", str(page))[0] == 0
    text = page.read_text()
    assert '<h2 id="token">40 rows</h2>' in text
    assert "Not shown (zero or non-finite rows): 3. " in text
    assert ("Click a token to see its true neighbors." in text) == (neighbors > 40)
    assert ("The table is too large to list the neighbors" in text) == (neighbors < 40)


@pytest.mark.slow
def test_a_picture_labels_words_and_parts_of_words(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    assert run("map", "--png", str(tmp_path / "map.png"))[0] == 0
    points = inlayer.load("default").project("best").points
    labels = figures[0].axes[0].texts
    sides = [sum((label.xy[0] > np.nanmean(points[:, 0])) == right for label in labels) for right in (False, True)]
    assert min(sides) > 60  # parts of words are on the right
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == [*map_page.KINDS]
    shown = np.flatnonzero(np.isfinite(points).all(axis=1)).tolist()
    colors = dict(zip(shown, figures[0].axes[0].collections[0].get_facecolors(), strict=True))
    for token, kind in ((1988, "words"), (2401, "capitalized words")):  # king, London
        assert to_hex(colors[token]) == map_page.kind_colors()[kind]
    canvas = figures[0].canvas
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_picture_has_the_kinds_and_colors_of_a_page() -> None:
    names = json.loads(re.findall(r"TOKEN_KINDS = (\[.+\]);", map_page.map_files("map_labels.js"))[0])
    style = map_page.map_files("map_canvas.css")
    colors = [re.findall(rf"--kind-{kind}: (#\w+);", style)[0] for kind in range(len(names))]
    assert dict(zip(names, colors, strict=True)) == map_page.kind_colors()
    assert {*names} == {*map_page.KINDS}


@pytest.mark.slow
def test_the_faithfulness_of_a_map_does_not_depend_on_what_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = np.random.default_rng(0).standard_normal((1200, 4)).astype(np.float32)
    save_file({"model.embed_tokens.weight": table}, "model.safetensors")
    options = [(), ("--parquet", "map.parquet"), ("--parquet", "all.parquet", "--html", "map.html")]
    found = [json.loads(run("map", "model.safetensors", "--method", "pca", "--json", *more)[1]) for more in options]
    for name in ("mean_preservation", "trustworthiness", "measured_rows"):
        assert found[0][name] == found[1][name] == found[2][name]
    files = [pyarrow.parquet.read_table(name) for name in ("map.parquet", "all.parquet")]
    preserved = [file["neighborhood_preservation"].to_numpy() for file in files]
    assert [int(np.isfinite(shares).sum()) for shares in preserved] == [1000, 1200]  # the page needs every row's share


@pytest.mark.parametrize(("rows", "sampled"), [(1000, False), (1001, True)])
def test_map_prints_names_as_they_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, sampled: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[").mkdir()
    table = np.random.default_rng(0).standard_normal((rows + 1, 4)).astype(np.float32)
    table[5] = 0  # not drawn
    save_file({"model.embed_tokens.weight": table}, "model.safetensors")
    code, out, _ = run("map", "model.safetensors", "--method", "pca", "--parquet", "[/x]:dog:.parquet")
    assert (code, "wrote [/x]:dog:.parquet\n" in out) == (0, True)
    assert ("(measured on 1,000 of the rows)" in " ".join(out.split())) == sampled


def test_compare(run: Run) -> None:
    code, out, _ = run("compare", "default", "default")
    assert code == 0
    assert "6,144 of 6,144 equal" in " ".join(out.split())
    _, out, _ = run("compare", "default", "default", "--json")
    assert json.loads(out)["n_shared"] == 6144


def test_compare_marks_undertrained_rows(run: Run, tmp_path: Path) -> None:
    samples = Path(inlayer.__file__).parent / "samples" / "default"
    rows, undertrained = inlayer.load("default").table.weight.astype(np.float32), 130
    assert undertrained in inlayer.inspect("default").ids("undertrained-tokens")
    rows[1988], rows[2401] = rows[undertrained], -rows[2401]
    shutil.copytree(samples, tmp_path / "model")
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model" / "model.safetensors")
    lines = run("compare", "default", str(tmp_path / "model"))[1].splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["␣London", "␣king"]
    assert [line.endswith("  undertrained in B") for line in lines[-2:]] == [False, True]
    assert "undertrained" not in run("compare", "default", str(tmp_path / "model"), "--json")[1]


def test_compare_names_damaged_rows(run: Run, tmp_path: Path) -> None:
    samples = Path(inlayer.__file__).parent / "samples" / "default"
    rows = inlayer.load("default").table.weight.astype(np.float32)
    rows[812], rows[2401, 3], rows[1988] = np.nan, np.inf, 0
    shutil.copy(samples / "tokenizer.json", tmp_path)
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model.safetensors")
    _, out, _ = run("compare", "default", str(tmp_path))
    assert "3 zero or not finite in A or B" in " ".join(out.split())
    lines = [line.split() for line in out.splitlines()]
    assert ["␣love", "3.71", "NaN"] in lines
    assert ["␣London", "3.09", "infinite"] in lines
    assert ["␣king", "3.42", "0"] in lines
    found = json.loads(run("compare", "default", str(tmp_path), "--json")[1])
    assert [(row["text"], row["cosine"], row["norm_b"]) for row in found["damaged"]] == [
        (" love", "nan", "nan"), (" king", "nan", 0.0), (" London", "nan", "inf")
    ]  # fmt: skip
    save_file({"model.embed_tokens.weight": np.full_like(rows, np.nan)}, tmp_path / "model.safetensors")
    assert json.loads(run("compare", "default", str(tmp_path), "--json")[1])["median_cosine"] == "nan"
    code, out, error = run("compare", "default", str(tmp_path), "--html", str(tmp_path / "page.html"))
    assert (code, "none comparable" in " ".join(out.split()), "a map needs at least 3 rows" in error) == (2, True, True)


@pytest.mark.slow
def test_compare_writes_a_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    code, out, _ = run("compare", "default", "default", "--html", str(page))
    assert code == 0
    assert "wrote " in out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "<dd>6,144 shared, 0 only in A, 0 only in B</dd>" in text
    assert "http" not in text.replace("http-equiv", "").replace("xmlns='http://www.w3.org/2000/svg'", "")  # the icon


def test_evaluate(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("king queen 9\nseven eight 8\nLondon banana 1\n")
    (tmp_path / "questions.txt").write_text(": all\nking man woman queen\n")
    code, out, _ = run(
        "evaluate", "--similarity", str(tmp_path / "pairs.txt"), "--analogies", str(tmp_path / "questions.txt")
    )
    assert code == 0
    assert "Spearman" in out
    assert "too few for a reliable correlation" in out
    assert "nearest to C" in out
    assert "Coverage" in out or "coverage: their share" in out.replace("\n", "")
    _, out, _ = run("evaluate", "--similarity", str(tmp_path / "pairs.txt"), "--json")
    assert json.loads(out)["similarity"][0]["pairs"] == 3


def test_few_pairs_have_no_score(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("king queen 9\nseven eight 8\nLondon banana 1\n")
    assert re.search(r"pairs +3 +67% +- +- +-\n", run("evaluate", "--similarity", str(tmp_path / "pairs.txt"))[1])


def test_only_reasons_that_apply_are_given(run: Run, tmp_path: Path) -> None:
    """Every word has several tokens, so only Spearman of single tokens is missing."""
    lines = [f"xq{number}zv wj{number}kk {number}\n" for number in range(43)]
    (tmp_path / "pairs.txt").write_text("".join(lines))
    printed = " ".join(run("evaluate", "--similarity", str(tmp_path / "pairs.txt"))[1].split())
    assert re.search(r"pairs 43 0% - -?\d\.\d+ -?\d\.\d+ ", printed)
    assert "0 of 43 pairs have only single-token words; at least 30 are needed for Spearman (-)." in printed
    assert "too few" not in printed
    assert "not defined" not in printed
    (tmp_path / "pairs.txt").write_text("".join(lines[:5]))
    printed = " ".join(run("evaluate", "--similarity", str(tmp_path / "pairs.txt"))[1].split())
    assert "pairs: 5 pairs are too few for a reliable correlation (-); at least 30 are needed." in printed
    assert "not defined" not in printed
    (tmp_path / "pairs.txt").write_text("seven seven 1\n" * 40)
    printed = " ".join(run("evaluate", "--similarity", str(tmp_path / "pairs.txt"))[1].split())
    assert "pairs: a correlation is not defined (-)" in printed  # control


def test_tied_head_is_noted(run: Run) -> None:
    note = "The head is tied to the input table"
    for arguments in (["neighbors", "seven"], ["analogy", "king - man + woman"]):
        assert note in run(*arguments, "--head")[1]
        assert note not in run(*arguments)[1] + run(*arguments, "--head", "--json")[1]


def test_evaluate_without_files_is_a_smoke_test(run: Run) -> None:
    code, out, _ = run("evaluate")
    assert (code, out.startswith("A smoke test on a few built-in words, not a benchmark.")) == (0, True)
    found = json.loads(run("evaluate", "--json")[1])
    (score,) = found["similarity"]
    assert (score["pairs"], score["coverage"]) == (43, pytest.approx(1, abs=0.2))
    assert score["spearman"] > 0.5 > abs(score["random_baseline"])
    assert [answers["questions"] for answers in found["analogies"]] == [5, 6, 11]


def test_scores_must_be_finite(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("king queen 9\nseven eight nan\n")
    code, _, error = run("evaluate", "--similarity", str(tmp_path / "pairs.txt"))
    assert (code, "pairs.txt, line 2: expected two words and a number" in error) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["neighbors"], "specify a word or a text, such as seven, or a token id, such as --id 812"),
        (["neighbors", "a", "--id", "3"], "a word and --id 3 are given; specify only one of them"),
        (["neighbors", ""], "the query is empty; pass a word, a text, or a token id"),
        (["neighbors", "--id", "abc"], "--id is 'abc'; it must be an integer"),
        (["neighbors", "--id", "99999999"], "must be in 0..6143"),
        (["neighbors", "a", "--unicode-script", "Klingon"], "script 'Klingon' is unknown"),
        (["analogy", "king", "-man", "+woman"], "write an analogy as A - B + C, with spaces around - and +"),
        (["map", "--method", "umap"], "it must be one of 'best', 'pca', 'tsne'"),
        # an output is checked before a model is opened
        (["map", "no/such/model", "--html", "missing/folder/map.html"], "cannot be written"),
        (["map", "no/such/model", "--parquet", "missing/folder/map.parquet"], "cannot be written"),
        (["compare", "default", "./nothing"], "./nothing: not found"),
        (["compare", "no/such", "default", "--html", "missing/folder/a.html"], "cannot be written"),
        (["inspect", "no/such/model", "--html", "missing/folder/a.html"], "cannot be written"),
        (["evaluate", "--similarity", "nothing.txt"], "nothing.txt: not found"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_interrupted_map_is_written_with_a_sample_and_exits_with_130(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = np.random.default_rng(0).standard_normal((6144, 2), np.float32)
    points[6142] = np.nan  # a row of zeros
    partial = TableProjection("tsne", points, complete=False)
    monkeypatch.setattr(Model, "project", lambda *_, **__: partial)
    page = tmp_path / "map.html"
    code, out, err = run("map", "--method", "tsne", "--html", str(page))
    assert (code, err) == (130, "")
    assert "(measured on 1,000 of the rows)" in " ".join(out.split())
    assert page.read_text().startswith("<!doctype html>")


def test_an_interrupt_before_there_is_a_map(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "project", stop)
    page = tmp_path / "map.html"
    assert run("map", "--html", str(page)) == (130, "", "stopped before a map was computed\n")
    assert not page.exists()


def test_advice_for_a_model_without_a_tokenizer_names_options(run: Run, tmp_path: Path) -> None:
    folder = Path(inlayer.__file__).parent / "samples" / "default"
    for name in ("model.safetensors", "config.json"):
        shutil.copy(folder / name, tmp_path / name)
    assert "--tokenizer FOLDER" in run("walk", "Hi", "--model", str(tmp_path))[2]
    assert run("neighbors", "king", "--model", str(tmp_path))[2].endswith("look up a token with --id\n")


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"model_type": "martian"}, "(docs/families.md lists all "),
        ({"vocab_size": 256}, "supported types (docs/families.md). To"),
        ({"model_type": "llama", "hidden_size": -1}, "hidden_size"),
    ],
)
def test_walk_and_serve_advise_other_commands_for_an_unknown_model_type(
    run: Run, tmp_path: Path, fields: dict[str, object], advice: str
) -> None:
    save_file({"foo.embed.weight": np.ones((256, 4), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    walk = ("walk", "hi", "--model", str(tmp_path), "--tokenizer", "bytes")
    for error in (run(*walk)[2], run("serve", "--model", str(tmp_path))[2]):
        assert advice in error
        assert error.endswith(". To read its table: inlayer inspect, neighbors, or map\n")
        assert "inlayer." not in error
        assert len(error) < 250


def test_evaluate_of_rows_or_models_that_cannot_be_scored(run: Run, tmp_path: Path) -> None:
    samples = Path(inlayer.__file__).parent / "samples" / "default"
    rows = inlayer.load("default").table.weight.astype(np.float32)
    rows[1988, 3], rows[812, 3] = np.inf, -np.inf  # king, love
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model.safetensors")
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("king queen 9\nkinglove eight 8\nLondon banana 1\n")
    arguments = "evaluate", str(tmp_path), "--similarity", str(pairs)
    assert run(*arguments)[2].endswith("put one next to the weights\n")  # evaluate looks up nothing but words
    shutil.copy(samples / "tokenizer.json", tmp_path)
    _, out, error = run(*arguments)
    assert error == ""
    assert "pairs: a correlation is not defined (-) if" in " ".join(out.split())


def test_a_missing_list_of_pairs(run: Run) -> None:
    assert run("evaluate", "--similarity", "nope.txt")[2] == "inlayer: nope.txt: not found\n"
