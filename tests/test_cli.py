"""The command line as a user runs it: valid, unusual and invalid input, with and without pipes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.main import get_command

import inlayer
from inlayer.cli import main
from inlayer.cli.app import app
from inlayer.cli.messages import error_message
from inlayer.errors import InputError


@dataclass
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run the command line in this process."""

    def run_here(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["inlayer", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        return Done(int(stopped.value.code or 0), captured.out, captured.err)

    return run_here


Run = Callable[..., Done]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train /nosuch", "/nosuch: not found"),
        ("train --tokenizer /nosuch", "/nosuch: not found"),
        ("train --out /nosuch --resume", "/nosuch contains no run to resume"),
        ("train --out {file}", "cannot start a run in {file}"),
        ("walk --embeds /nosuch.npy", "/nosuch.npy: not found"),
        ("walk --embeds {file}", "{file} is not a .npy file"),
        ("walk --tokenizer /nosuch", "/nosuch: not found"),
        ("walk --model /nosuch/model", "/nosuch/model"),
    ],
)
def test_wrong_path_is_reported_before_torch_is_imported(arguments: str, words: str) -> None:
    given = [sys.executable, "-c", BLOCKED_TORCH, *arguments.format(file=__file__).split()]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words.format(file=__file__) in done.stderr
    assert "torch" not in done.stderr


BLOCKED_TORCH = """
import sys
sys.modules["torch"] = None  # importing it is an error
from inlayer.cli import main
main()
"""


def test_command_names(run: Run) -> None:
    run("--help")  # imports every command
    names = {command.callback.__name__ for command in app.registered_commands}
    meaning = {"neighbors", "analogy", "map_", "compare", "evaluate"}
    assert names == {"walk", "inspect", *meaning, "embed", "search", "serve", "train"}
    assert [group.name for group in app.registered_groups] == ["learn"]  # its subcommands: tests/learn/test_cli.py


def test_no_argument_shows_help(run: Run) -> None:
    done = run()
    assert done.code == 0
    assert "Usage" in done.out
    assert "walk" in done.out


def test_version(run: Run) -> None:
    assert run("--version").out.strip() == f"inlayer {inlayer.__version__}"


@pytest.mark.slow
def test_piped_program_prints_plain_text() -> None:
    done = subprocess.run([sys.executable, "-m", "inlayer", "walk"], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"\x1b[" not in done.stdout  # no color
    assert done.stdout.startswith(b"default (sample: ")  # the output names the model
    assert b"(1, 4, 128)" in done.stdout


def test_invalid_utf8_argument() -> None:
    done = subprocess.run([sys.executable, "-m", "inlayer", "walk", b"\xff\xfe"], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr == b"inlayer: text 1 is not valid UTF-8: byte 0xff at offset 0\n"


@pytest.mark.parametrize("command", [("walk", "--web"), ("serve", "--text")])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ok\udcff", "text 1 is not valid UTF-8: byte 0xff at offset 2"),
        ("a" * 20_000, "the page accepts at most 16 texts with 16,384 characters in total"),
    ],
)
def test_page_rejects_invalid_or_long_texts(command: tuple[str, str], text: str, words: str, run: Run) -> None:
    assert run(*command, text) == Done(2, "", f"inlayer: {words}\n")


def test_json_output(run: Run) -> None:
    trace = json.loads(run("walk", "I love dogs", "Hi", "--json", "--tokenizer", "words").out)
    assert trace["shape"] == [2, 3, 8]
    assert [token["id"] for token in trace["texts"][0]["tokens"]] == [0, 1, 2]
    assert trace["texts"][1]["n_padding"] == 2


