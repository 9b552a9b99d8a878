"""Study of weight tying: small decoders trained in many ways, at four learning rates with three seeds each.

    python -m benchmarks.tying            # the whole study, resumable: about 2 hours on two cores
    python -m benchmarks.tying --short    # a few steps of two variants, as in the tests
    python -m benchmarks.tying --document # only updates docs/tying.md and its plots from the runs on disk

- question: why does training with a tied table become unstable, and what keeps it stable?
- runs differ in variant, learning rate and seed only: the text (from Python's standard library), the tokenizer, and the
  windows of a seed are the same
- every finished run is a line of docs/tying/runs.jsonl and is not repeated
- a run has diverged if its loss is not finite, ends above its start, or ends more than half a nat above its best. It
  has collapsed if it ends at or above the unigram loss, which token frequencies alone give
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from inlayer.training.encoded_corpus import EncodedCorpus

HERE = Path(__file__).parent.parent / "docs" / "tying"
SIZES = {"architecture": "llama", "n_embd": 96, "n_layer": 2, "n_head": 4, "block_size": 64}
VOCAB_SIZE = 2048
STEPS, BATCH, LEARNING_RATE = 400, 8, 1e-3
FACTORS, SEEDS = (1, 3, 10, 30), (0, 1, 2)
ROOT = math.sqrt(SIZES["n_embd"])  # type: ignore[arg-type]
DIVERGED = 0.5  # nats above the best smoothed loss
UNIGRAM_MARGIN = 0.1  # nats below the unigram loss
WINDOW = 25  # steps of the running mean

# AdamW with torch's defaults: the table decays like everything else, and the learning rate is constant.
TORCH_DEFAULTS = {
    "adam_beta2": 0.999, "weight_decay": 0.01, "embedding_weight_decay": 0.01, "warmup_steps": 0,
    "lr_schedule": "constant", "max_grad_norm": 0.0,
}  # fmt: skip
TUNED = {"embedding_weight_decay": 0.0, "warmup_steps": 40, "max_grad_norm": 1.0}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to train: how its decoder and its training settings differ from the plain tied run."""

    name: str
    about: str
    kind: str
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


GEMMA = {"init": "scaled", "input_scale": ROOT}
T5 = {"init": "embedding", "output_scale": 1 / ROOT}
INPUT_SCALE = {"input_scale": 1 / 0.02}
UNTIED_DEFAULT = "untied, tuned AdamW, input scale 50"
TIED_DEFAULT = "tuned AdamW, input scale 50, output scale 3"  # what `inlayer train` does
VARIANTS = (
    Variant(name="untied", about="separate head, torch's AdamW defaults", kind="reference", model={"tie": False}),
    Variant(name="untied, tuned AdamW", about="separate head, warm-up, clipping, no decay on the table or the head",
            kind="reference", model={"tie": False}, settings=TUNED),
    Variant(name=UNTIED_DEFAULT, about="plus rows multiplied by 50", kind="reference",
            model={"tie": False, **INPUT_SCALE}, settings=TUNED),
    Variant(name="tied", about="one table, N(0, 0.02), torch's AdamW defaults", kind="reference"),
    Variant(name="Gemma scales", about="init 1/sqrt(D), input scale sqrt(D)", kind="alone", model=GEMMA),
    Variant(name="T5 scales", about="init 1, output scale 1/sqrt(D)", kind="alone", model=T5),
    Variant(name="input norm", about="RMSNorm after the lookup", kind="alone", model={"input_norm": True}),
    Variant(name="input scale 50", about="N(0, 0.02), rows multiplied by 50", kind="alone", model=INPUT_SCALE),
    Variant(name="z-loss", about="1e-3 times the squared log normalizer", kind="alone", settings={"z_loss": 1e-3}),
    Variant(name="soft cap", about="logits capped at 30", kind="alone", model={"soft_cap": 30.0}),
    Variant(name="no table decay", about="no weight decay on the table", kind="alone",
            settings={"embedding_weight_decay": 0.0}),
    Variant(name="table rate x0.3", about="0.3 times the learning rate for the table", kind="alone",
            settings={"embedding_lr_scale": 0.3}),
    Variant(name="centered table", about="mean vector subtracted after each step", kind="alone",
            settings={"center": True}),
    Variant(name="shared moment", about="AdamW's second moment averaged over the vocabulary", kind="alone",
            settings={"shared_second_moment": True}),
    Variant(name="input gradient x0.1", about="0.1 times the gradient of the lookups", kind="alone",
            settings={"input_gradient_scale": 0.1}),
    Variant(name="untied at 2/3", about="untied after two thirds of the steps, moments copied", kind="alone",
            settings={"untie_at": 2 / 3}),
    Variant(name="clipping", about="gradient norm clipped at 1", kind="alone", settings={"max_grad_norm": 1.0}),
    Variant(name="warm-up", about="40 steps of warm-up", kind="alone", settings={"warmup_steps": 40}),
    Variant(name="tuned AdamW", about="warm-up, clipping, no decay on the table", kind="combined", settings=TUNED),
    Variant(name="tuned AdamW, Gemma scales", about="plus Gemma's scales", kind="combined", model=GEMMA,
            settings=TUNED),
    Variant(name="tuned AdamW, T5 scales", about="plus T5's scales", kind="combined", model=T5, settings=TUNED),
    Variant(name="tuned AdamW, input norm", about="plus RMSNorm after the lookup", kind="combined",
            model={"input_norm": True}, settings=TUNED),
    Variant(name="tuned AdamW, input scale 50", about="plus rows multiplied by 50", kind="combined",
            model=INPUT_SCALE, settings=TUNED),
    Variant(name="tuned AdamW, centered table", about="plus a centered table", kind="combined",
            settings={**TUNED, "center": True}),
    Variant(name="tuned AdamW, shared moment", about="plus a shared second moment", kind="combined",
            settings={**TUNED, "shared_second_moment": True}),
    Variant(name="tuned AdamW, input scale 50, centered table", about="plus rows x 50, centered", kind="combined",
            model=INPUT_SCALE, settings={**TUNED, "center": True}),
    Variant(name="tuned AdamW, input scale 50, shared moment", about="plus rows x 50, shared moment", kind="combined",
            model=INPUT_SCALE, settings={**TUNED, "shared_second_moment": True}),
    Variant(name="tuned AdamW, input scale 50, table rate x3", about="plus 3 times the learning rate for the table",
            kind="combined", model=INPUT_SCALE, settings={**TUNED, "embedding_lr_scale": 3.0}),
    Variant(name="tuned AdamW, input scale 50, z-loss", about="plus rows x 50, z-loss",
            kind="combined", model=INPUT_SCALE, settings={**TUNED, "z_loss": 1e-3}),
    Variant(name=TIED_DEFAULT, about="plus the input of the head multiplied by 3", kind="combined",
            model={**INPUT_SCALE, "output_scale": 3.0}, settings=TUNED),
    Variant(name="tuned AdamW, input scale 50, untied at 2/3", about="plus rows x 50, untied later",
            kind="combined", model=INPUT_SCALE, settings={**TUNED, "untie_at": 2 / 3}),
)  # fmt: skip


