"""Tying, settled: small decoders trained in many ways at four learning rates and three seeds each.

    python -m benchmarks.tying            # all of it, resumable: under 2 hours on two cores
    python -m benchmarks.tying --short    # one variant of each kind, a few steps: what CI runs
    python -m benchmarks.tying --document # only draws and writes docs/tying.md again from the runs on disk

- one question: why does a tied table become unstable, and what keeps it stable?
- every run is the same but for its variant, learning rate and seed: the same text (the English that Python carries),
  the same tokenizer, the same windows in the same order
- a run that ends is a line of docs/tying/runs.jsonl; what is there is not run again
- a run diverged if its loss is no number, or ends above where it began, or more than half a nat above its best. It
  collapsed if it ends where knowing only how frequent each token is would have taken it (the unigram loss), or above
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from inlayer.training.tokens import Tokens

HERE = Path(__file__).parent.parent / "docs" / "tying"
SIZES = {"architecture": "llama", "n_embd": 96, "n_layer": 2, "n_head": 4, "block_size": 64}
VOCAB_SIZE = 2048
STEPS, BATCH, LEARNING_RATE = 400, 8, 1e-3
FACTORS, SEEDS = (1, 3, 10, 30), (0, 1, 2)
ROOT = math.sqrt(SIZES["n_embd"])  # type: ignore[arg-type]
LATE = 0.5  # nats above its best at which a run has come apart
NOTHING = 0.1  # nats below the unigram loss at which nothing else was learned
SMOOTH = 25  # steps

# No care at all: AdamW as torch has it, the table decays like everything else, the rate stays as it is.
CARELESS = {
    "beta2": 0.999, "weight_decay": 0.01, "table_decay": 0.01, "warmup": 0, "schedule": "constant", "clip": 0.0,
}  # fmt: skip
# What most people do without thinking of tables.
CARE = {"table_decay": 0.0, "warmup": 40, "clip": 1.0}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to train: what differs in the decoder and in the settings from a careless tied run."""

    name: str
    about: str
    kind: str
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


GEMMA = {"init": "scaled", "input_scale": ROOT}
T5 = {"init": "embedding", "output_scale": 1 / ROOT}
UNIT = {"input_scale": 1 / 0.02}
VARIANTS = (
    Variant(name="untied", about="a head of its own, no care", kind="reference", model={"tie": False}),
    Variant(name="untied, care", about="a head of its own, warm-up, clipping, no decay of table and head",
            kind="reference", model={"tie": False}, settings=CARE),
    Variant(name="untied, care, unit input", about="and the input times 50", kind="reference",
            model={"tie": False, **UNIT}, settings=CARE),
    Variant(name="tied", about="one table, normal(0.02), no care", kind="reference"),
    Variant(name="gemma", about="init 1/sqrt(D), input times sqrt(D)", kind="alone", model=GEMMA),
    Variant(name="t5", about="init 1, output times 1/sqrt(D)", kind="alone", model=T5),
    Variant(name="input norm", about="RMSNorm after the lookup", kind="alone", model={"input_norm": True}),
    Variant(name="unit input", about="normal(0.02), input times 50", kind="alone", model=UNIT),
    Variant(name="z-loss", about="1e-3 times the squared log normalizer", kind="alone", settings={"z_loss": 1e-3}),
    Variant(name="soft cap", about="logits capped at 30", kind="alone", model={"soft_cap": 30.0}),
    Variant(name="no decay", about="no weight decay on the table", kind="alone", settings={"table_decay": 0.0}),
    Variant(name="own rate", about="the table learns at 0.3 of the rate", kind="alone", settings={"table_rate": 0.3}),
    Variant(name="centered", about="mean row taken off after each step", kind="alone", settings={"center": True}),
    Variant(name="one moment", about="Adam's second moment averaged over the vocabulary", kind="alone",
            settings={"shared_moment": True}),
    Variant(name="weak input", about="the input side's gradient times 0.1", kind="alone",
            settings={"input_gradient": 0.1}),
    Variant(name="untied late", about="untied at two thirds, moments copied", kind="alone",
            settings={"untie_at": 2 / 3}),
    Variant(name="clipping", about="gradient clipped at 1", kind="alone", settings={"clip": 1.0}),
    Variant(name="warm-up", about="40 steps of warm-up", kind="alone", settings={"warmup": 40}),
    Variant(name="care", about="warm-up, clipping, no decay of the table", kind="combined",
            settings=CARE),
    Variant(name="care, gemma", about="and Gemma's scales", kind="combined", model=GEMMA, settings=CARE),
    Variant(name="care, t5", about="and T5's scales", kind="combined", model=T5, settings=CARE),
    Variant(name="care, input norm", about="and RMSNorm after the lookup", kind="combined",
            model={"input_norm": True}, settings=CARE),
    Variant(name="care, unit input", about="and the input times 50", kind="combined", model=UNIT, settings=CARE),
    Variant(name="care, centered", about="and a centered table", kind="combined", settings={**CARE, "center": True}),
    Variant(name="care, one moment", about="and one second moment", kind="combined",
            settings={**CARE, "shared_moment": True}),
    Variant(name="care, unit input, centered", about="the input times 50, a centered table", kind="combined",
            model=UNIT, settings={**CARE, "center": True}),
    Variant(name="care, unit input, one moment", about="the input times 50, one second moment", kind="combined",
            model=UNIT, settings={**CARE, "shared_moment": True}),
    Variant(name="care, unit input, high rate", about="the input times 50, thrice the rate for the table",
            kind="combined", model=UNIT, settings={**CARE, "table_rate": 3.0}),
    Variant(name="care, unit input, z-loss", about="the input times 50, z-loss", kind="combined", model=UNIT,
            settings={**CARE, "z_loss": 1e-3}),
    Variant(name="care, unit input, loud output", about="the input times 50, the output times 3", kind="combined",
            model={**UNIT, "output_scale": 3.0}, settings=CARE),
    Variant(name="care, unit input, untied late", about="the input times 50, untied at two thirds", kind="combined",
            model=UNIT, settings={**CARE, "untie_at": 2 / 3}),
)  # fmt: skip

