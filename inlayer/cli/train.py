"""`inlayer train`: text files in, a model folder out.

- flags are generated from the fields of TrainConfig (training/config.py) and their help from its docstring, without
  importing torch
- with --resume, settings come from the run; a flag that contradicts them is an error, except a larger --steps
- progress goes to stderr (cli/train_progress.py); Ctrl-C saves, prints the command to resume, and exits with 130
- under torchrun every process runs this command; only the main one prints
Tested in tests/training/test_cli.py.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from inlayer.cli.app import INTERRUPTED, command
from inlayer.cli.output import console
from inlayer.training.config import TrainConfig

MAX_METAVAR = 11  # columns
TYPES = {"int": int, "float": float, "str": str, "bool": bool}
HELP = dict(re.findall(r"^    (\w+): (.+\.)$", inspect.getdoc(TrainConfig) or "", flags=re.MULTILINE))
RESUME, JSON = (typer.Option(flag, rich_help_panel="Run") for flag in ("--resume", "--json"))


def parameters() -> Iterator[inspect.Parameter]:
    """Yield the command's parameters: one flag per field of TrainConfig. None means that a flag was not given."""
    flags = {field.name: (annotation(field), None) for field in fields(TrainConfig) if field.metadata}
    switches = {"resume": (Annotated[bool, RESUME], False), "as_json": (Annotated[bool, JSON], False)}
    files = typer.Argument(help=option_help("files", None))
    for name, (kind, default) in ({"files": (Annotated[list[str] | None, files], None)} | flags | switches).items():
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def option_help(name: str, default: object) -> str:
    """Return a field's entry in the docstring. It ends with the default if that is derived from other fields."""
    text, _, derived = HELP.get(name, "").partition(" Default: ")
    shown = derived.removesuffix(".") or (f"{default:g}" if isinstance(default, float) else default)
    return text if shown is None else f"{text} \\[default: {shown}]"


def annotation(setting: Field[Any]) -> Any:
    """Return a field's type, help, and default in the form that Typer expects."""
    kind: Any = TYPES.get(str(setting.type).partition(" ")[0])
    flag, default, metavar = f"--{setting.name.replace('_', '-')}", setting.default, None
    if kind is bool:
        flag, default = (f"{flag}/--no-{flag[2:]}", flag[2:]) if setting.default else (flag, None)
    if "choices" in setting.metadata:
        choices = setting.metadata["choices"]
        kind, metavar = Literal[choices], "|".join(choices)
        if len(metavar) > MAX_METAVAR:  # would leave no room for long option names
            metavar = "NAME"
    help_text, group = option_help(setting.name, default), setting.metadata["group"]
    option = typer.Option(flag, metavar=metavar, help=help_text, show_default=False, rich_help_panel=group)
    return Annotated[kind | None, option]


def train(*, resume: bool, as_json: bool, **flags: Any) -> None:
    """Train a small model on your own text and see what its embeddings learned.

    Options:
        resume: Continue the run in --out. A larger --steps extends it.
        as_json: Print the report as JSON.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    given["files"] = tuple(given.get("files", ()))
    config = open_config(given, resume)  # without torch, so errors are reported quickly
    from inlayer.cli.train_progress import reporting
    from inlayer.training.train import train as run_training

    try:
        with reporting() as progress:
            report = run_training(config, resume=resume, progress=progress)
    except KeyboardInterrupt as stopped:
        if str(stopped):
            sys.stderr.write(f"{stopped}\n")
        raise typer.Exit(INTERRUPTED) from None
    if report is None:  # another process of torchrun has the report
        sys.stderr.flush()  # os._exit would drop buffered output
        os._exit(0)  # on a busy machine, gloo's threads can abort a process while its interpreter shuts down
    from inlayer.training.run_report import show, to_json

    if as_json:
        sys.stdout.write(to_json(report))
        return
    terminal, folder = console(), shlex.quote(config.out)
    shown = set(progress.warnings)
    show(replace(report, warnings=tuple(text for text in report.warnings if text not in shown)), terminal)
    has_plot = importlib.util.find_spec("matplotlib") is not None
    contents = "the model, report.html, training.png, and" if has_plot else "the model, report.html, and"
    terminal.print(f"\n{folder}/ contains {contents} metrics.jsonl. Try it:", soft_wrap=True)
    terminal.print(f'inlayer walk "I love dogs" --model {folder}', soft_wrap=True)
    if not has_plot:
        sys.stderr.write("the plot was skipped because it requires matplotlib: pip install 'inlayer[train]'\n")


def open_config(given: dict[str, Any], resume: bool) -> TrainConfig:
    """Return the given settings or, to resume a run, the run's settings, overridden by the given ones."""
    from inlayer.training.run_paths import check_new_run, is_run, open_run

    out, parallel = given.get("out", TrainConfig.out), given.get("parallel", TrainConfig.parallel)
    if not resume or (given["files"] and not is_run(Path(out))):
        config = TrainConfig(**given)
        if "RANK" not in os.environ:  # under torchrun, the main process may already have created the folder
            check_new_run(config)
        return config
    _, saved = open_run(out, parallel=parallel)
    return replace(saved, **{**given, "files": given["files"] or saved.files})


train.__signature__ = inspect.Signature(list(parameters()))  # type: ignore[attr-defined]
train.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters()}
command(
    "inlayer train book.txt --out model --preset toy --steps 100",
    "inlayer train",
    "inlayer train book.txt more/*.txt --out model",
    "inlayer train book.txt --out model --tokenizer bytes --architecture gpt",
    "inlayer train --out model --resume --steps 900",
    "torchrun --nproc-per-node 2 -m inlayer train book.txt --parallel data",
    "Without --preset toy, a run takes minutes on a CPU; Ctrl-C keeps the run, and --resume continues it.",
)(train)
