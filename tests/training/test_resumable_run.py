"""A training run and its folder: a model that transformers and inlayer open alike, and everything that can go wrong."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM

import inlayer
from inlayer.errors import CheckpointError, ConfigError, InputError
from inlayer.files import locked
from inlayer.inspection import inspect
from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.encoded_corpus import open_tokens
from inlayer.training.lr_schedule import learning_rate_at
from inlayer.training.metrics import from_line
from inlayer.training.parallel import DistributedContext, choose_device, distributed_context
from inlayer.training.resumable_run import DivergedError, Run, TrainingProgress
from inlayer.training.state import load_state, model_tensors
from inlayer.training.train import prompt_ids
from tests.training.texts import write_text

BLOCK = 24
SMALL: dict[str, Any] = {
    "preset": "toy", "n_embd": 32, "n_layer": 2, "n_head": 4, "block_size": BLOCK, "steps": 12, "batch_size": 4,
    "eval_interval": 5, "save_interval": 5, "log_interval": 4, "tokenizer": "bytes",
}  # fmt: skip
BPE = {"tokenizer": "bpe", "vocab_size": 300}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("corpus") / "text.txt", 300)


def make_config(text: Path, out: Path, **settings: Any) -> TrainConfig:
    return TrainConfig(**{**SMALL, "files": (str(text),), "out": str(out), **settings})


def read_metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def trained_decoder(run: Run) -> Decoder:
    """The decoder in the run's last state, in its own names and with its scales."""
    state = load_state(run.state_dir)
    assert state is not None
    decoder = Decoder(run.decoder_config(run.open_tokenizer(), open_tokens(run.state_dir / "tokens")), seed=1)
    decoder.load_state_dict(model_tensors(state.tensors))
    return decoder.eval()


# ---- the saved model

CASES: dict[str, dict[str, Any]] = {
    "gpt, sinusoidal, untied": {**BPE, "architecture": "gpt", "positions": "sinusoidal", "tie": False},
    "llama, grouped, tied": {"n_kv_head": 1, "dropout": 0.1},
}