EXPERIMENTS = ("center", "input_gradient_scale", "untie_at")  # settings of StudyTrainer only


# ---- running


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tying", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--short", action="store_true", help="run two variants at two rates with one seed, for 20 steps"
    )
    parser.add_argument("--document", action="store_true", help="only update the document and its plots")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the runs")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    arguments = parser.parse_args()
    if not arguments.document:
        jobs = list(short_jobs() if arguments.short else all_jobs())
        run_all(jobs, arguments.out, arguments.processes)
    if not arguments.short:
        from benchmarks.tying_report import write

        write(read_runs(arguments.out), arguments.out)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of the study."""

    variant: str
    factor: float
    seed: int
    steps: int = STEPS

    @property
    def key(self) -> tuple[str, float, int, int]:
        return self.variant, self.factor, self.seed, self.steps


def all_jobs() -> Iterator[Job]:
    """Jobs seed by seed, so an interrupted study covers everything once."""
    for seed in SEEDS:
        for variant in sorted(VARIANTS, key=lambda one: one.kind == "alone"):
            for factor in FACTORS:
                yield Job(variant=variant.name, factor=factor, seed=seed)


def short_jobs() -> Iterator[Job]:
    for name in ("tied", TIED_DEFAULT):
        for factor in (1, 30):
            yield Job(variant=name, factor=factor, seed=0, steps=20)


def run_all(jobs: Sequence[Job], out: Path, processes: int) -> None:
    """Run the jobs that are not done yet, several at a time, one thread each."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "runs.jsonl"
    if path.exists() and not path.read_bytes().endswith(b"\n"):  # cut off by a kill
        path.write_text("".join(json.dumps(run) + "\n" for run in read_runs(out)), encoding="utf-8")
    done = {(line["variant"], line["factor"], line["seed"], line["steps"]) for line in read_runs(out)}
    left = [job for job in jobs if job.key not in done]
    print(f"{len(jobs)} runs, {len(jobs) - len(left)} already done", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(processes) as pool:
        make_tokens(Path(folder))
        for number, line in enumerate(pool.imap_unordered(run_one, [(job, folder) for job in left]), 1):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            left_s = (time.monotonic() - started) / number * (len(left) - number)
            failures = [word for word in ("diverged", "collapsed") if line[word]]
            print(
                f"{number}/{len(left)}  {line['variant']:<44} x{line['factor']:<3} seed {line['seed']}  "
                f"{line['validation_loss']} {' '.join(failures)}  {left_s / 60:.0f} min left",
                flush=True,
            )


def make_tokens(folder: Path) -> None:
    """Encode the text of Python's standard library with a tokenizer trained on it."""
    from inlayer import train_bpe
    from inlayer.training.corpus import python_chunks
    from inlayer.training.encoded_corpus import write_tokens

    text = folder / "text.txt"
    text.write_text("".join(chunk.text for chunk in python_chunks()), encoding="utf-8")
    tokenizer = train_bpe(text, VOCAB_SIZE)
    write_tokens(folder / "tokens", python_chunks(), tokenizer, separator=None)


def run_one(job_and_folder: tuple[Job, str]) -> dict[str, Any]:
    """Run one job, in its own process."""
    import torch

    from benchmarks.tying_trainer import StudyTrainer
    from inlayer.training.config import DecoderConfig, TrainConfig
    from inlayer.training.encoded_corpus import draw_batch, open_tokens, validation_batches

    torch.set_num_threads(1)
    job, folder = job_and_folder
    variant = next(one for one in VARIANTS if one.name == job.variant)
    tokens = open_tokens(Path(folder, "tokens"))
    config = DecoderConfig(**{**SIZES, "vocab_size": tokens.vocab_size, "tie": True, **variant.model})
    experiments = {name: variant.settings[name] for name in EXPERIMENTS if name in variant.settings}
    plain = {name: value for name, value in variant.settings.items() if name not in EXPERIMENTS}
    settings = TrainConfig(
        **{
            "steps": job.steps, "batch_size": BATCH, "learning_rate": LEARNING_RATE * job.factor, "seed": job.seed,
            "log_interval": 10, "tie": config.tie, **TORCH_DEFAULTS, **plain,
        }
    )  # fmt: skip
    trainer, width = StudyTrainer(config, settings, **experiments), config.block_size + 1
    lines: list[dict[str, float]] = []
    started = time.perf_counter()
    for step in range(1, job.steps + 1):
        windows = draw_batch(tokens.train, rows=BATCH, width=width, seed=job.seed, step=step)
        lines.append(trainer.take_step(windows))
        if not math.isfinite(lines[-1]["loss"]):
            break
    seconds = time.perf_counter() - started
    validation = math.nan
    if math.isfinite(lines[-1]["loss"]):
        validation = trainer.validate(validation_batches(tokens.validation, rows=16, width=width, max_windows=192))
    return {
        "variant": job.variant, "factor": job.factor, "seed": job.seed, "steps": job.steps,
        **summarize(lines, validation, unigram_loss(tokens)), "seconds": round(seconds, 1),
    }  # fmt: skip


def unigram_loss(tokens: EncodedCorpus) -> float:
    """Validation loss of a model that only knows the token frequencies of the training text."""
    shares_V = (tokens.count_ids() + 1) / (tokens.train.size + tokens.vocab_size)
    return float(-np.log(shares_V[tokens.validation]).mean())


def summarize(lines: Sequence[Mapping[str, float]], validation: float, unigram: float) -> dict[str, Any]:
    """Summary of a run: how it ended, how many spikes it had, and points of its curves."""
    smoothed = [
        statistics.fmean(line["loss"] for line in lines[max(0, end - WINDOW) : end]) for end in range(1, len(lines) + 1)
    ]
    measured = [line for line in lines if "row_norm_mean" in line]
    last = measured[-1]
    best = min(smoothed)
    finite = all(math.isfinite(value) for value in (smoothed[-1], validation))
    diverged = not finite or validation > lines[0]["loss"] or smoothed[-1] > best + DIVERGED
    spikes = sum(
        line["loss"] > before + 1.0 for line, before in zip(lines[1:], smoothed, strict=False) if math.isfinite(before)
    )
    return {
        "diverged": diverged,
        "collapsed": not diverged and validation > unigram - UNIGRAM_MARGIN,
        "unigram_loss": rounded(unigram),
        "validation_loss": rounded(validation),
        "spikes": spikes,
        "largest_gradient": rounded(max(line["gradient_norm"] for line in lines)),
        **{
            name: rounded(last[name])
            for name in ("row_norm_mean", "row_norm_max", "mean_vector_ratio", "head_gradient_share", "logit_std")
        },
        "curves": {
            "step": [int(line["step"]) for line in measured],
            "loss": [rounded(smoothed[int(line["step"]) - 1]) for line in measured],
            **{
                name: [rounded(line[name]) for line in measured]
                for name in ("row_norm_mean", "mean_vector_ratio", "head_gradient_share", "logit_std")
            },
        },
    }


def rounded(value: float) -> float | None:
    """Four digits, enough for a plot; None for NaN, which JSON lacks."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def read_runs(out: Path) -> list[dict[str, Any]]:
    """All finished runs, without a line that a kill cut off."""
    path = out / "runs.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


if __name__ == "__main__":
    main()
