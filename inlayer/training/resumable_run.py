"""A training run and its folder: from text files to a saved model, resumable after a kill at any moment.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss
- the folder itself is the model, as transformers opens it, plus metrics.jsonl and the report; its subfolder `run`
  contains what is required to resume: config, tokenizer, tokens, and the last two states
- files are written atomically. After a kill, `train` continues, with losses bit-identical to an uninterrupted run
- a state contains checksums of the config and of the metrics up to that step, so an edited run folder is rejected
- Ctrl-C and SIGTERM stop the run after the current step, with a state and a model on disk
- a run that fails before its first step, for example because of its text, leaves no files
- a non-finite loss or gradient ends the run: later states would be useless
- see also: the paths (run_paths.py), the steps (trainer.py), the entry point and the report (train.py), output
  (cli/train_progress.py)
Tested in tests/training/test_resumable_run.py, and by killing the process in tests/training/test_resume.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from inlayer.errors import CheckpointError, InlayerError, InputError
from inlayer.files import file_errors, format_path, locked, new_folder, path_kind, sync, write_atomic
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import stop_signals
from inlayer.tokenizers import ByteTokenizer, Tokenizer, open_tokenizer, train_bpe
from inlayer.training.config import DecoderConfig, TrainConfig, bpe_vocab_size, config_to_json, is_due
from inlayer.training.corpus import python_chunks, read_chunks
from inlayer.training.decoder import Decoder
from inlayer.training.encoded_corpus import (
    EncodedCorpus,
    check_windows,
    count_rows,
    draw_batch,
    open_tokens,
    validation_batches,
    write_tokens,
)
from inlayer.training.export import save_decoder, tokenizer_files
from inlayer.training.metrics import Alerts, Metrics, from_line, to_line
from inlayer.training.parallel import DistributedContext
from inlayer.training.run_paths import CONFIG, check_new_run, open_run, with_absolute_paths
from inlayer.training.state import State, load_state, model_tensors, save_state
from inlayer.training.trainer import Trainer

METRICS = "metrics.jsonl"
MAX_SAFE_EPOCHS = 50  # more make even this small decoder memorize it
PADDING, END = "<pad>", "<|endoftext|>"  # special tokens of a trained tokenizer


class DivergedError(InlayerError, ArithmeticError):
    """The loss or the gradient is not finite."""


class TrainingProgress:
    """Receives progress events; this class ignores them."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Start a stage, with its number of steps or bytes if known."""

    def advance(self, amount: int) -> None:
        """Report the number of steps or bytes done so far in this stage."""

    def step(self, metrics: Metrics) -> None:
        """Report a training step."""

    def note(self, text: str) -> None:
        """Report information about the run."""

    def warning(self, text: str) -> None:
        """Report a problem that does not end the run."""


