"""A run and the folder it leaves: a model that transformers and inlayer open alike; and every way it can go wrong at
the command line, in one line.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM

import inlayer
from inlayer.cli.train import make_plan
from inlayer.errors import CheckpointError, ConfigError, InputError
from inlayer.inspection import inspect
from inlayer.saving import locked
from inlayer.training import load_decoder
from inlayer.training.config import Settings
from inlayer.training.parallel import World
from inlayer.training.run import DivergedError, Plan, Run
from inlayer.training.tokens import open_tokens
from tests.training.launcher import Launcher
from tests.training.texts import write_text

SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "block_size": 24}
STEPS = {"steps": 12, "batch_size": 4, "validate_every": 5, "save_every": 5, "measure_every": 4}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("corpus") / "text.txt", 300)


def plan(text: Path, *, tokenizer: str = "bytes", model: dict[str, Any] | None = None, **settings: Any) -> Plan:
    """As the command line makes it, with the recipe of a tied table."""
    rest: dict[str, Any] = (
        {"tokenizer": tokenizer, "vocab_size": 300} if tokenizer == "bpe" else {"tokenizer": tokenizer}
    )
    return make_plan([str(text)], "toy", {**SIZES, **(model or {})}, {**STEPS, **settings}, rest)


def read_metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


# ---- what comes out

CASES: dict[str, dict[str, Any]] = {
    "gpt, learned": {"tokenizer": "bytes", "model": {"architecture": "gpt"}},
    "gpt, sinusoidal": {"tokenizer": "bpe", "model": {"architecture": "gpt", "positions": "sinusoidal", "tie": False}},
    "llama, grouped": {"tokenizer": "bpe", "model": {"n_kv_head": 1}},
    "llama, untied": {"tokenizer": "bytes", "model": {"n_kv_head": 2, "tie": False, "dropout": 0.1}},
}


@pytest.mark.parametrize("case", CASES)
def test_transformers_and_inlayer_open_what_was_trained(case: str, text: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out", CASES[case]
    run = Run.begin(out, plan(text, **asked))
    assert run.go()
    decoder = load_decoder(out).eval()
    # What was trained is what was saved: the last state, through other code.
    again = Run.find(out)
    assert again.go()
    assert [line["loss"] for line in read_metrics(out)] == [line["loss"] for line in run.metrics]

    theirs, told = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    assert isinstance(theirs, GPT2LMHeadModel if "gpt" in case else LlamaForCausalLM)
    assert (theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight) == decoder.head.tied
    ids = torch.from_numpy(open_tokens(out / "run" / "tokens").validation[:24].astype("int64"))[None]
    with torch.no_grad():
        logits = theirs.eval()(ids).logits
    torch.testing.assert_close(decoder.logits(ids).detach(), logits, rtol=1e-4, atol=1e-4)
    assert float(logits.std()) > 0.1

    sentence = "The quick brown fox, naïve: 42 books"
    tokenizer = inlayer.open_tokenizer(out)
    assert AutoTokenizer.from_pretrained(out).encode(sentence, add_special_tokens=False) == list(
        tokenizer.encode(sentence, add_special_tokens=False)
    )
    model = inlayer.load(out)
    torch.testing.assert_close(
        model.embeddings.token_embedding.weight.detach(), theirs.get_input_embeddings().weight.detach(), rtol=0, atol=0
    )
    findings = {(finding.severity, finding.code) for finding in inspect(out).findings}
    assert all(severity == "note" for severity, _ in findings), findings
    (walked,) = inlayer.walk("the quick fox", out).texts
    assert [cell.id for cell in walked.tokens] == list(tokenizer.encode("the quick fox"))


def test_the_loss_that_is_told_is_the_models(text: Path, tmp_path: Path) -> None:
    """The last validation loss, computed again from the saved folder by transformers."""
    out = tmp_path / "out"
    run = Run.begin(out, plan(text, learning_rate=1e-2, steps=30, warmup=3))
    assert run.go()
    lines = read_metrics(out)
    assert [line["step"] for line in lines if "validation_loss" in line] == [5, 10, 15, 20, 25, 30]
    ids = torch.from_numpy(open_tokens(out / "run" / "tokens").validation.astype("int64"))
    width, most = SIZES["block_size"] + 1, Settings.validation_windows
    count = min(most, len(ids) // width)
    starts = [place * (len(ids) - width) // max(1, count - 1) for place in range(count)]
    windows = torch.stack([ids[start : start + width] for start in starts])
    theirs = AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        logits = theirs(windows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    assert lines[-1]["validation_loss"] == pytest.approx(float(loss), rel=1e-4)
    assert lines[-1]["validation_loss"] < lines[0]["loss"] - 1.5  # and it has learned something
    assert lines[-1]["tokens"] == 30 * 4 * SIZES["block_size"]
    assert all(first["seconds"] < second["seconds"] for first, second in pairwise(lines))


@pytest.mark.parametrize("place", ["folder", "file"])
def test_an_existing_tokenizer_is_taken_as_it_is(place: str, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    inlayer.train_bpe([text], 280, folder, special_tokens=["<pad>"])
    path = folder if place == "folder" else folder / "tokenizer.json"
    out = tmp_path / "out"
    assert Run.begin(out, plan(text, tokenizer=str(path), steps=2)).go()
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert load_decoder(out).config.vocab_size == inlayer.open_tokenizer(folder).get_vocab_size()
    (folder / "tokenizer.json").unlink()  # it is kept with the run: it goes on without
    assert Run.find(out).go()


def test_a_trained_tokenizer_has_padding_and_an_end(text: Path, tmp_path: Path) -> None:
    other = write_text(tmp_path / "other.txt", 50, seed=1)
    out = tmp_path / "out"
    settings = {**STEPS, "steps": 3}
    two = make_plan([str(text), str(other)], "toy", dict(SIZES), settings, {"tokenizer": "bpe", "vocab_size": 300})
    assert Run.begin(out, two).go()
    tokenizer = inlayer.open_tokenizer(out)
    end, padding = tokenizer.special_tokens["<|endoftext|>"], tokenizer.special_tokens["<pad>"]
    config = json.loads((out / "config.json").read_text())
    assert (config["pad_token_id"], config["eos_token_id"], config["vocab_size"]) == (padding, end, 300)
    tokens = open_tokens(out / "run" / "tokens")
    ids = [*tokens.train.tolist(), *tokens.validation.tolist()]
    assert ids.count(end) == 1  # between the two files
    assert padding not in ids
    assert not load_decoder(out).embeddings.token_embedding.weight[padding].any()


def test_without_a_file_it_reads_what_python_carries(tmp_path: Path) -> None:
    run = Run.begin(tmp_path / "out", make_plan([], "toy", dict(SIZES), {**STEPS, "steps": 2}, {"tokenizer": "bytes"}))
    assert run.go()
    tokens = open_tokens(tmp_path / "out" / "run" / "tokens")
    assert tokens.train.size > 500_000
    assert b"docstring" in bytes(tokens.train.astype("uint8"))


def test_the_same_seed_gives_the_same_bytes(text: Path, tmp_path: Path) -> None:
    made = []
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        torch.manual_seed(len(made))  # what happened before in the process does not matter
        torch.rand(3)
        out = tmp_path / name
        assert Run.begin(out, plan(text, tokenizer="bpe", model={"dropout": 0.1}, seed=seed)).go()
        losses = [(line["loss"], line.get("validation_loss"), line["gradient_norm"]) for line in read_metrics(out)]
        made.append((losses, (out / "model.safetensors").read_bytes(), (out / "tokenizer.json").read_bytes()))
    assert made[0] == made[1]
    assert made[0][0][0] != made[2][0][0]
    assert made[0][1] != made[2][1]


def test_it_runs_outside_the_main_thread(text: Path, tmp_path: Path) -> None:
    """Where no signal can be listened to."""
    done: list[bool] = []
    run = Run.begin(tmp_path / "out", plan(text, steps=2))
    thread = threading.Thread(target=lambda: done.append(run.go()))
    thread.start()
    thread.join()
    assert done == [True]


def test_two_at_once_do_not_mix(text: Path, tmp_path: Path) -> None:
    run = Run.begin(tmp_path / "model", plan(text))
    with locked(run.inner / "lock", "in a test"), pytest.raises(InputError, match="another process trains there"):
        run.go()
    (run.inner / "tokens").mkdir()  # as another process leaves it while it prepares
    with locked(run.inner / "lock", "in a test"), pytest.raises(InputError, match="another process trains there"):
        Run.begin(tmp_path / "model", plan(text))
    assert (run.inner / "tokens").is_dir()
    (run.inner / "tokens").rmdir()
    assert run.go()  # the lock went with its holder


def test_an_end_that_is_also_the_padding_is_learned(text: Path, tmp_path: Path) -> None:
    """GPT-2's tokenizer pads with its end of text; a padding row would stay zero and never be guessed."""
    run = Run.begin(tmp_path / "model", plan(text, tokenizer="bpe"))
    tokenizer, tokens = run.prepare(World())
    assert run.config(tokenizer, tokens).padding_idx == tokenizer.special_tokens["<pad>"]
    names = run.inner / "tokenizer" / "tokenizer_config.json"
    names.write_text(names.read_text().replace("<pad>", "<|endoftext|>"))
    tokenizer = run.open_tokenizer()
    assert tokenizer.pad_id == tokenizer.special_tokens["<|endoftext|>"]
    assert run.config(tokenizer, tokens).padding_idx is None