def test_json_equals_the_library_result(run: Run) -> None:
    printed = json.loads(
        run("walk", "dogs love dogs", "Hi", "--json", "--dims", "3", "--max-tokens", "2", "--pad", "1").out
    )
    assert printed == inlayer.walk(["dogs love dogs", "Hi"], dims=3, max_tokens=2, pad=1).to_dict()


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "unknown command 'nope'; see inlayer --help"),
        (["learn", "nope"], "unknown command 'nope'; see inlayer learn --help"),
        (["search", "king"], "missing option '--in'; see inlayer search --help"),
        (["walk", "--tokenizer", "nope"], 'specify "words", "bytes", a model folder, or a tokenizer file'),
        (["walk", "--nope"], "--nope"),
        (["walk", "--dims", "0"], "--dims"),
        (["walk", "--width", "wide"], "--width is 'wide'; it must be an integer"),
        (["walk", "--positions", "up"], "--positions is 'up'"),
        (["walk", "--width", "4", "--positions", "up"], "learned"),
        (["walk", "--step", "0"], "--step"),
        (["walk", "--step", "9"], "--step is 9; it must be in 1..8\n"),
        (["evaluate", "--model", "x"], "unknown option --model; see inlayer evaluate --help"),
        (["neighbors", "--wrods-only"], "did you mean --words-only? See inlayer neighbors --help"),
        *(
            ([*arguments], 'to pass a text that starts with "-", write -- before it; see inlayer')
            for arguments in (["neighbors", "-5"], ["search", "-rf", "--in", "x"], ["walk", "-5 degrees"])
        ),
        (["neighbors", "--words"], "unknown option --words; did you mean --words-only? See inlayer neighbors --help"),
        (["neighbors", "--id", "-1"], "--id is -1; it must be at least 0\n"),
        (
            ["neighbors", "New", "York"],
            "unexpected argument: York (quote an argument that contains spaces); see inlayer",
        ),
        (["neighbors", "--k", "3"], "unknown option --k; did you mean -k? See inlayer neighbors --help"),
        (
            ["embed", "--file", "x"],
            "unknown option --file; files are arguments, without an option before them; see inlayer embed --help",
        ),
        (
            ["search", "--query=x"],
            "unknown option --query; the query is an argument, without an option before it; see inlayer search --help",
        ),
        (["map", "nowhere.png"], "minilm, smollm2; did you mean --png nowhere.png?"),
        (["wlak"], "unknown command 'wlak'; did you mean 'walk'? See inlayer --help"),
        (["I love dogs"], "unknown command 'I love dogs'; to see what happens to a text: inlayer walk 'I love dogs'\n"),
        (["it's me"], """unknown command "it's me"; to see what happens to a text: inlayer walk 'it'"'"'s me'\n"""),
        (["analogy"], "missing argument 'A - B + C'; see inlayer analogy --help"),
        (["search"], "missing argument 'query'; see inlayer search --help"),
        (["embed", "--out"], "option '--out' requires an argument; see inlayer embed --help"),
        (["embed", "--normalize=yes"], "option '--normalize' does not take a value; see inlayer embed --help"),
        (["embed", "a", "--dim", "999"], "--dim is 999; it must be at most 128"),
        (["embed", "a", "--dtype", "int4"], "--dtype is 'int4'; it must be one of"),
        (["neighbors", "a", "--unicode-script", "up"], "--unicode-script 'up' is unknown"),
        (["map", "--method", "up"], "--method is 'up'; it must be one of 'best'"),
        (["train", "--n-embd", "30"], "--n-embd 30 is not divisible by --n-head 4"),
        (["train", "--adam-beta1", "1"], "--adam-beta1 is 1.0; it must be a number from 0 to 1, excluding 1"),
        (["train", "n_head.txt"], "n_head.txt: not found"),
        (["walk", "--file", "tests"], "tests is a folder, not a file"),
        (["train", "--preset", "huge"], "--preset is 'huge'; it must be one of 'toy'"),
        (["walk", "--tokenizer", str(Path(__file__).parent)], "is a folder without a tokenizer"),
        (["walk", "--max-tokens", "0"], "--max-tokens"),
        (["walk", "--pad", "-1"], "--pad"),
        (["walk", "--theta", "big"], "--theta is 'big'; it must be a number"),
        (["walk", "--theta", "nan"], "positive"),
        (["walk", "--theta", "-1"], "--theta is -1"),
        (["walk", "--positions", "none", "--theta", "5"], "--theta applies"),
        (["walk", "--swap", "1"], "two tokens"),
        (["walk", "--swap", "1,-2"], "two tokens"),
        (["walk", "--swap", "0,99"], "token 99 cannot be swapped: the first text shows tokens 0 to 3"),
        (["walk", "--swap", "2,2"], "token 2 cannot be swapped with itself; choose two different tokens"),
        (["walk", "--json", "--web"], "choose one"),
        (["walk", "--json", "--html", "x.html"], "choose one"),
        (["walk", "--json", "--step", "2"], "every step"),
        (["walk", "--html", "-", "--max-tokens", "9"], "own limit"),
        (["walk", "--html", ""], "empty"),
        (["walk", "--html", "."], "folder"),
        (["walk", "--html", os.devnull], "not a regular file"),
        (["walk", "--html", "no/such/folder/x.html"], "is not a folder"),
        (["walk", "--html", "x.pdf"], "--html is x.pdf; its suffix must be .html or .htm"),
        (["inspect", "--html", "-"], "--html is -; its suffix must be .html or .htm"),
        (["map", "--png", "x.jpg"], "--png is x.jpg; its suffix must be .png"),
        (["map", "--parquet", "x.csv"], "--parquet is x.csv; its suffix must be .parquet"),
        (["walk", "--file", "no/such"], "not found"),
        (["walk", "--file", "."], "folder"),
        (["walk", "--file", ""], "empty"),
        (["walk", "-", "-"], "once"),
        (["walk", "--embeds", "no/such.npy"], "not found"),
        (["walk", "--embeds", "x.npy", "Hi"], "not both"),
        (["walk", "--embeds", "x.npy", "--html", "-"], "starts with a text"),
        (["walk", "--embeds", "x.npy", "--width", "8"], "random table"),
        (["walk", "--tokenizer", "no/such/file"], "no/such/file"),
        (["walk", "--tokenizer", "no/such\nfile"], "no/such file"),
        (["walk", "--tokenizer", ""], "path"),
        (["walk", "--model", "no/such"], "no/such"),
        (["walk", "--width", "7", "--positions", "rotary"], "--width is 7; rotary positions need an even width"),
        (["walk", "--model", "default", "--width", "4"], "--width is only for a random table"),
        (["walk", "--model", "default", "--seed", "4", "--json"], "--seed is only for a random table"),
    ],
)
def test_invalid_input_is_reported_in_one_line_with_exit_code_2(run: Run, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("inlayer: ")
    assert done.err.count("\n") == 1
    assert message in done.err


@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [
        ("cannot write to runs/learning_rate=0.01", ["train"], "cannot write to runs/learning_rate=0.01"),
        ("learning_rate is 0", ["train"], "--learning-rate is 0"),
        ("seed is -1", ["train", "--seed=-1"], "--seed is -1"),
        ("tokenizer is a folder", ["walk", "--file", "tokenizer"], "tokenizer is a folder"),
        ("the rotary base theta is 0", ["walk"], "the rotary base theta is 0"),
        ("the rotary base theta is -1", ["walk", "--theta", "-1"], "the rotary base --theta is -1"),
    ],
)
def test_errors_name_options_but_change_no_path(message: str, arguments: list[str], expected: str) -> None:
    for name in arguments[:1]:
        import_module(f"inlayer.cli.{name}")
    assert error_message(InputError(message), arguments, get_command(app)) == expected