class Run:
    """A training run in a folder. `train` takes the remaining steps."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.folder, self.config, self.state_dir = folder, config, folder / "run"
        self.progress = TrainingProgress()
        self.metrics: list[Metrics] = []
        self.alerts = Alerts()
        self._created: tuple[Path, ...] | None = None  # folders made by `create`, innermost first

    @classmethod
    def create(cls, config: TrainConfig) -> Run:
        """Start a run in `config.out`, which must be empty or not exist."""
        folder = check_new_run(config)
        config = with_absolute_paths(config)
        Decoder(config.decoder_config(bpe_vocab_size(config)), device="meta")  # reports impossible sizes early
        if config.tokenizer not in {"bytes", "bpe"}:
            open_tokenizer(config.tokenizer)
        run = cls(folder, replace(config, threads=config.threads or torch.get_num_threads()))
        run._created = tuple(path for path in (folder, *folder.parents) if path_kind(path) == "missing")
        try:
            run.state_dir.mkdir(parents=True, exist_ok=True)
            with run.locked():
                run._write_config()
        except OSError as error:
            run._remove()
            raise InputError(f"{format_path(folder)} cannot be written: {error.strerror}") from error
        return run

    @classmethod
    def open(cls, out: str, parallel: str = "data", device: str | None = None) -> Run:
        """Open the run in a folder, to resume it."""
        return cls(*open_run(out, parallel=parallel, device=device))

    def extend(self, steps: int) -> None:
        """Extend the run to `steps` steps. The remaining ones use the schedule of a run of this length."""
        self.config = replace(self.config, steps=steps)
        with self.locked():
            self._write_config()

    def _write_config(self) -> None:
        write_atomic(self.state_dir / CONFIG, config_to_json(self.config))

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder: one process trains in it at a time."""
        return locked(self.state_dir / "lock", "another process is training there")

    def _remove(self) -> None:
        """Remove a run that has not taken a step, and the folders created for it."""
        shutil.rmtree(self.state_dir, ignore_errors=True)
        with suppress(OSError):
            (self.folder / METRICS).unlink(missing_ok=True)
            for folder in self._created or ():
                folder.rmdir()

    # ---- preparation

    def prepare(self, context: DistributedContext) -> tuple[Tokenizer, EncodedCorpus]:
        """Create the tokenizer and the tokens once, in the main process; then open them and fit the config to them."""
        if context.is_main:
            self._make_tokenizer()
            self._make_tokens()
        context.barrier()
        tokenizer, tokens = self.open_tokenizer(), open_tokens(self.state_dir / "tokens")
        if tokens.vocab_size != count_rows(tokenizer):
            raise CheckpointError(
                f"{format_path(self.state_dir / 'tokens')} has {tokens.vocab_size:,} ids, but the run's tokenizer has "
                f"{count_rows(tokenizer):,}; one of them was modified; start a new run in another folder"
            )
        fitted = self.config.fit_to_corpus(tokens.train.size, tokens.validation.size)
        if context.is_main and fitted != self.config:
            self.config = fitted
            self._write_config()
        self.config = fitted
        return tokenizer, tokens

    def open_tokenizer(self) -> Tokenizer:
        return ByteTokenizer() if self.config.tokenizer == "bytes" else open_tokenizer(self.state_dir / "tokenizer")

    def decoder_config(self, tokenizer: Tokenizer, tokens: EncodedCorpus) -> DecoderConfig:
        """Return the decoder to train. A padding token that also ends texts is learned, so it is not padding."""
        is_end = tokenizer.pad_id == tokenizer.special_tokens.get(END)
        return self.config.decoder_config(tokens.vocab_size, None if is_end else tokenizer.pad_id)

    def _make_tokens(self) -> None:
        folder, tokenizer, files = self.state_dir / "tokens", self.open_tokenizer(), self.config.files
        if path_kind(folder) == "folder":
            return
        chunks = read_chunks(files) if files else python_chunks()
        self.progress.stage("encoding the text", sum(Path(file).stat().st_size for file in files) or None)
        write_tokens(
            folder,
            chunks,
            tokenizer,
            validation_fraction=self.config.validation_fraction,
            separator=tokenizer.special_tokens.get(END),
            progress=self.progress.advance,
        )

    def _make_tokenizer(self) -> None:
        folder = self.state_dir / "tokenizer"
        if self.config.tokenizer == "bytes" or path_kind(folder) == "folder":
            return
        with new_folder(folder) as new:
            if self.config.tokenizer == "bpe":
                self._train_tokenizer(new)
            else:
                for name, data in tokenizer_files(self.config.tokenizer).items():
                    (new / name).write_bytes(data)

    def _train_tokenizer(self, folder: Path) -> None:
        vocab_size, corpus = bpe_vocab_size(self.config), folder / "corpus.txt"
        exact, special = self.config.vocab_size is not None, [PADDING, END]
        self.progress.stage(f"training a tokenizer with {'' if exact else 'at most '}{vocab_size:,} ids")
        if not self.config.files:
            with corpus.open("w", encoding="utf-8", newline="") as text:
                text.writelines(chunk.text for chunk in python_chunks())
        min_frequency = 1 if exact else 2  # the model cannot learn a pair that occurs only once
        files = self.config.files or corpus
        trained = train_bpe(files, vocab_size, folder, special_tokens=special, min_frequency=min_frequency, exact=exact)
        if (size := trained.get_vocab_size()) < vocab_size:
            self.progress.note(f"the vocabulary has {size:,} ids, because the text is too small for {vocab_size:,}")
        corpus.unlink(missing_ok=True)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PADDING, "eos_token": END}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")

    # ---- training

    def train(self, progress: TrainingProgress | None = None, context: DistributedContext | None = None) -> bool:
        """Take the remaining steps and save the model. Return False if a signal stopped it before the last step."""
        context = context or DistributedContext()
        problem = "cannot be written (saved states are kept, and --resume continues from the last one)"
        with file_errors(self.folder, problem), self.locked() if context.is_main else nullcontext():
            try:
                return self._train(progress, context)
            except InlayerError:
                if context.is_main and self._created is not None and not self.metrics:
                    self._remove()
                raise

    def _train(self, progress: TrainingProgress | None, context: DistributedContext) -> bool:
        loaded, repeated = self._load_state()  # first, because an edited config may describe any model
        self.progress = progress if progress is not None and context.is_main else TrainingProgress()
        torch.set_num_threads(max(1, (self.config.threads or 1) // context.size))
        tokenizer, tokens = self.prepare(context)
        config, steps = self.config, self.config.total_steps
        trainer = Trainer(self.decoder_config(tokenizer, tokens), config, context=context)
        self.alerts = Alerts(unigram_loss=tokens.unigram_loss(), steps=steps)
        width = trainer.decoder.config.block_size + 1
        check_windows(tokens.train, width)
        self._report_text_size(tokens, width)
        if loaded is not None:
            trainer.load(loaded.step, loaded.tensors)
        saved, loaded = trainer.step, None  # the loaded tensors are as large as the model
        for line in self.metrics:
            self.alerts.check(line)
        seconds = self.metrics[-1]["seconds"] if self.metrics else 0.0
        context.barrier()  # all processes have read the metrics before the main process rewrites them
        if context.is_main:
            write_atomic(self.folder / METRICS, b"".join(map(to_line, self.metrics)))
        if repeated:
            self.progress.warning(f"{pluralize(repeated, 'step')} after the last saved state will be repeated")
        self.progress.stage(f"training on {context.device.type}", steps)
        self.progress.advance(trainer.step)
        with stop_signals() as received:
            while trainer.step < steps and not context.any(bool(received)):
                started, step = time.perf_counter(), trainer.step + 1
                windows = draw_batch(tokens.train, rows=config.batch_size, width=width, seed=config.seed, step=step)
                line = trainer.take_step(windows)
                seconds += time.perf_counter() - started
                line |= {"tokens": step * windows[:, 1:].numel(), "seconds": round(seconds, 6)}
                if tokens.validation.size >= width and is_due(config, config.eval_interval, step):
                    rows = config.batch_size // config.gradient_accumulation_steps
                    max_windows = config.eval_sequences
                    batches = validation_batches(tokens.validation, rows=rows, width=width, max_windows=max_windows)
                    line["validation_loss"] = trainer.validate(batches)
                self._record(line, context)
                if is_due(config, config.save_interval, step):
                    saved = self._save(trainer)
        if trainer.step != saved:
            self._save(trainer)
        self._write_model(trainer, tokenizer, tokens)
        context.barrier()
        return trainer.step == steps

    def _report_text_size(self, tokens: EncodedCorpus, width: int) -> None:
        """Report how many times the steps cover the text; warn if too often, or if it is too small to validate on."""
        config, held_out = self.config, tokens.validation.size
        epochs = config.total_steps * config.batch_size * (width - 1) / tokens.train.size
        amount = (
            f"the text about {pluralize(round(epochs), 'time')}" if epochs >= 1 else f"about {epochs:.1%} of the text"
        )
        summary = f"{pluralize(config.total_steps, 'step')} cover {amount}"
        if epochs > MAX_SAFE_EPOCHS:
            self.alerts.raised["memorization"] = (
                f"{summary}: the model will memorize it, and a low training loss says nothing about other text; use "
                "fewer steps (--steps) or more text"
            )
        else:
            self.progress.note(summary)
        if config.validation_fraction and held_out < width:
            problem = f"the text is too short to hold out {config.validation_fraction:g} of it; use more text"
            if held_out:
                # At most half the text can be held out.
                can_hold_out_more = tokens.train.size + held_out >= 2 * width
                more = "hold out more of it (--validation-fraction), " if can_hold_out_more else ""
                problem = (
                    f"the held-out text ({config.validation_fraction:g} of all) has {pluralize(held_out, 'token')}, "
                    f"but a sequence has {width:,}; use more text, {more}or shorten the sequences (--block-size)"
                )
            self.alerts.raised["validation"] = f"no validation loss: {problem}"
        for warning in self.alerts.raised.values():
            self.progress.warning(warning)

    def _load_state(self) -> tuple[State | None, int]:
        """Return the newest state and the number of steps after it, and read the metrics up to it.

        The config, the tokenizer, and the metrics must match the state.
        """
        path, state = self.folder / METRICS, load_state(self.state_dir)
        lines = path.read_bytes().splitlines(keepends=True) if path_kind(path) == "file" else []
        step = 0 if state is None else state.step
        if state is not None and step > (steps := self.config.steps or 0):
            raise CheckpointError(
                f"{format_path(self.state_dir / CONFIG)} has {pluralize(steps, 'step')}, but the saved state is from "
                f"step {step:,}; restore the number of steps"
            )
        paths = {"config": self.state_dir / CONFIG, "tokenizer": self.state_dir / "tokenizer", "metrics": path}
        for name, digest in self._checksums(b"".join(lines[:step])).items():
            if state is not None and state.metadata.get(name) != digest:
                raise CheckpointError(
                    f"{format_path(paths[name])} does not match the saved state of step {step:,}: it was changed or "
                    "truncated; restore it, or start a new run in another folder"
                )
        try:
            self.metrics = [from_line(line, number) for number, line in enumerate(lines[:step], 1)]
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{format_path(path)} is damaged: {error}") from error
        return state, len(lines[step:])

    def _checksums(self, metrics: bytes) -> dict[str, str]:
        """Return the checksums that a state must match: config (except `steps`, which may grow), tokenizer, metrics."""
        parts = {"config": config_to_json(replace(self.config, steps=1)), "tokenizer": b"", "metrics": metrics}
        for path in sorted(path for path in (self.state_dir / "tokenizer").glob("*") if path_kind(path) == "file"):
            parts["tokenizer"] += path.name.encode() + path.read_bytes()
        return {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}

    def _record(self, line: Metrics, context: DistributedContext) -> None:
        """Write the metrics of a step and report them. Raises DivergedError if they are not finite."""
        self.metrics.append(line)
        if context.is_main:
            with (self.folder / METRICS).open("ab") as file:
                file.write(to_line(line))
        self.progress.step(line)
        for warning in self.alerts.check(line):
            self.progress.warning(warning)
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(line[name]):
                raise DivergedError(
                    f"the run diverged: {name.replace('_', ' ')} is {line[name]} at step {int(line['step']):,}; start "
                    f"a new run in another folder with a learning rate below {self.config.learning_rate:g} or more "
                    "warm-up (earlier states are kept)"
                )

    def _save(self, trainer: Trainer) -> int:
        state, metrics = trainer.state(), self.folder / METRICS
        if trainer.context.is_main:
            sync(metrics)  # a state is useless without the metrics up to it
            save_state(self.state_dir, trainer.step, state, self._checksums(metrics.read_bytes()))
        trainer.context.barrier()
        return trainer.step

    def _write_model(self, trainer: Trainer, tokenizer: Tokenizer, tokens: EncodedCorpus) -> None:
        state = trainer.state()  # a collective call
        if not trainer.context.is_main:
            return
        unseen = set(np.flatnonzero(tokens.count_ids() == 0).tolist()) - set(tokenizer.special_ids)
        training_facts = {"training_tokens": tokens.train.size, "unseen_tokens": len(unseen)}
        save_decoder(
            trainer.decoder,
            self.folder,
            tokenizer=tokenizer if isinstance(tokenizer, ByteTokenizer) else self.state_dir / "tokenizer",
            eos_id=tokenizer.special_tokens.get(END),
            state=model_tensors(state),
            facts=training_facts | {"input_scale": trainer.decoder.config.input_scale},
        )