def test_whoever_watches_is_told(text: Path, tmp_path: Path) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.stages: list[tuple[str, int | None]] = []
            self.steps: list[int] = []

        def at(self, stage: str, total: int | None = None) -> None:
            self.stages.append((stage, total))

        def done(self, amount: int) -> None:
            self.last = amount

        def step(self, line: dict[str, int | float], warnings: list[str]) -> None:
            assert not warnings
            self.steps.append(int(line["step"]))

    watcher = Watcher()
    assert Run.begin(tmp_path / "out", plan(text, tokenizer="bpe")).go(watcher)
    assert watcher.stages == [
        ("training a tokenizer of 300 ids", None),
        ("encoding the text", text.stat().st_size),
        ("training", 12),
    ]
    assert watcher.steps == list(range(1, 13))


def test_a_corpus_without_validation_trains_too(text: Path, tmp_path: Path) -> None:
    asked = make_plan([str(text)], "toy", dict(SIZES), dict(STEPS), {"tokenizer": "bytes", "validation": 0.0})
    assert Run.begin(tmp_path / "out", asked).go()
    assert not any("validation_loss" in line for line in read_metrics(tmp_path / "out"))


# ---- plans


def test_a_plan_is_read_as_it_was_written(text: Path) -> None:
    made = plan(text, tokenizer="bpe", learning_rate=1 / 3, untie_at=2 / 3)
    assert Plan.from_json(made.to_json()) == made
    assert (made.model["input_scale"], made.model["output_scale"]) == (50, 3)  # the recipe of a tied table
    assert "output_scale" not in plan(text, model={"tie": False}).model
    with pytest.raises(ValueError, match="format"):
        Plan.from_json(b'{"format": 99}')