@pytest.mark.parametrize("command", ["walk", "train", "search", "neighbors"])
def test_help_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run(command, "--help").out
    assert "…" not in out  # the name of an option was cut
    assert "range" not in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("", "bytes"),
        (" ", "words"),
        ("\x00\x7f", "bytes"),
        ("🙂", "words"),
        ("a\nb", "bytes"),
        ("مرحبا", "words"),
        ("--json", "bytes"),
    ],
)
def test_unusual_texts(run: Run, text: str, tokenizer: str) -> None:
    trace = json.loads(run("walk", "--json", "--tokenizer", tokenizer, "--", text).out)
    assert trace["texts"][0]["text"] == text
    assert bytes.fromhex("".join(one["bytes"] for one in trace["texts"][0]["characters"])).decode() == text


def test_walk_shows_the_rows_of_the_model(run: Run) -> None:
    model = inlayer.load("default")
    trace = json.loads(run("walk", "I love dogs", "Hi", "--json", "--dims", "128").out)
    assert trace["padding"]["id"] == model.embeddings.padding_idx
    for text in trace["texts"]:
        assert [token["id"] for token in text["tokens"] if token["mask"]] == model.tokenizer.encode(text["text"])
        for token in text["tokens"]:
            assert token["row"] == model.table.rows(token["id"]).tolist()


@pytest.mark.parametrize(
    ("verb", "columns"), [("walk", "0"), ("inspect", "1"), ("walk", "-5"), ("inspect", "wide"), ("walk", "30")]
)
def test_terminals_without_a_usable_width(run: Run, verb: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = run(verb)
    assert (done.code, done.err) == (0, "")
    assert "sample" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["walk", "inspect"])
def test_closed_pipe_exits_with_141(verb: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "inlayer", verb], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def test_tokenizer_option_completes_a_model(run: Run, tmp_path: Path) -> None:
    save_file({"wte.weight": torch.randn(256, 4)}, tmp_path / "model.safetensors")
    source = str(tmp_path / "model.safetensors")
    assert "has no tokenizer; choose one" in run("walk", "Hi", "--model", source).err
    assert run("embed", "Hi", "--model", source).err.endswith("has no tokenizer; put one next to the weights\n")
    trace = json.loads(run("walk", "Hi", "--model", source, "--tokenizer", "bytes", "--json").out)
    assert [token["id"] for token in trace["texts"][0]["tokens"]] == [72, 105]


