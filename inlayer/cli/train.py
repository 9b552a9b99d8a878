"""`inlayer train`: text files in, a model's folder out.

- what is not said takes its default when a run begins; with --resume everything is as the run was begun, and saying
  something else is an error
- progress goes to stderr: a bar where that is a terminal, a line now and then where it is not
- Ctrl-C ends after the step at hand, saves, and says how to go on: exit code 130
- under torchrun every process comes through here; only the first one talks
"""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.app import app, console
from inlayer.errors import ConfigError
from inlayer.paths import check_path

if TYPE_CHECKING:
    from inlayer.training.run import Plan, Run

__all__ = ["train"]

OUT = "trained"
PRESET, ARCHITECTURE, VOCAB_SIZE = "small", "llama", 4096
SECONDS = 10.0  # between two lines of progress where there is no bar

EXAMPLES = """Examples:

inlayer train

inlayer train book.txt more/*.txt --out model

inlayer train book.txt --out model --tokenizer bytes --architecture gpt --preset toy --steps 300

inlayer train book.txt --out model --vocab-size 8192 --n-embd 256 --no-tie

inlayer train --out model --resume

torchrun --nproc-per-node 2 -m inlayer train book.txt --out model --parallel data
"""


@app.command(epilog=EXAMPLES)
def train(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Text files, UTF-8. Without one, the English that every Python carries."),
    ] = None,
    out: Annotated[str, typer.Option(help="The folder to make; it becomes the model.")] = OUT,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(help='"bpe" trains one on the text, "bytes" needs none, or the path of one.', show_default="bpe"),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Ids of the tokenizer that is trained.", show_default=str(VOCAB_SIZE))
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Sizes by name: toy, small, medium-256, medium-512, base-768, large-1024.", show_default=PRESET
        ),
    ] = None,
    architecture: Annotated[str | None, typer.Option(help="gpt or llama.", show_default=ARCHITECTURE)] = None,
    positions: Annotated[str | None, typer.Option(help="Of gpt: learned or sinusoidal; llama has rotary ones.")] = None,
    n_embd: Annotated[int | None, typer.Option(help="Width of a row.")] = None,
    n_layer: Annotated[int | None, typer.Option(help="Blocks.")] = None,
    n_head: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    n_kv_head: Annotated[int | None, typer.Option(help="Heads of keys and values, of llama.")] = None,
    n_hidden: Annotated[int | None, typer.Option(help="Width of the feed-forward half.")] = None,
    block_size: Annotated[int | None, typer.Option(help="Tokens the model sees at once.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Share that is dropped.", show_default="0")] = None,
    tie: Annotated[
        bool | None, typer.Option("--tie/--no-tie", help="Whether the head reads the table.", show_default="tie")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps in all.", show_default="600")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Windows in a step, over all processes.", show_default="16")
    ] = None,
    accumulate: Annotated[int | None, typer.Option(help="Passes in which a step is done.", show_default="1")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest one.", show_default="0.002")] = None,
    table_rate: Annotated[float | None, typer.Option(help="Times it: of the table.", show_default="1")] = None,
    head_rate: Annotated[float | None, typer.Option(help="Times it: of an untied head.", show_default="1")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of the body's matrices.", show_default="0.1")] = None,
    table_decay: Annotated[float | None, typer.Option(help="Of table, positions and head.", show_default="0")] = None,
    warmup: Annotated[
        int | None,
        typer.Option(help="Steps until the learning rate is reached.", show_default="a tenth of the steps, at most 50"),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="After them: cosine, linear or constant.", show_default="cosine")
    ] = None,
    shared_moment: Annotated[
        bool | None,
        typer.Option(
            "--shared-moment", help="One second moment of Adam's for the whole vocabulary.", show_default=False
        ),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of the gradient; 0 for any.", show_default="1")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, or bfloat16 (autocast).", show_default="float32")
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of the text that validates.", show_default="0.05")
    ] = None,
    validate_every: Annotated[int | None, typer.Option(help="Steps between validations.", show_default="100")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between states on disk.", show_default="100")] = None,
    seed: Annotated[int | None, typer.Option(help="The same one gives the same losses.", show_default="0")] = None,
    parallel: Annotated[
        str, typer.Option(help="Under torchrun: data (FSDP2) or vocab (table and head cut by rows).")
    ] = "data",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a small model on your own text and see what its embeddings learned."""
    from inlayer.training.parallel import WAYS, world
    from inlayer.training.run import Run

    model = {
        "architecture": architecture, "positions": positions, "n_embd": n_embd, "n_layer": n_layer, "n_head": n_head,
        "n_kv_head": n_kv_head, "n_hidden": n_hidden, "block_size": block_size, "dropout": dropout, "tie": tie,
    }  # fmt: skip
    settings = {
        "steps": steps, "batch_size": batch_size, "accumulate": accumulate, "learning_rate": learning_rate,
        "table_rate": table_rate, "head_rate": head_rate, "weight_decay": weight_decay, "table_decay": table_decay,
        "warmup": warmup, "schedule": schedule, "shared_moment": shared_moment, "clip": clip,
        "precision": precision, "seed": seed, "validate_every": validate_every, "save_every": save_every,
    }  # fmt: skip
    rest = {"tokenizer": tokenizer, "vocab_size": vocab_size, "validation": validation}
    if parallel not in WAYS:
        raise ConfigError(f"--parallel is {parallel!r}; choose one of {', '.join(WAYS)}")
    asked = [{name: value for name, value in given.items() if value is not None} for given in (model, settings, rest)]
    with world() as here:
        begun = begin(out, resume, files or [], preset, *asked) if here.is_first else None
        here.barrier()
        run = begun or Run.find(out)
        try:
            with watching(here.is_first) as watcher:
                finished = run.go(watcher, world=here, how=parallel)
        except KeyboardInterrupt:  # before the first step, or a second time
            if here.is_first:
                say_how_to_go_on(run, here.size, parallel)
            raise
        if here.is_first and finished:
            finish(run, as_json=as_json)
        elif here.is_first:
            say_how_to_go_on(run, here.size, parallel)
    if not finished:
        raise typer.Exit(130)


def begin(out: str, resume: bool, files: list[str], preset: str | None, *asked: dict[str, Any]) -> Run:
    """Begin a run in `out`, or see that the one there is the one that was asked for."""
    from inlayer.training.run import Run, is_run

    if resume and (is_run(Path(out)) or not files):
        found = Run.find(out)
        check_same(found.plan, files, preset, *asked)
        return found
    return Run.begin(out, make_plan(files, preset, *asked))


def make_plan(
    files: list[str], preset: str | None, model: dict[str, Any], settings: dict[str, Any], rest: dict[str, Any]
) -> Plan:
    """What was asked for, with a default for all that was not said."""
    from inlayer.training.config import Settings
    from inlayer.training.presets import sizes_of
    from inlayer.training.recipe import recipe
    from inlayer.training.run import Plan

    rest.setdefault("tokenizer", "bpe")
    if rest["tokenizer"] == "bpe":
        rest.setdefault("vocab_size", VOCAB_SIZE)
    kept = keep_paths(files, rest)
    model = {"architecture": ARCHITECTURE, "tie": True, **model}
    model = {**recipe(tie=model["tie"]), **sizes_of(preset or PRESET, model["architecture"]), **model}
    settings.setdefault("warmup", min(Settings.warmup, settings.get("steps", Settings.steps) // 10))
    return Plan(
        files=kept,
        model=model,
        settings=Settings(**settings),
        **rest,
    )


def keep_paths(files: list[str], rest: dict[str, Any]) -> tuple[str, ...]:
    """The files, and in `rest` the tokenizer, by whole paths: a run may be resumed from another folder."""
    if rest.get("tokenizer", "bpe") not in ("bpe", "bytes"):
        rest["tokenizer"] = str(Path(rest["tokenizer"]).resolve())
    return tuple(str(check_path(file, "a file").resolve()) for file in files)


def check_same(
    plan: Plan,
    files: list[str],
    preset: str | None,
    model: dict[str, Any],
    settings: dict[str, Any],
    rest: dict[str, Any],
) -> None:
    """Raise ConfigError where something else is asked for than what the run was begun with."""
    from inlayer.training.presets import sizes_of

    sizes = sizes_of(preset, plan.model["architecture"]) if preset else {}
    kept = keep_paths(files, rest)
    config = plan.config(vocab_size=1, padding_idx=None)
    begun = {**asdict(config), **asdict(plan), **asdict(plan.settings), "positions": config.position_scheme}
    begun |= {"n_kv_head": config.kv_heads, "n_hidden": config.hidden_width}
    for name, value in {**sizes, **model, **settings, **rest}.items():
        if begun.get(name) != value:
            raise ConfigError(
                f"--resume goes on with the run as it was begun, with {name.replace('_', '-')} {begun.get(name)}, not "
                f"{value}; leave it out, or begin another run"
            )
    if files and kept != plan.files:
        raise ConfigError("--resume goes on with the text the run was begun with; leave the files out")


def finish(run: Run, *, as_json: bool) -> None:
    """Say what came out."""
    from inlayer.training.outcome import report_on
    from inlayer.training.report import show, to_json

    report = report_on(run)
    if as_json:
        sys.stdout.write(to_json(report))
        return
    out, folder = console(), shlex.quote(str(run.folder))
    show(report, out)
    out.print(f"\n{folder} holds the model, report.html and metrics.jsonl. See your own text in it:", soft_wrap=True)
    out.print(f'inlayer walk "I love dogs" --model {folder}', soft_wrap=True)
    if not (run.folder / "training.png").exists():
        sys.stderr.write("no picture was drawn: that needs matplotlib, pip install 'inlayer[train]'\n")


def say_how_to_go_on(run: Run, processes: int, how: str) -> None:
    """For one that was stopped."""
    again = f"inlayer train --out {shlex.quote(str(run.folder))} --resume"
    if processes > 1:
        again = f"torchrun --nproc-per-node {processes} -m {again} --parallel {how}"
    sys.stderr.write(f"stopped at step {len(run.metrics):,} of {run.plan.settings.steps:,}; go on with: {again}\n")


class Lines:
    """A line of progress now and then, for a log."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._next = 0.0
        self._stage = ""  # not told yet
        self._timer: threading.Timer | None = None

    def at(self, stage: str, total: int | None = None) -> None:
        """A stage begins. It is told a moment later: what is refused at once is told in one line."""
        self.tell()
        self._total, self._stage = total, stage
        self._timer = threading.Timer(1.0, self.tell)
        self._timer.daemon = True
        self._timer.start()

    def tell(self) -> None:
        """Say now which stage it is."""
        stage, self._stage = self._stage, ""
        if stage:
            sys.stderr.write(f"{stage}\n")

    def end(self) -> None:
        """Nothing more will be told."""
        if self._timer is not None:
            self._timer.cancel()

    def done(self, amount: int) -> None:
        """Of no interest here."""

    def step(self, line: dict[str, int | float], warnings: list[str]) -> None:
        """A step was taken."""
        self.tell()
        for warning in warnings:
            sys.stderr.write(f"warning: {warning}\n")
        now, last = time.monotonic(), line["step"] == self._total
        if now >= self._next or last:
            self._next = now + SECONDS
            sys.stderr.write(describe(line, self._total) + "\n")


class Bar(Lines):
    """A bar that is redrawn; what is written beside it stays."""

    def __init__(self, bar: Any) -> None:
        super().__init__()
        self.bar: Any = bar
        self.task: Any = None

    def at(self, stage: str, total: int | None = None) -> None:
        """A stage begins."""
        if self.task is not None:
            self.bar.remove_task(self.task)
        self._total = total
        self.task = self.bar.add_task(stage, total=total)

    def done(self, amount: int) -> None:
        """So much of the stage is done."""
        self.bar.update(self.task, completed=amount)

    def step(self, line: dict[str, int | float], warnings: list[str]) -> None:
        """A step was taken."""
        for warning in warnings:
            self.bar.console.print(f"[yellow]warning[/] {warning}", highlight=False)
        self.bar.update(self.task, completed=line["step"], description=describe(line, None))


def describe(line: dict[str, int | float], total: int | None) -> str:
    """A step in a few words."""
    words = [f"step {int(line['step']):,} of {total:,}"] if total else []
    words.append(f"loss {line['loss']:.3f}")
    if "validation_loss" in line:
        words.append(f"validation {line['validation_loss']:.3f}")
    speed = line["tokens"] / line["seconds"] if line["seconds"] else 0.0
    words.append(f"{speed:,.0f} tokens/s")
    if total:
        left = (total - line["step"]) * line["seconds"] / line["step"]
        words.append(f"{duration(left)} left")
    return "  ".join(words)


def duration(seconds: float) -> str:
    """To the precision that matters."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@contextmanager
def watching(first: bool) -> Iterator[Lines | None]:
    """Whoever shows how the run goes."""
    if not first:
        yield None
        return
    if not sys.stderr.isatty():
        lines = Lines()
        try:
            yield lines
        finally:
            lines.end()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        yield Bar(bar)