def test_a_plan_that_cannot_be_is_refused_at_once(text: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_size is 300, but the tokenizer decides it"):
        Plan(tokenizer="bytes", vocab_size=300, model={"architecture": "gpt", **SIZES})
    with pytest.raises(ConfigError, match="needs vocab_size"):
        Plan(tokenizer="bpe", model={"architecture": "gpt", **SIZES})
    with pytest.raises(ConfigError, match="soft_cap"):
        plan(text, model={"soft_cap": 3.0})


def test_a_folder_that_is_not_the_runs_is_left_alone(text: Path, tmp_path: Path) -> None:
    for name in ("thesis.tex", "run/thesis.tex", "metrics.jsonl"):
        out = tmp_path / name.replace("/", "-")
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("years of work")
        with pytest.raises(InputError, match="it is not empty; give another folder"):
            Run.begin(out, plan(text))
        assert (out / name).read_text() == "years of work"
    with pytest.raises(InputError, match="holds no run that could go on"):
        Run.find(tmp_path)


def test_a_run_that_never_took_a_step_may_begin_anew(tmp_path: Path, text: Path) -> None:
    short = write_text(tmp_path / "short.txt", 2)
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"there are \d+ ids, fewer than the 201 of a window"):
        Run.begin(out, plan(short, model={"block_size": 200})).go()
    assert Run.begin(out, plan(text, tokenizer="bpe", steps=2)).go()  # as it was told: more text, a smaller block_size
    assert load_decoder(out).config.block_size == 24
    with pytest.raises(InputError, match="a run is there"):
        Run.begin(out, plan(text, steps=2))