@pytest.mark.parametrize("name", ["inputs_embeds.txt", "with positions.txt", "swap and pad.txt"])
def test_words_of_an_argument_are_not_taken_for_options(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff")
    assert f"{tmp_path / name} is not valid UTF-8" in run("walk", "--file", str(tmp_path / name)).err
    word = name.removesuffix(".txt")
    assert f"--swap is '{word}'" in run("walk", "Hi", "--swap", word).err


def test_seed_determines_the_rows(run: Run) -> None:
    first, again, other = (run("walk", "--json", "--seed", seed).out for seed in ("7", "7", "8"))
    assert first == again != other


# ---- walk: input


def test_texts_from_files_and_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unix.txt").write_bytes("naïve\n\n".encode())
    (tmp_path / "other.txt").write_bytes(b"\r\nI love dogs\r\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    files = [part for name in ("unix", "other", "empty") for part in ("--file", str(tmp_path / f"{name}.txt"))]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("🙂\n".encode()), encoding="ascii"))
    trace = json.loads(run("walk", "first", "-", *files, "--json").out)
    assert [text["text"] for text in trace["texts"]] == ["first", "🙂", "naïve\n", "\r\nI love dogs", ""]


def test_invalid_files_are_reported_in_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "long.txt").write_bytes(b"a" * (2**20 + 1))
    assert (
        "latin.txt is not valid UTF-8: byte 0xe9 at offset 3\n"
        in run("walk", "--file", str(tmp_path / "latin.txt")).err
    )
    assert "long.txt is larger than 1,048,576 bytes" in run("walk", "--file", str(tmp_path / "long.txt")).err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff"), encoding="utf-8"))
    assert run("walk", "-", "--json") == Done(
        2, "", "inlayer: standard input is not valid UTF-8: byte 0xff at offset 2\n"
    )


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_vectors_from_a_file(run: Run, tmp_path: Path, dtype: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 3, 128)).astype(dtype)
    np.save(tmp_path / "three.npy", vectors)
    np.save(tmp_path / "two.npy", np.asfortranarray(vectors[0]))
    three, two = (
        json.loads(run("walk", "--embeds", str(tmp_path / f"{n}.npy"), "--json").out) for n in ("three", "two")
    )
    assert (three["shape"], two["shape"]) == ([2, 3, 128], [1, 3, 128])
    assert three["input"] == "inputs_embeds"
    assert three["texts"][0]["tokens"] == two["texts"][0]["tokens"]
    assert two["texts"][0]["tokens"][1]["row"] == pytest.approx(vectors[0, 1, :8].astype(float).tolist(), rel=0.01)


@pytest.mark.parametrize(
    ("texts", "is_noted"), [(["I", "love", "dogs"], True), (["I love", "dogs"], False), (["dogs"], False)]
)
def test_unquoted_words_are_pointed_out_on_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, texts: list[str], is_noted: bool
) -> None:
    assert run("walk", *texts, "--step", "3").err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run("walk", *texts, "--step", "3").err == "3 texts; quote them to make one\n" * is_noted


def test_errors_about_vectors_name_the_option(run: Run, tmp_path: Path) -> None:
    for width, arguments in ((5, []), (128, ["--swap", "0,1"]), (128, ["--pad", "1"])):
        np.save(tmp_path / "vectors.npy", np.zeros((3, width), np.float32))
        done = run("walk", "--embeds", str(tmp_path / "vectors.npy"), *arguments)
        assert (done.code, done.out) == (2, "")
        assert "--embeds" in done.err
        assert "inputs_embeds" not in done.err


def test_closed_standard_output_is_one_line() -> None:
    command = f"{shlex.quote(sys.executable)} -m inlayer neighbors king --json >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "inlayer: standard output is closed\n")