RECIPE = "care, unit input, loud output"  # that of inlayer/training/recipe.py


# ---- running


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tying", description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help="two variants, two rates, one seed, 20 steps")
    parser.add_argument("--document", action="store_true", help="only draw and write again")
    parser.add_argument("--out", type=Path, default=HERE, help="where the runs are kept")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if not given.document:
        jobs = list(short_jobs() if given.short else all_jobs())
        run_all(jobs, given.out, given.processes)
    if not given.short:
        from benchmarks.tying_report import write

        write(read_runs(given.out), given.out)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run to do."""

    variant: str
    factor: float
    seed: int
    steps: int = STEPS

    @property
    def key(self) -> tuple[str, float, int, int]:
        return self.variant, self.factor, self.seed, self.steps


def all_jobs() -> Iterator[Job]:
    """Seed by seed, so that a study that was stopped has something of everything."""
    for seed in SEEDS:
        for variant in sorted(VARIANTS, key=lambda one: one.kind == "alone"):
            for factor in FACTORS:
                yield Job(variant=variant.name, factor=factor, seed=seed)


def short_jobs() -> Iterator[Job]:
    for name in ("tied", RECIPE):
        for factor in (1, 30):
            yield Job(variant=name, factor=factor, seed=0, steps=20)


def run_all(jobs: Sequence[Job], out: Path, processes: int) -> None:
    """Do what is not done yet, several at once, each on one thread."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "runs.jsonl"
    if path.exists() and not path.read_bytes().endswith(b"\n"):  # a line that a kill cut off
        path.write_text("".join(json.dumps(run) + "\n" for run in read_runs(out)), encoding="utf-8")
    done = {(line["variant"], line["factor"], line["seed"], line["steps"]) for line in read_runs(out)}
    left = [job for job in jobs if job.key not in done]
    print(f"{len(jobs)} runs, {len(jobs) - len(left)} of them done", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(processes) as pool:
        make_tokens(Path(folder))
        for number, line in enumerate(pool.imap_unordered(run_one, [(job, folder) for job in left]), 1):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            left_s = (time.monotonic() - begun) / number * (len(left) - number)
            said = [word for word in ("diverged", "collapsed") if line[word]]
            print(
                f"{number}/{len(left)}  {line['variant']:<24} x{line['factor']:<3} seed {line['seed']}  "
                f"{line['validation_loss']} {' '.join(said)}  {left_s / 60:.0f} min left",
                flush=True,
            )


def make_tokens(folder: Path) -> None:
    """The text that Python carries, as ids of a tokenizer trained on it."""
    from inlayer import train_bpe
    from inlayer.training.corpus import python_chunks
    from inlayer.training.tokens import write_tokens

    text = folder / "text.txt"
    text.write_text("".join(chunk.text for chunk in python_chunks()), encoding="utf-8")
    tokenizer = train_bpe(text, VOCAB_SIZE)
    write_tokens(folder / "tokens", python_chunks(), tokenizer, separator=None)


def run_one(job_and_folder: tuple[Job, str]) -> dict[str, Any]:
    """One run, in a process that does nothing else."""
    import torch

    from inlayer.training.config import Settings
    from inlayer.training.decoder import DecoderConfig
    from inlayer.training.tokens import draw_batch, open_tokens, validation_batches
    from inlayer.training.trainer import Trainer

    torch.set_num_threads(1)
    job, folder = job_and_folder
    variant = next(one for one in VARIANTS if one.name == job.variant)
    tokens = open_tokens(Path(folder, "tokens"))
    config = DecoderConfig(**{**SIZES, "vocab_size": tokens.vocab_size, "tie": True, **variant.model})
    settings = Settings(
        **{
            "steps": job.steps, "batch_size": BATCH, "learning_rate": LEARNING_RATE * job.factor, "seed": job.seed,
            "measure_every": 10, **CARELESS, **variant.settings,
        }
    )  # fmt: skip
    trainer, width = Trainer(config, settings), config.block_size + 1
    lines: list[dict[str, float]] = []
    begun = time.perf_counter()
    for step in range(1, job.steps + 1):
        windows = draw_batch(tokens.train, rows=BATCH, width=width, seed=job.seed, step=step)
        lines.append(trainer.take_step(windows))
        if not math.isfinite(lines[-1]["loss"]):
            break
    seconds = time.perf_counter() - begun
    validation = math.nan
    if math.isfinite(lines[-1]["loss"]):
        validation = trainer.validate(validation_batches(tokens.validation, rows=16, width=width, most=192))
    return {
        "variant": job.variant, "factor": job.factor, "seed": job.seed, "steps": job.steps,
        **summarize(lines, validation, unigram_loss(tokens)), "seconds": round(seconds, 1),
    }  # fmt: skip


def unigram_loss(tokens: Tokens) -> float:
    """The validation loss of who knows how frequent each token is in the training text, and nothing else."""
    shares_V = (tokens.count_ids() + 1) / (tokens.train.size + tokens.vocab_size)
    return float(-np.log(shares_V[tokens.validation]).mean())


def summarize(lines: Sequence[Mapping[str, float]], validation: float, unigram: float) -> dict[str, Any]:
    """What is kept of a run: how it ended, how rough it was, and some points of its course."""
    smooth = [
        statistics.fmean(line["loss"] for line in lines[max(0, end - SMOOTH) : end]) for end in range(1, len(lines) + 1)
    ]
    measured = [line for line in lines if "row_norm_mean" in line]
    last = measured[-1]
    best = min(smooth)
    finite = all(math.isfinite(value) for value in (smooth[-1], validation))
    diverged = not finite or validation > lines[0]["loss"] or smooth[-1] > best + LATE
    rises = sum(
        line["loss"] > before + 1.0 for line, before in zip(lines[1:], smooth, strict=False) if math.isfinite(before)
    )
    return {
        "diverged": diverged,
        "collapsed": not diverged and validation > unigram - NOTHING,
        "unigram_loss": rounded(unigram),
        "validation_loss": rounded(validation),
        "spikes": rises,
        "largest_gradient": rounded(max(line["gradient_norm"] for line in lines)),
        **{
            name: rounded(last[name])
            for name in ("row_norm_mean", "row_norm_max", "mean_row_ratio", "output_share", "logit_std")
        },
        "course": {
            "step": [int(line["step"]) for line in measured],
            "loss": [rounded(smooth[int(line["step"]) - 1]) for line in measured],
            **{
                name: [rounded(line[name]) for line in measured]
                for name in ("row_norm_mean", "mean_row_ratio", "output_share", "logit_std")
            },
        },
    }


def rounded(value: float) -> float | None:
    """Four digits are enough to draw; JSON has no NaN."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def read_runs(out: Path) -> list[dict[str, Any]]:
    """All runs that were done; a line that a kill cut off does not count."""
    path = out / "runs.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


if __name__ == "__main__":
    sys.exit(main())