# ---- divergence


def test_a_diverging_run_ends_and_keeps_no_ruin(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = Run.begin(out, plan(text, learning_rate=1e4, warmup=0, save_every=1, steps=60, clip=0.0))
    with pytest.raises(DivergedError, match=r"at step \d+: the run diverged"):
        run.go()
    lines = read_metrics(out)
    assert lines[-1]["loss"] is None or lines[-1]["gradient_norm"] is None  # JSON has no NaN
    assert all(isinstance(line[name], float) for line in lines[:-1] for name in ("loss", "gradient_norm"))
    from inlayer.training.state import find_state, load_state

    found = find_state(out / "run")
    assert found is not None
    assert found.step == len(lines) - 1
    assert all(bool(value.isfinite().all()) for value in load_state(found).values())
    assert not (out / "model.safetensors").exists()
    with pytest.raises(DivergedError):  # the same again
        Run.find(out).go()
    assert [line["loss"] for line in read_metrics(out)] == [line["loss"] for line in lines]


def test_a_damaged_plan_is_named(text: Path, tmp_path: Path) -> None:
    run = Run.begin(tmp_path / "out", plan(text))
    path = run.inner / "plan.json"
    path.write_text(path.read_text().replace('"steps": 12', '"steps": -12'))
    with pytest.raises(CheckpointError, match=r"plan.json is damaged: steps is -12"):
        Run.find(tmp_path / "out")


# ---- the command line


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    launcher = Launcher()
    yield launcher
    launcher.close()


def complaint(err: str, *, alone: bool = True) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("inlayer: ")]
    assert err.splitlines()[-1] == line
    assert "Traceback" not in err
    assert not alone or err.splitlines() == [line]
    return line


COMMAND = ("--tokenizer", "bytes", "--preset", "toy", "--n-embd", 32, "--block-size", 24, "--steps", 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no text to learn from"),
        (b"\xef\xbb\xbf", "no text to learn from"),
        (b"abc\xff\xfe", "UTF-8"),
        ("Grüße".encode("latin-1"), "UTF-8"),
        (b"too short", "fewer than the 25 of a window; give more text, or a smaller block_size"),
        (None, "is not there; a corpus is made of text files"),
        ("folder", "is a folder, not a file; a corpus is made of text files"),
    ],
)
def test_a_bad_corpus_is_one_line(content: bytes | str | None, words: str, tmp_path: Path, launch: Launcher) -> None:
    path, out = tmp_path / "text.txt", tmp_path / "out"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    code, err = launch("train", path, "--out", out, *COMMAND)
    assert code == 2
    assert words in complaint(err)
    assert not (out / "model.safetensors").exists()
    assert not out.exists()
    if isinstance(content, bytes):  # with a better text the same folder serves
        write_text(path, 100)
        code, err = launch("train", path, "--out", out, *COMMAND)
        assert code == 0, err