def test_invalid_vector_files(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    for array, message in [
        (np.zeros((3, 7), np.float32), "width 128"),
        (np.zeros((3, 128), np.int64), "has dtype int64"),
        (np.zeros(128, np.float32), "shape (128,)"),
        (np.zeros((1, 1, 3, 128), np.float32), "shape (1, 1, 3, 128)"),
        (np.array([{}], object), "is not a .npy file of numbers"),
    ]:
        np.save(file, array)
        done = run("walk", "--embeds", str(file))
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert message in done.err
    np.save(file, np.zeros((3, 128), np.float32))
    valid = file.read_bytes()
    for data in (
        b"",
        b"junk",
        valid[:-1],
        valid.replace(b"(3, 128)", b"(9**9,9)"),
        valid.replace(b"(3, 128), }", b"(9999999999, 128), }"),
        valid.replace(b"(3, 128)", b"(((((((("),
        valid.replace(b"<f4", b"|O8"),
        b"PK\x03\x04" + valid,
    ):
        file.write_bytes(data)
        done = run("walk", "--embeds", str(file))
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "x.npy" in done.err


def test_positions_apply_to_models_and_random_tables(run: Run) -> None:
    """Positions replace those of a model; a random table is initialized with them."""
    for arguments, source, own, scheme in [
        (["--positions", "none"], "default", False, "none"),
        (["--positions", "none", "--model", "default"], "default", False, "none"),
        (["--positions", "rotary"], "default", True, "rotary"),
        (["--theta", "100"], "default", False, "rotary"),
        (["--positions", "sinusoidal", "--model", "default", "--tokenizer", "bytes"], "default", False, "sinusoidal"),
        (["--positions", "sinusoidal", "--tokenizer", "bytes"], "random", True, "sinusoidal"),
        (["--positions", "rotary", "--seed", "1"], "random", True, "rotary"),
        (["--width", "4"], "random", True, "learned"),
        (["--tokenizer", "words"], "random", True, "learned"),
    ]:
        trace = json.loads(run("walk", "--json", *arguments).out)
        assert (trace["source"], trace["positions"]["from_model"], trace["positions"]["scheme"]) == (
            source,
            own,
            scheme,
        )


@pytest.mark.parametrize("swap", ["0,2", " 2 , 0 "])
def test_swap_formats(run: Run, swap: str) -> None:
    plain, swapped = (json.loads(run("walk", "--json", *more).out) for more in ([], ["--swap", swap]))
    ids, other = ([token["id"] for token in trace["texts"][0]["tokens"]] for trace in (plain, swapped))
    assert other == [ids[2], ids[1], ids[0], *ids[3:]]


# ---- walk: output


def test_single_step(run: Run) -> None:
    done = run("walk", "--step", "4", "--dims", "2")
    assert (done.code, done.err) == (0, "")
    assert "4  table rows" in done.out
    assert "3  token ids" not in done.out
    assert " bd23 3f5d\n" in done.out


@pytest.mark.slow
def test_page_is_written_completely_or_not_at_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "walk.html", tmp_path / "link.html"
    done = run("walk", "<b>", "--html", str(file), "--step", "3")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"wrote {file}\n"
    page = file.read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert run("walk", "<b>", "--html", "-", "--step", "3").out == page
    link.symlink_to(file)
    file.write_text("before", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", full)
        done = run("walk", "Hi", "--html", str(link))
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("cannot be written: No space left on device\n")
    assert file.read_text(encoding="utf-8") == "before"  # and no temporary file is left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "walk.html"]
    run("walk", "Hi", "--html", str(link))
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_web_serves_the_requested_walk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    served = {}
    monkeypatch.setattr("inlayer.web.serve", lambda open_all, **options: served.update(pipelines=open_all(), **options))
    done = run("walk", "I love & dogs", "b=c", "--web", "--step", "6", "--swap", "0,1", "--pad", "2", "--theta", "1e6")
    assert (done.code, done.err) == (0, "")
    assert [(name, one.facts().name) for name, one in served["pipelines"].items()] == [("default", "default")]
    expected = {"text": ["I love & dogs", "b=c"], "step": ["6"], "theta": ["1000000.0"], "swap": ["0,1"], "pad": ["2"]}
    assert parse_qs(served["fragment"]) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [("inlayer em", "embed"), ("inlayer embed --ov", "--overwrite"), ("inlayer learn note", "notebook")],
)
def test_shell_completion(words: str, expected: str) -> None:
    settings = {"_INLAYER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "inlayer"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]


def test_described_defaults_are_shown_like_other_defaults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run("embed", "--help").out
    assert re.search(r"^│ {20,}\[default: the bundled sample model\] +│$", out, flags=re.MULTILINE)
    lines = [line.strip() for line in out.splitlines()]  # no blank line between examples
    assert lines[lines.index("cat lines.txt | inlayer embed - --out vectors.safetensors") - 1].endswith("--weights sif")


def test_help_imports_neither_torch_nor_numpy() -> None:
    check = """
import sys
from inlayer.cli import main
try:
    main()
finally:
    assert not {"torch", "numpy"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", check, "walk", "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[default: I love dogs]" in " ".join(done.stdout.replace("│", " ").split())


def test_ctrl_c_leaves_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inlayer.cli.walk._open_pipeline", interrupt)
    assert run("walk") == Done(130, "", "")
