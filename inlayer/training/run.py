"""A run: from text files to a folder that holds a model, kept on disk so that it can go on after any end.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss
- the folder itself is the model, as transformers opens it, with metrics.jsonl and the report; what the run needs to go
  on is in its `run/`: the plan, the tokenizer, the tokens, the last two states
- everything is written in the order it is needed, each file whole or not at all: after a kill at any moment `go` takes
  up what is there, and the losses are to the bit those of a run that was not killed
- a stop that is asked for (Ctrl-C, SIGTERM) ends after the step at hand, with a state and a model on disk
- a run that is refused before its first step, because its text will not do, leaves nothing behind
- a loss that is no number ends the run: no later state would be worth keeping
- not here: the steps themselves (trainer.py), what is printed (cli/train.py)
Checked by killing it in tests/training/test_resume.py, and in tests/training/test_run.py.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from io import FileIO
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from inlayer.errors import CheckpointError, ConfigError, InlayerError, InputError
from inlayer.paths import check_path, shown, what_is_at
from inlayer.saving import locked, put, sync
from inlayer.tokenizers import ByteTokenizer, Tokenizer, open_tokenizer, train_bpe
from inlayer.tokenizers.train import check_vocab_size
from inlayer.training.config import Settings
from inlayer.training.corpus import Chunk, python_chunks, read_chunks
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.metrics import Alerts
from inlayer.training.parallel import World, full_state
from inlayer.training.save import check_savable, write_decoder
from inlayer.training.state import find_state, load_state, save_state
from inlayer.training.tokenizer_files import tokenizer_files
from inlayer.training.tokens import Tokens, check_windows, draw_batch, open_tokens, validation_batches, write_tokens
from inlayer.training.trainer import Metrics, Trainer

__all__ = ["DivergedError", "Plan", "Run", "Watcher"]

PLAN, METRICS = "plan.json", "metrics.jsonl"
PADDING, END = "<pad>", "<|endoftext|>"  # of a tokenizer that is trained here
FORMAT = 1
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)  # what was made so far is worth keeping: there may be room again
SOON_MADE = re.compile(
    r"\.?plan\.json(\.saving)?|\.?tokens(\.saving|\.old)?|\.?tokenizer.*|lock"
)  # before the first step


class DivergedError(InlayerError, ArithmeticError):
    """The loss is no number any more."""


@runtime_checkable
class Watcher(Protocol):
    """Who is told how a run goes."""

    def at(self, stage: str, total: int | None = None) -> None:
        """A stage begins: of so many steps or bytes, where that is known."""

    def done(self, amount: int) -> None:
        """So much of the stage is done."""

    def step(self, line: Metrics, warnings: list[str]) -> None:
        """A step was taken; the warnings are new."""


class Nobody:
    """Who wants to know nothing."""

    def at(self, stage: str, total: int | None = None) -> None: ...

    def done(self, amount: int) -> None: ...

    def step(self, line: Metrics, warnings: list[str]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run was asked for.

    files       the corpus; none: the English that Python carries
    tokenizer   "bytes", "bpe" (trained on the corpus, with vocab_size ids), or the path of one
    validation  the share of the text that validates
    model       fields of DecoderConfig, without those that the tokenizer decides
    threads     of torch: another number adds up in another order
    """

    files: tuple[str, ...] = ()
    tokenizer: str = "bpe"
    vocab_size: int | None = None
    validation: float = 0.05
    model: dict[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        if (self.vocab_size is None) == (self.tokenizer == "bpe"):
            raise ConfigError(
                "a tokenizer that is trained needs vocab_size, the number of its ids"
                if self.tokenizer == "bpe"
                else f"vocab_size is {self.vocab_size}, but the tokenizer decides it; it goes with one that is trained"
            )
        if self.tokenizer == "bpe":
            check_vocab_size(self.vocab_size, len((PADDING, END)))
        if not 0 <= self.validation <= 0.5:
            raise ConfigError(f"validation is {self.validation}; it is the share of the text, in 0..0.5")
        config = self.config(vocab_size=256 if self.vocab_size is None else self.vocab_size, padding_idx=None)
        check_savable(config)
        Decoder(config, device="meta")  # what cannot be built is told before the text is read
        if config.tie and self.settings.head_rate != 1.0:
            raise ConfigError(
                f"head_rate is {self.settings.head_rate}, and a tied head has no rows of its own to learn"
            )

    def config(self, *, vocab_size: int, padding_idx: int | None) -> DecoderConfig:
        """The decoder of this plan for a tokenizer."""
        return DecoderConfig(**{**self.model, "vocab_size": vocab_size, "padding_idx": padding_idx})

    def to_json(self) -> bytes:
        """As it is written down."""
        return (json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        """As it was written down; ValueError or TypeError for anything else."""
        told = json.loads(data)
        if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
            raise ValueError("its format is not known")
        return cls(**{**told, "files": tuple(told["files"]), "settings": Settings(**told["settings"])})


class Run:
    """A run and its folder. `go` takes the steps that are left."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan, self.inner = folder, plan, folder / "run"
        self.watcher: Watcher = Nobody()
        self.metrics: list[Metrics] = []
        self.signs = Alerts()
        self.made: tuple[Path, ...] | None = None  # the folders that `begin` made, innermost first

    @classmethod
    def begin(cls, folder: str | os.PathLike[str], plan: Plan) -> Run:
        """A new run in a folder that is empty or not there yet, or whose run never took a step."""
        place = check_path(folder, "out")
        kind = what_is_at(place)
        if kind not in {"folder", "nothing"} or (kind == "folder" and not is_free(place)):
            there = "it is no folder" if kind != "folder" else "a run is there" if is_run(place) else "it is not empty"
            advice = "; --resume goes on with it" if kind == "folder" and is_run(place) else ""
            raise InputError(f"{shown(place)} cannot take a new run: {there}{advice}; give another folder")
        try:
            str(place.absolute()).encode()
        except UnicodeEncodeError:
            raise InputError(f"{shown(place)} is no name in UTF-8, and safetensors writes to no other") from None
        if plan.files:
            next(read_chunks(plan.files))  # tells at once where a file is not there, or none has text
        if plan.tokenizer not in {"bytes", "bpe"}:
            open_tokenizer(plan.tokenizer)
        made = cls(place, plan)
        made.made = tuple(folder for folder in (place, *place.parents) if what_is_at(folder) == "nothing")
        try:
            made.inner.mkdir(parents=True, exist_ok=True)
            with made.locked():
                for left in made.inner.iterdir():
                    if left.is_dir():
                        shutil.rmtree(left)
                put(made.inner / PLAN, plan.to_json())
        except OSError as error:
            if made.made:
                made.withdraw()
            raise InputError(f"{shown(place)} cannot be written: {error.strerror}") from error
        return made

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder while the block lasts: one process at a time."""
        return locked(self.inner / "lock", "another process trains there")

    def withdraw(self) -> None:
        """Take back what `begin` and the preparations made: a run that took no step."""
        shutil.rmtree(self.inner, ignore_errors=True)
        with suppress(OSError):
            (self.folder / METRICS).unlink(missing_ok=True)
            for folder in self.made or ():
                folder.rmdir()

    @classmethod
    def find(cls, folder: str | os.PathLike[str]) -> Run:
        """The run that was begun in a folder."""
        place = check_path(folder, "out")
        if not is_run(place):
            raise InputError(f"{shown(place)} holds no run that could go on; start one without --resume")
        try:
            plan = Plan.from_json((place / "run" / PLAN).read_bytes())
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(f"{shown(place / 'run' / PLAN)} is damaged: {error}") from error
        return cls(place, plan)

    # ---- before the first step

    def prepare(self, world: World) -> tuple[Tokenizer, Tokens]:
        """Tokenizer and tokens, made once, by the first process."""
        if world.is_first:
            self._make_tokenizer()
            self._make_tokens()
        world.barrier()
        return self.open_tokenizer(), open_tokens(self.inner / "tokens")

    def open_tokenizer(self) -> Tokenizer:
        """The tokenizer, once it is made."""
        return ByteTokenizer() if self.plan.tokenizer == "bytes" else open_tokenizer(self.inner / "tokenizer")

    def config(self, tokenizer: Tokenizer, tokens: Tokens) -> DecoderConfig:
        """The decoder; a padding token that is also the end of a text is no padding: the end has to be learned."""
        is_end = tokenizer.pad_id == tokenizer.special_tokens.get(END)
        return self.plan.config(vocab_size=tokens.vocab_size, padding_idx=None if is_end else tokenizer.pad_id)

    def _make_tokens(self) -> None:
        place, tokenizer = self.inner / "tokens", self.open_tokenizer()
        if what_is_at(place) == "folder":
            return
        chunks = self._chunks()  # an error where a file is not there any more
        self.watcher.at("encoding the text", sum(Path(file).stat().st_size for file in self.plan.files) or None)
        write_tokens(
            place,
            chunks,
            tokenizer,
            validation=self.plan.validation,
            separator=tokenizer.special_tokens.get(END),
            progress=self.watcher.done,
        )

    def _chunks(self) -> Iterator[Chunk]:
        return read_chunks(self.plan.files) if self.plan.files else python_chunks()

    def _make_tokenizer(self) -> None:
        place = self.inner / "tokenizer"
        if self.plan.tokenizer == "bytes" or what_is_at(place) == "folder":
            return
        for left in self.inner.glob(".tokenizer*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.inner, prefix=".tokenizer") as beside:
            fresh = Path(beside, "made")
            fresh.mkdir()
            if self.plan.tokenizer == "bpe":
                self._train_tokenizer(fresh)
            else:
                for name, data in tokenizer_files(self.plan.tokenizer).items():
                    put(fresh / name, data)
            fresh.rename(place)

    def _train_tokenizer(self, place: Path) -> None:
        assert self.plan.vocab_size is not None
        self.watcher.at(f"training a tokenizer of {self.plan.vocab_size:,} ids")
        files = [Path(file) for file in self.plan.files]
        if not files:
            files = [place.with_name("corpus.txt")]
            with files[0].open("w", encoding="utf-8", newline="") as text:
                text.writelines(chunk.text for chunk in python_chunks())
        train_bpe(files, self.plan.vocab_size, place, special_tokens=[PADDING, END])
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PADDING, "eos_token": END}
        put(place / "tokenizer_config.json", (json.dumps(names, indent=2) + "\n").encode())

    # ---- the steps

    def go(self, watcher: Watcher | None = None, *, world: World | None = None, how: str = "data") -> bool:
        """Take the steps that are left and save the model; False where somebody asked to stop before the last."""
        world = world or World()
        with self.locked() if world.is_first else nullcontext():
            try:
                return self._go(watcher, world, how)
            except InlayerError as error:
                full = isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE
                if world.is_first and self.made is not None and not self.metrics and not full:
                    self.withdraw()
                raise

    def _go(self, watcher: Watcher | None, world: World, how: str) -> bool:
        settings = self.plan.settings
        self.watcher = watcher if watcher is not None and world.is_first else Nobody()
        torch.set_num_threads(max(1, self.plan.threads // world.size))
        tokenizer, tokens = self.prepare(world)
        config = self.config(tokenizer, tokens)
        trainer = Trainer(config, settings, world=world, how=how)
        # Counting reads all tokens once, and only the first process tells what it sees.
        self.signs = Alerts(unigram=tokens.unigram_loss() if world.is_first else math.inf, steps=settings.steps)
        width = config.block_size + 1
        check_windows(tokens.train, settings.batch_size, width)
        saved, seconds = self._restore(trainer), self.metrics[-1]["seconds"] if self.metrics else 0.0
        world.barrier()  # nobody writes metrics before all have read them
        self.watcher.at("training", settings.steps)
        self.watcher.done(trainer.step)
        with asked_to_stop() as stop, self._metrics_file(world) as file:
            while trainer.step < settings.steps and not world.any(bool(stop)):
                begun, step = time.perf_counter(), trainer.step + 1
                windows = draw_batch(tokens.train, rows=settings.batch_size, width=width, seed=settings.seed, step=step)
                line = trainer.take_step(windows)
                seconds += time.perf_counter() - begun
                line |= {"tokens": step * windows[:, 1:].numel(), "seconds": round(seconds, 6)}
                if tokens.validation.size >= width and settings.is_due(settings.validate_every, step):
                    line["validation_loss"] = self._validate(trainer, tokens)
                self._take_down(line, file)
                if settings.is_due(settings.save_every, step):
                    saved = self._save(trainer)
        if trainer.step != saved:
            self._save(trainer)
        state = full_state(trainer.decoder, world)
        if world.is_first:
            self._write_model(trainer.decoder.config, state, tokenizer)
        world.barrier()
        return trainer.step == settings.steps

    def _restore(self, trainer: Trainer) -> int:
        """Go on from the newest state; metrics of steps after it are forgotten."""
        found = find_state(self.inner)
        if found is not None:
            trainer.load(found.step, load_state(found))
        kept = read_metrics(self.folder / METRICS, trainer.step)
        if len(kept) != trainer.step:
            raise CheckpointError(
                f"{shown(self.folder / METRICS)} has {len(kept):,} of the {trainer.step:,} steps of the state: it was "
                "changed or cut off; put it back as it was, or train anew into another folder"
            )
        for line in kept:
            self.signs.look(line)
        self.metrics = kept
        return trainer.step

    @contextmanager
    def _metrics_file(self, world: World) -> Iterator[FileIO | None]:
        if not world.is_first:
            yield None
            return
        path = self.folder / METRICS
        with self._writing_metrics():
            put(path, b"".join(map(to_line, self.metrics)))
            file = FileIO(path, "a")
        with file:
            yield file

    @contextmanager
    def _writing_metrics(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{shown(self.folder / METRICS)} cannot be written: {error.strerror}; the states of the run are kept, "
                "--resume goes on from the last"
            ) from error

    def _validate(self, trainer: Trainer, tokens: Tokens) -> float:
        settings, width = trainer.settings, trainer.decoder.config.block_size + 1
        rows = max(1, settings.batch_size // settings.accumulate)
        return trainer.validate(
            validation_batches(tokens.validation, rows=rows, width=width, most=settings.validation_windows)
        )

    def _take_down(self, line: Metrics, file: FileIO | None) -> None:
        self.metrics.append(line)
        data = b"" if file is None else to_line(line)
        with self._writing_metrics():
            while file is not None and data:  # a disk that is nearly full takes a part
                data = data[file.write(data) :]
        self.watcher.step(line, self.signs.look(line))
        for name in ("loss", "gradient_norm"):  # a step along such a gradient ruins the weights
            if not math.isfinite(line[name]):
                raise DivergedError(
                    f"the {name.replace('_', ' ')} is {line[name]} at step {int(line['step']):,}: the run diverged; "
                    "what was saved before, if anything, is kept; begin another one, with a learning rate below "
                    f"{self.plan.settings.learning_rate:g} or more warm-up"
                )

    def _save(self, trainer: Trainer) -> int:
        state = trainer.state()
        if trainer.world.is_first:
            sync(self.folder / METRICS)  # a state is of no use without the steps that led to it
            save_state(self.inner, trainer.step, state, {})
        trainer.world.barrier()
        return trainer.step

    def _write_model(self, config: DecoderConfig, state: dict[str, Tensor], tokenizer: Tokenizer) -> None:
        source = tokenizer if isinstance(tokenizer, ByteTokenizer) else self.inner / "tokenizer"
        try:
            write_decoder(
                self.folder,
                Decoder(config, device="meta"),
                tokenizer=source,
                eos_id=tokenizer.special_tokens.get(END),
                state=state,
            )
        except OSError as error:
            raise InputError(
                f"the model cannot be written to {shown(self.folder)}: {error.strerror or error}; the state of the run "
                "is kept, --resume writes it again"
            ) from error


def is_run(folder: Path) -> bool:
    """Was a run begun in this folder?"""
    return what_is_at(folder / "run" / PLAN) == "file"


def is_free(folder: Path) -> bool:
    """May a run begin here? What one left that ended before its first step does not count: it is soon made again."""
    there = {path.name: path for path in folder.iterdir()}
    metrics, left = there.pop(METRICS, None), there.pop("run", None)
    if there or (metrics is not None and (what_is_at(metrics) != "file" or metrics.stat().st_size)):
        return False
    return left is None or (what_is_at(left) == "folder" and all(SOON_MADE.fullmatch(p.name) for p in left.iterdir()))


def to_line(line: Metrics) -> bytes:
    """A line of metrics.jsonl; JSON has no NaN and no infinity: null."""
    told = {name: value if math.isfinite(value) else None for name, value in line.items()}
    return (json.dumps(told) + "\n").encode()


def read_metrics(path: Path, steps: int) -> list[Metrics]:
    """The metrics of the first steps; a line that a kill cut off ends them."""
    found: list[Metrics] = []
    if what_is_at(path) != "file":
        return found
    with path.open("rb") as file:
        for text in islice(file, steps):
            line = parse_line(text)
            if line is None or line["step"] != len(found) + 1:
                break
            found.append(line)
    return found


def parse_line(text: bytes) -> Metrics | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not {"step", "loss", "seconds"} <= set(line):
        return None
    return {name: math.nan if value is None else value for name, value in line.items()}


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that holds the signal once somebody asks to stop; the second time, Ctrl-C is what it always is."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # which alone may listen to signals
        yield asked
        return

    def take(number: int, _: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