@pytest.mark.parametrize("tokenizer", [("bytes",), ("bpe", "--vocab-size", 300)])
def test_a_refused_run_takes_its_folders_along(tokenizer: tuple[object, ...], tmp_path: Path, launch: Launcher) -> None:
    text, there = tmp_path / "text.txt", tmp_path / "there"
    text.write_bytes(b"a cat and a dog\n" * 20_000 + b"\xff")
    there.mkdir()
    for out in (tmp_path / "a" / "b", there):
        code, err = launch("train", text, "--out", out, *COMMAND, "--tokenizer", *tokenizer)
        assert code == 2
        assert "byte 0xFF at 320,000 is out of place" in complaint(err, alone=False)  # it may have taken seconds
    assert not (tmp_path / "a").exists()
    assert list(there.iterdir()) == []
    code, err = launch("train", text, "--out", os.fsdecode(bytes(tmp_path) + b"/\xff"), *COMMAND)
    assert code == 2
    assert "is no name in UTF-8" in complaint(err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--accumulate", 3), "accumulate 3 does not divide batch_size 16"),
        (("--schedule", "cosin"), "choose one of cosine, linear, constant"),
        (("--precision", "float16"), "choose one of float32, bfloat16"),
        (("--preset", "huge"), "unknown preset 'huge'"),
        (("--architecture", "bert"), "unknown architecture 'bert'"),
        (("--architecture", "gpt", "--positions", "rotary"), "are not for gpt"),
        (("--vocab-size", 300), "the tokenizer decides it"),
        (("--n-embd", 30), "n_embd 30 is not divisible by n_head 4"),
        (("--n-kv-head", 3), "n_kv_head 3 does not divide n_head 4"),
        (("--seed", -1), "seed is -1"),
        (("--steps", 0), "steps is 0"),
        (("--learning-rate", "nan"), "learning_rate is nan"),
        (("--dropout", 1.0), "dropout is 1.0"),
        (("--validation", 0.9), "validation is 0.9"),
        (("--tokenizer", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--tokenizer", "bpe", "--vocab-size", 10), "vocab_size"),
        (("--parallel", "everything"), "--parallel is 'everything'"),
        (("--steps", "many"), "--steps"),
        (("--frobnicate",), "frobnicate"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: tuple[object, ...], words: str, text: Path, tmp_path: Path, launch: Launcher
) -> None:
    out = tmp_path / "out"
    code, err = launch("train", text, "--out", out, *COMMAND, *arguments)
    assert code == 2
    assert words in complaint(err)
    assert not out.exists()


def test_a_bad_place_is_one_line(text: Path, tmp_path: Path, launch: Launcher) -> None:
    (tmp_path / "file").write_text("here")
    for out, words in (
        (tmp_path / "file", "cannot take a new run: it is no folder"),
        (tmp_path / "file" / "below", "cannot be written: Not a directory"),
        ("/proc/nothing/here", "cannot be written: No such file or directory"),
        ("", "out is empty"),
    ):
        code, err = launch("train", text, "--out", out, *COMMAND)
        assert code == 2
        assert words in complaint(err)
    assert (tmp_path / "file").read_text() == "here"


def test_a_diverging_run_is_one_line(text: Path, tmp_path: Path, launch: Launcher) -> None:
    command = ("train", text, "--out", tmp_path / "out", *COMMAND, "--steps", 60, "--learning-rate", 1e4)
    code, err = launch(*command)
    assert code == 2
    said = complaint(err, alone=False)
    assert "the run diverged" in said
    assert "with a learning rate below 10000 or more warm-up" in said


def test_the_commands_words_reach_the_run(text: Path, tmp_path: Path, launch: Launcher) -> None:
    out = tmp_path / "out"
    words = (
        "--tokenizer", "bytes", "--architecture", "gpt", "--positions", "sinusoidal", "--n-embd", 16, "--n-layer", 1,
        "--n-head", 2, "--n-hidden", 24, "--block-size", 8, "--dropout", 0.1, "--no-tie", "--steps", 3, "--batch-size",
        4, "--accumulate", 2, "--learning-rate", 0.003, "--table-rate", 0.5, "--head-rate", 0.25, "--weight-decay", 0.2,
        "--table-decay", 0.01, "--warmup", 2, "--schedule", "linear", "--clip", 0.7, "--precision", "bfloat16",
        "--shared-moment", "--validation", 0.2, "--validate-every", 2, "--save-every", 2, "--seed", 11,
    )  # fmt: skip
    code, err = launch("train", text, "--out", out, *words)
    assert code == 0, err
    assert [launch(*verb)[0] for verb in (("inspect", out), ("walk", "the fox", "--model", out, "--json"))] == [0, 0]
    made = Run.find(out).plan
    assert made.settings == Settings(
        steps=3, batch_size=4, accumulate=2, learning_rate=0.003, table_rate=0.5, head_rate=0.25, weight_decay=0.2,
        table_decay=0.01, warmup=2, schedule="linear", clip=0.7, precision="bfloat16", seed=11, validate_every=2,
        save_every=2, shared_moment=True,
    )  # fmt: skip
    config = load_decoder(out).config
    assert (config.architecture, config.positions, config.tie, config.dropout) == ("gpt", "sinusoidal", False, 0.1)
    assert (config.n_embd, config.n_layer, config.n_head, config.n_hidden, config.block_size) == (16, 1, 2, 24, 8)
    assert (made.validation, made.files, made.threads) == (0.2, (str(text),), 1)