@pytest.mark.parametrize("case", CASES)
def test_transformers_and_inlayer_open_the_model(case: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = Run.create(make_config(text, out, **CASES[case]))
    assert run.train()
    decoder = trained_decoder(run)
    # The saved state gives the same model, through other code.
    assert Run.open(str(out)).train()
    assert [line["loss"] for line in read_metrics(out)] == [line["loss"] for line in run.metrics]

    theirs, problems = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(problems.values()), problems
    assert isinstance(theirs, GPT2LMHeadModel if "gpt" in case else LlamaForCausalLM)
    assert (theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight) == decoder.head.tied
    ids = torch.from_numpy(open_tokens(out / "run" / "tokens").validation[:BLOCK].astype("int64"))[None]
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
    ours, reference = model.embeddings.token_embedding.weight, theirs.get_input_embeddings().weight
    torch.testing.assert_close(ours.detach(), reference.detach(), rtol=0, atol=0)
    findings = {(finding.severity, finding.code) for finding in inspect(out).findings}
    assert all(severity == "note" for severity, _ in findings), findings
    (walked,) = inlayer.walk("the quick fox", out).texts
    assert [cell.id for cell in walked.tokens] == list(tokenizer.encode("the quick fox"))


def test_validation_loss_matches_transformers(text: Path, tmp_path: Path) -> None:
    """The last validation loss, computed again from the saved folder."""
    out = tmp_path / "out"
    assert Run.create(make_config(text, out, learning_rate=1e-2, steps=30, warmup_steps=3)).train()
    lines = read_metrics(out)
    assert [line["step"] for line in lines if "validation_loss" in line] == [5, 10, 15, 20, 25, 30]
    ids = torch.from_numpy(open_tokens(out / "run" / "tokens").validation.astype("int64"))
    width, most = BLOCK + 1, TrainConfig.eval_sequences
    count = min(most, len(ids) // width)
    starts = [number * (len(ids) - width) // max(1, count - 1) for number in range(count)]
    windows = torch.stack([ids[start : start + width] for start in starts])
    theirs = AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        logits = theirs(windows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    assert lines[-1]["validation_loss"] == pytest.approx(float(loss), rel=1e-4)
    assert lines[-1]["validation_loss"] < lines[0]["loss"] - 1.5  # control: it has learned something
    assert lines[-1]["tokens"] == 30 * 4 * BLOCK
    assert all(first["seconds"] < second["seconds"] for first, second in pairwise(lines))


# ---- inlayer.train


def test_the_prompt_of_the_sample_ends_with_a_whole_word() -> None:
    tokenizer = inlayer.ByteTokenizer()
    for text, prompt in (("The numbers are", "The numbers"), ("The long", "The long"), ("x" * 40, "x" * 8)):
        ids = prompt_ids(tokenizer, np.frombuffer(text.encode(), np.uint8))
        assert tokenizer.decode(ids.tolist()) == prompt


def test_train_returns_and_writes_a_report(text: Path, tmp_path: Path) -> None:
    config = make_config(text, tmp_path / "out", threads=1)
    report = inlayer.train(config)
    assert report is not None
    assert (report.name, report.steps, report.tokens) == ("out", 12, 12 * 4 * BLOCK)
    assert report.settings["warmup_steps"] == 1
    assert not {"out", "files"} & set(report.settings)
    assert report.validation_loss is not None
    assert len(report.table.tokens) == 8
    assert report.generated_text is not None
    assert json.loads((tmp_path / "out" / "report.json").read_text())["steps"] == 12
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "out" / "training.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_train_resumes_with_the_same_config_only(text: Path, tmp_path: Path) -> None:
    whole, parts = (make_config(text, tmp_path / name) for name in ("whole", "parts"))
    assert Run.create(whole).train()

    class StopAt(TrainingProgress):
        def step(self, metrics: dict[str, int | float]) -> None:
            if metrics["step"] == 7:
                raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt,
        match=r"stopped at step 7 of 12; to resume: inlayer train --out .*--resume",
    ):
        inlayer.train(parts, progress=StopAt())
    with pytest.raises(InputError, match="already contains a run; use --resume to continue it"):
        inlayer.train(parts)
    with pytest.raises(ConfigError, match=r"contains a run with learning-rate 0.002, not 0.1"):
        inlayer.train(replace(parts, learning_rate=0.1), resume=True)
    with pytest.raises(ConfigError, match="contains a run with other files"):
        inlayer.train(replace(parts, files=()), resume=True)
    report = inlayer.train(parts, resume=True)
    assert report is not None
    losses = [[line["loss"] for line in read_metrics(tmp_path / name)] for name in ("whole", "parts")]
    assert losses[0] == losses[1]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert models[0] == models[1]


# ---- preparation


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_existing_tokenizer_is_copied(kind: str, text: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "tokenizer", tmp_path / "out"
    inlayer.train_bpe([text], 280, folder, special_tokens=["<pad>"])
    path = folder if kind == "folder" else folder / "tokenizer.json"
    assert Run.create(make_config(text, out, tokenizer=str(path), steps=2)).train()
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert inlayer.load(out).table.num_embeddings == inlayer.open_tokenizer(folder).get_vocab_size()
    (folder / "tokenizer.json").unlink()  # the run has its own copy
    assert Run.open(str(out)).train()


def test_trained_tokenizer_has_padding_and_end_of_text(text: Path, tmp_path: Path) -> None:
    other, out = write_text(tmp_path / "other.txt", 50, seed=1), tmp_path / "out"
    assert Run.create(make_config(text, out, **BPE, steps=3, files=(str(text), str(other)))).train()
    tokenizer = inlayer.open_tokenizer(out)
    end, padding = tokenizer.special_tokens["<|endoftext|>"], tokenizer.special_tokens["<pad>"]
    config = json.loads((out / "config.json").read_text())
    assert (config["pad_token_id"], config["eos_token_id"], config["vocab_size"]) == (padding, end, 300)
    tokens = open_tokens(out / "run" / "tokens")
    ids = [*tokens.train.tolist(), *tokens.validation.tolist()]
    assert ids.count(end) == 1  # between the two files
    assert padding not in ids
    assert not inlayer.load(out).table.rows([padding]).any()


def test_end_of_text_that_is_also_padding_is_trained(text: Path, tmp_path: Path) -> None:
    """GPT-2's tokenizer pads with its end of text; a padding row would stay zero and never be predicted."""
    run = Run.create(make_config(text, tmp_path / "model", **BPE))
    tokenizer, tokens = run.prepare(DistributedContext())
    assert run.decoder_config(tokenizer, tokens).padding_idx == tokenizer.special_tokens["<pad>"]
    names = run.state_dir / "tokenizer" / "tokenizer_config.json"
    names.write_text(names.read_text().replace("<pad>", "<|endoftext|>"))
    tokenizer = run.open_tokenizer()
    assert tokenizer.pad_id == tokenizer.special_tokens["<|endoftext|>"]
    assert run.decoder_config(tokenizer, tokens).padding_idx is None


@pytest.mark.slow
def test_default_text_is_pythons_documentation(tmp_path: Path) -> None:
    assert Run.create(TrainConfig(**{**SMALL, "steps": 2, "out": str(tmp_path / "out")})).train()
    tokens = open_tokens(tmp_path / "out" / "run" / "tokens")
    assert tokens.train.size > 500_000
    assert b"docstring" in bytes(tokens.train.astype("uint8"))


# ---- behavior


def test_same_seed_gives_same_bytes(text: Path, tmp_path: Path) -> None:
    results = []
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        torch.manual_seed(len(results))  # the global generator does not matter
        out = tmp_path / name
        assert Run.create(make_config(text, out, **BPE, dropout=0.1, seed=seed, steps=3)).train()
        losses = [(line["loss"], line.get("validation_loss"), line["gradient_norm"]) for line in read_metrics(out)]
        results.append((losses, (out / "model.safetensors").read_bytes(), (out / "tokenizer.json").read_bytes()))
    assert results[0] == results[1]
    assert results[0][0][0] != results[2][0][0]
    assert results[0][1] != results[2][1]


def test_training_in_another_thread_without_validation(text: Path, tmp_path: Path) -> None:
    """Signals cannot be handled there."""
    done: list[bool] = []
    run = Run.create(make_config(text, tmp_path / "out", steps=2, validation_fraction=0.0))
    thread = threading.Thread(target=lambda: done.append(run.train()))
    thread.start()
    thread.join()
    assert done == [True]
    assert not any("validation_loss" in line for line in read_metrics(tmp_path / "out"))


def test_everything_is_in_one_folder_whatever_its_name(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a shell expands "~"; tokens and tokenizer used to be written to the home folder, the rest was not."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert Run.create(make_config(text, Path("~/model"), **BPE, steps=1)).train()
    assert not list(home.iterdir())
    inner = {path.name for path in (tmp_path / "~" / "model" / "run").iterdir()}
    assert inner >= {"config.json", "tokenizer", "tokens", "state-000000001.safetensors"}


def test_folder_is_locked(text: Path, tmp_path: Path) -> None:
    run = Run.create(make_config(text, tmp_path / "model"))
    message = "another process is training there"
    with locked(run.state_dir / "lock", "in a test"), pytest.raises(InputError, match=message):
        run.train()
    assert run.train()


def test_progress_events(text: Path, tmp_path: Path) -> None:
    class Recorder(TrainingProgress):
        def __init__(self) -> None:
            self.stages: list[tuple[str, int | None]] = []
            self.steps: list[int] = []

        def stage(self, name: str, total: int | None = None) -> None:
            self.stages.append((name, total))

        def warning(self, text: str) -> None:
            pytest.fail(text)

        def step(self, metrics: dict[str, int | float]) -> None:
            self.steps.append(int(metrics["step"]))

    recorder = Recorder()
    assert Run.create(make_config(text, tmp_path / "out", **BPE)).train(recorder)
    assert recorder.stages == [
        ("training a tokenizer with 300 ids", None),
        ("encoding the text", text.stat().st_size),
        ("training on cpu", 12),
    ]
    assert recorder.steps == list(range(1, 13))


# ---- errors


def test_other_files_in_the_folder_are_kept(text: Path, tmp_path: Path) -> None:
    for name in ("thesis.tex", "run/thesis.tex", "metrics.jsonl"):
        out = tmp_path / name.replace("/", "-")
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("years of work")
        with pytest.raises(InputError, match="it is not an empty folder; choose another folder"):
            Run.create(make_config(text, out))
        assert (out / name).read_text() == "years of work"
    with pytest.raises(InputError, match="contains no run to resume"):
        Run.open(str(tmp_path))


def test_failure_before_the_first_step_leaves_nothing(tmp_path: Path, text: Path) -> None:
    short, out = write_text(tmp_path / "short.txt", 2), tmp_path / "a" / "out"
    with pytest.raises(
        InputError, match=r"the text has \d+ training tokens, fewer than the 201 of one window; add more text, or use a"
    ):
        Run.create(make_config(short, out, block_size=200, files=(short, short), validation_fraction=0.4)).train()
    assert not (tmp_path / "a").exists()
    out.mkdir(parents=True)
    (out / "run").mkdir()
    (out / "run" / "lock").touch()  # left by a process killed while starting
    assert Run.create(make_config(text, out, steps=2)).train()


def test_diverging_run_keeps_finite_states(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = Run.create(
        make_config(text, out, learning_rate=1e4, warmup_steps=0, save_interval=1, steps=60, max_grad_norm=0.0)
    )
    with pytest.raises(DivergedError, match=r"the run diverged: (loss|gradient norm) is (nan|inf) at step \d+"):
        run.train()
    lines = read_metrics(out)
    assert lines[-1]["loss"] is None or lines[-1]["gradient_norm"] is None  # JSON has no NaN
    assert all(isinstance(line[name], float) for line in lines[:-1] for name in ("loss", "gradient_norm"))
    state = load_state(out / "run")
    assert state is not None
    assert state[0] == len(lines) - 1
    assert all(bool(value.isfinite().all()) for value in state[1].values())
    assert not (out / "model.safetensors").exists()
    recorder = WarningRecorder()
    with pytest.raises(DivergedError):  # resumed, it diverges again
        Run.open(str(out)).train(recorder)
    assert recorder.warnings[0] == "1 step after the last saved state will be repeated"
    assert [line["loss"] for line in read_metrics(out)] == [line["loss"] for line in lines]


# ---- a text that is too small


class WarningRecorder(TrainingProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def test_small_text_has_a_smaller_vocabulary_and_no_validation(tmp_path: Path) -> None:
    text, recorder = write_text(tmp_path / "short.txt", 40), WarningRecorder()
    config = make_config(text, tmp_path / "out", tokenizer="bpe", steps=2, validation_fraction=0.005)
    report = inlayer.train(config, progress=recorder)
    assert report is not None
    assert report.model["vocab_size"] == inlayer.load(tmp_path / "out").table.num_embeddings < 1000
    size, (validation,) = report.model["vocab_size"], report.warnings
    assert recorder.notes[0] == f"the vocabulary has {size:,} ids, because the text is too small for 4,096"
    assert validation.startswith("no validation loss: the held-out text (0.005 of all) has ")
    assert recorder.warnings == list(report.warnings)
    assert report.validation_loss is None
    with pytest.raises(InputError, match=r"the text yields only \d+ merges, .*for vocab_size 4096 use more text"):
        Run.create(replace(config, out=str(tmp_path / "exact"), vocab_size=4096)).train()


def test_text_of_one_segment_is_not_validated(tmp_path: Path) -> None:
    text, recorder = write_text(tmp_path / "short.txt", 10), WarningRecorder()
    assert text.stat().st_size < 1024
    report = inlayer.train(make_config(text, tmp_path / "out", steps=2), progress=recorder)
    assert report is not None
    assert report.validation_loss is None
    message = "no validation loss: the text is too short to hold out 0.05 of it; use more text"
    assert list(report.warnings) == recorder.warnings == [message]


def test_defaults_fit_a_small_text(tmp_path: Path) -> None:
    """Block size and steps come from the text; a resumed run keeps them, or gets more steps."""
    text, recorder, out = write_text(tmp_path / "short.txt", 20), WarningRecorder(), tmp_path / "out"
    config = make_config(text, out, steps=None, block_size=None, batch_size=8)
    report = inlayer.train(config, progress=recorder)
    assert report is not None
    assert report.validation_loss is not None
    tokens = open_tokens(out / "run" / "tokens")
    block_size, steps = tokens.validation.size - 1, report.steps
    assert 16 < block_size < 64 == inlayer.TrainConfig(preset="toy").resolved()["block_size"]
    assert steps == max(50, 20 * tokens.train.size // (8 * block_size)) < 600
    assert (report.settings["block_size"], report.settings["steps"]) == (block_size, steps)
    assert json.loads((out / "config.json").read_text())["max_position_embeddings"] == block_size
    assert recorder.notes == [
        f"{steps} steps cover the text about {round(steps * 8 * block_size / tokens.train.size)} times"
    ]
    assert Run.open(str(out)).config.steps == steps
    report = inlayer.train(config, resume=True)  # nothing to do
    assert (report is not None, len(read_metrics(out))) == (True, steps)
    report = inlayer.train(replace(config, steps=steps + 1), resume=True, progress=recorder)
    assert (report is not None, len(read_metrics(out))) == (True, steps + 1)
    with pytest.raises(ConfigError, match=f"contains a run with block-size {block_size}, not 8"):
        inlayer.train(replace(config, block_size=8), resume=True)


def test_run_killed_before_its_steps_were_derived(text: Path, tmp_path: Path) -> None:
    config = make_config(text, tmp_path / "out", steps=None)
    Run.create(config)
    report = inlayer.train(replace(config, steps=2), resume=True)
    assert report is not None
    assert report.steps == 2


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_text_that_is_read_very_often_is_a_warning(validation: float, tmp_path: Path) -> None:
    text, recorder = write_text(tmp_path / "short.txt", 4), WarningRecorder()
    config = make_config(text, tmp_path / "out", steps=30, batch_size=32, validation_fraction=validation)
    report = inlayer.train(config, progress=recorder)
    assert report is not None
    assert report.warnings[0] == recorder.warnings[0]
    assert re.match(
        r"30 steps cover the text about \d+ times: the model will memorize it, and a low", report.warnings[0]
    )
    assert recorder.notes == []


def test_text_that_is_too_small_is_reported_before_a_tokenizer_is_trained(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_bytes(b"a b c")
    config = make_config(text, tmp_path / "out", tokenizer="bpe", block_size=None)
    with pytest.raises(InputError, match=r"the text has only 5 bytes, but one window has 17 tokens; add more text$"):
        Run.create(config)
    assert not (tmp_path / "out").exists()


# ---- the device


def test_device_that_torch_cannot_use_is_an_error(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device is cuda, which torch .* cannot use here; use cpu"):
        inlayer.train(make_config(text, tmp_path / "out", device="cuda"))
    assert not (tmp_path / "out").exists()
    with distributed_context() as context:
        assert context.device.type == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device(None, 1).type == "cpu"  # MPS is used only on request
    assert choose_device("mps", 1).type == "mps"
    with pytest.raises(ConfigError, match="device mps works only in a single process, but there are 2"):
        choose_device("mps", 2)


def test_resumed_run_may_use_another_device(text: Path, tmp_path: Path) -> None:
    config = make_config(text, tmp_path / "out", steps=2)
    Run.create(replace(config, device="cuda"))
    report = inlayer.train(replace(config, device="cpu"), resume=True)
    assert report is not None
    assert report.settings["device"] == "cpu"


def test_no_warning_about_validation_that_was_turned_off(tmp_path: Path) -> None:
    text, recorder = write_text(tmp_path / "short.txt", 40), WarningRecorder()
    assert Run.create(make_config(text, tmp_path / "out", validation_fraction=0.0, steps=2)).train(recorder)
    assert recorder.warnings == []


def test_saved_config_tells_how_much_was_seen(text: Path, tmp_path: Path) -> None:
    assert Run.create(make_config(text, tmp_path / "out", steps=2)).train()
    tokens = open_tokens(tmp_path / "out" / "run" / "tokens")
    facts = json.loads((tmp_path / "out" / "config.json").read_text())["inlayer"]
    unseen = 256 - len(set(tokens.train.tolist()))
    assert facts == {"training_tokens": tokens.train.size, "unseen_tokens": unseen, "input_scale": 50.0}
    assert 0 < facts["unseen_tokens"] < 256


# ---- more steps


@pytest.mark.slow
def test_run_is_extended(text: Path, tmp_path: Path) -> None:
    """The added steps follow the schedule of the new length, and are bit-identical no matter how often it stops."""
    for name in ("whole", "parts"):
        assert inlayer.train(make_config(text, tmp_path / name)) is not None
    before = read_metrics(tmp_path / "whole")
    longer = make_config(text, tmp_path / "whole", steps=20)
    report = inlayer.train(longer, resume=True)
    assert report is not None
    assert report.steps == 20
    lines = read_metrics(tmp_path / "whole")
    assert lines[:12] == before
    assert [line["learning_rate"] for line in lines[12:]] == [learning_rate_at(longer, step) for step in range(13, 21)]

    class Stop(TrainingProgress):
        def step(self, metrics: dict[str, int | float]) -> None:
            if metrics["step"] == 17:
                raise KeyboardInterrupt

    parts = make_config(text, tmp_path / "parts", steps=20)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 17 of 20"):
        inlayer.train(parts, resume=True, progress=Stop())
    assert inlayer.train(parts, resume=True) is not None
    assert [line["loss"] for line in read_metrics(tmp_path / "parts")] == [line["loss"] for line in lines]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert models[0] == models[1]
    with pytest.raises(ConfigError, match="contains a run with steps 20, not 12"):
        inlayer.train(replace(parts, steps=12), resume=True)


# ---- an edited run folder


@pytest.fixture(scope="module")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    assert Run.create(make_config(text, out, threads=1)).train()
    return out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threads": "x"}, r"config\.json is damaged: threads is 'x'; it must be an integer from 1 to 4,096"),
        ({"threads": -3}, r"config\.json is damaged: threads is -3; it must be an integer from 1 to 4,096"),
        ({"threads": 2**31}, r"config\.json is damaged: threads is 2147483648"),
        ({"n_layer": 100_000, "n_embd": 2**20}, r"config\.json does not match the saved state of step 12"),
        ({"threads": 2}, r"config\.json does not match the saved state of step 12"),
        ({"learning_rate": 0.1}, r"config\.json does not match the saved state of step 12: it was changed"),
        ({"steps": 10}, r"config\.json has 10 steps, but the saved state is from step 12"),
        ({"steps": None}, r"config\.json has 0 steps, but the saved state is from step 12"),
        ({"seed": True}, r"config\.json is damaged: seed is True"),
        ({"learning_rate": 10**400}, r"config\.json is damaged: learning_rate is 1000"),
        ({"files": "text.txt"}, r"config\.json is damaged: files is not a list of paths"),
        ({"files": [1]}, r"config\.json is damaged: files is not a list of paths"),
        ({"extra": 1}, r"config\.json is damaged: 'extra' is missing or unknown"),
        ({"format": 2}, r"config\.json is damaged: its format is not 4"),
    ],
)
def test_edited_config_is_rejected(changed: dict[str, Any], message: str, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    path = out / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(CheckpointError, match=message):
        Run.open(str(out)).train()
    values = json.loads(path.read_text())
    del values["seed"]
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        Run.open(str(out))


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
@pytest.mark.parametrize("field", ["tokenizer", "files"])
def test_names_that_are_no_paths_are_rejected(field: str, name: str, finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    path = out / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: [name] if field == "files" else name}))
    with pytest.raises(CheckpointError, match=r"is damaged: .* a character that is not allowed in a path"):
        Run.open(str(out))


def test_edited_tokenizer_is_rejected(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = make_config(text, out, tokenizer="bpe", vocab_size=300, steps=2)
    assert Run.create(config).train()
    path = out / "run" / "tokenizer" / "tokenizer.json"
    values = json.loads(path.read_text())
    vocabulary = values["model"]["vocab"]
    first, second = [name for name, number in vocabulary.items() if number in (290, 291)]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"run/tokenizer does not match the saved state of step 2"):
        Run.open(str(out)).train()


def test_settings_of_a_run_are_printed_without_escape_sequences(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    path = out / "run" / "config.json"
    values = json.loads(path.read_text()) | {"tokenizer": "\x1b[31mX" + "a" * 200}
    path.write_text(json.dumps(values))
    with pytest.raises(ConfigError) as caught:
        inlayer.train(make_config(Path(values["files"][0]), out), resume=True)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_edited_tokens_and_lock_are_rejected(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    path = out / "run" / "tokens" / "tokens.json"
    whole = path.read_text()
    path.write_text(whole.replace('"vocab_size": 256', '"vocab_size": 16777216'))  # a table of gigabytes
    with pytest.raises(CheckpointError, match=r"tokens has 16,777,216 ids, but the run's tokenizer has 256"):
        Run.open(str(out)).train()
    path.write_text(whole)
    (out / "run" / "lock").unlink()
    (out / "run" / "lock").mkdir()
    with pytest.raises(InputError, match=r"lock cannot be locked: Is a directory"):
        Run.open(str(out)).train()


def test_edited_metrics_are_rejected(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    path = out / "metrics.jsonl"
    whole = path.read_text()
    for edited in (whole.replace('"step": 3, "loss": ', '"step": 3, "loss": 1'), whole[: len(whole) // 2], "{}\n"):
        path.write_text(edited)
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl does not match the saved state of step 12"):
            Run.open(str(out)).train()
        assert path.read_text() == edited
    path.write_text(whole + '{"step": 13, "lo')  # what a kill leaves
    assert Run.open(str(out)).train()
    assert path.read_text() == whole


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"step": 2}, "line 1 is not from step 1"),
        ({"loss": "low"}, "loss in line 1 is not a number"),
        ({"seconds": 10**400}, "seconds in line 1 is not a number"),
        ({"tokens": [1]}, "tokens in line 1 is not a number"),
    ],
)
def test_lines_of_metrics_are_checked(line: dict[str, Any], message: str) -> None:
    good = {"step": 1, "loss": None, "learning_rate": 0.1, "gradient_norm": 1, "tokens": 5, "seconds": 0.5}
    assert from_line(json.dumps(good).encode(), 1)["tokens"] == 5
    with pytest.raises(ValueError, match=message):
        from_line(json.dumps(good | line).encode(), 1)
    with pytest.raises(ValueError, match="line 1 is not from step 1"):
        from_line(b'{"step": 1}', 1)
