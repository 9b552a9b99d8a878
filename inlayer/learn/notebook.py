"""Lessons as Jupyter notebooks: writes them and provides the functions that their cells call.

lesson.md, task.md, exercises, quiz -> [notebook] -> .ipynb        in Jupyter: %load_ext inlayer.learn.notebook
- text becomes Markdown cells and Python fences become code cells, with the printed output stored
- a picture is an <img> with inline SVG, because JupyterLab does not show SVG attachments (jupyterlab#10464)
- `%%task gather` grades the cell just as the terminal grades gather.py, and defines the cell's names if its code runs;
  failures are printed, never raised, so a notebook always runs from top to bottom
- questions are generated when the notebook is written, so they stay the same when it runs again
- writing a notebook does not require Jupyter
Tested, including in a kernel, in tests/learn/test_notebook.py.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from inlayer.errors import InlayerError, InputError
from inlayer.files import file_errors, format_path, write_atomic
from inlayer.learn.course import Lesson, open_course
from inlayer.learn.links import parse_link, picture_data
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, Exercise, FreeTextQuestion, Question, random_seed
from inlayer.learn.service import CourseService
from inlayer.learn.terminal import CoursePrinter, EncodedOutput
from inlayer.render.markdown import to_notebook

EXTENSION = "%load_ext inlayer.learn.notebook"
INTRODUCTION = """Run the cells from top to bottom. In a cell that starts with `%%task` you write code; running it
grades it in a separate process, as `inlayer learn check` does. In a cell with `answer("...", "")` you write your answer
between the last two quotes."""
WIDTH = 100  # columns of printed text

Cell = dict[str, Any]


def write_notebooks(
    folder: Path, lessons: list[Lesson], *, overwrite: bool = False, seed: int | None = None
) -> list[Path]:
    """Write a notebook for each lesson, or none if one of them exists and may not be overwritten."""
    paths = [folder / file_name(lesson) for lesson in lessons]
    existing = [format_path(path) for path in paths if path.exists() or path.is_symlink()]
    if existing and not overwrite:
        raise InputError(
            f"{', '.join(existing)}: already exists and may contain your answers; nothing was written. Choose another "
            "folder, or use --overwrite"
        )
    seed = random_seed() if seed is None else seed
    texts = [json.dumps(make_notebook(lesson, seed), ensure_ascii=False, indent=1) + "\n" for lesson in lessons]
    with file_errors(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            write_atomic(path, text.encode())
    return paths


def file_name(lesson: Lesson) -> str:
    return f"{lesson.number:02}-{lesson.id}.ipynb"


def make_notebook(lesson: Lesson, seed: int) -> dict[str, Any]:
    """Return a lesson in notebook format 4.5."""
    cells = list(_cells(lesson, seed))
    for index, cell in enumerate(cells):
        cell["id"] = f"{lesson.id}-{index}"
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def _cells(lesson: Lesson, seed: int) -> Iterator[Cell]:
    yield _markdown(f"# {lesson.number}. {lesson.title}\n\n{INTRODUCTION}")
    yield _code(EXTENSION)
    yield from _text_cells(lesson.text, lesson)
    yield _markdown("## Tasks")
    for task in lesson.tasks:
        yield from _text_cells(f"### {task.title}\n\n{task.text}", lesson, split=False)
        hints = [f"<details><summary>Hint {number}</summary>\n\n{_joined(hint, lesson)}\n\n</details>"
                 for number, hint in enumerate(task.hints, start=1)]  # fmt: skip
        yield _markdown("\n\n".join(hints))
        yield _code(f"%%task {task.id}\n{task.starter.rstrip()}")
    yield _markdown("## Exercises")
    for exercise in lesson.exercises:
        yield _markdown(f"### {exercise.title}")
        yield from _question_cells(exercise, seed)
    yield _markdown("## Quiz")
    for question in lesson.questions:
        yield from _question_cells(question, seed)


def _question_cells(question: Exercise | Question, seed: int) -> Iterator[Cell]:
    shown = io.StringIO()
    plain_printer(shown).question(question.ask(seed))
    yield _code(f'ask("{question.id}", seed={seed})', shown.getvalue())
    yield _code(f'answer("{question.id}", "")')


def _text_cells(text: str, lesson: Lesson, *, split: bool = True) -> Iterator[Cell]:
    """Yield the cells of a text; with `split`, Python fences become code cells."""
    for part in to_notebook(text, partial(_rewrite_link, lesson), _link_command, split=split):
        yield _code(part.text, part.output) if part.kind == "python" else _markdown(part.text)


def _joined(text: str, lesson: Lesson) -> str:
    return "".join("".join(cell["source"]) for cell in _text_cells(text, lesson, split=False))


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, output: str | None = None) -> Cell:
    stored = {"output_type": "stream", "name": "stdout", "text": (output or "").splitlines(keepends=True)}
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "source": text.splitlines(keepends=True),
        "outputs": [stored] if output else [],
    }


def _rewrite_link(lesson: Lesson, is_picture: bool, text: str, address: str) -> str:
    """Rewrite a link or picture of the course for a notebook; commands are printed below the text."""
    if is_picture:
        alt = html.escape(" ".join(text.split()))
        return f'<img alt="{alt}" src="{picture_data(address)}">'
    link = parse_link(address)
    if link is None or link.kind == "web":
        return f"[{text}]({address})"
    if link.kind not in {"task", "lesson"}:
        return text
    course = open_course()
    target = course.lesson(course.task(link.target).lesson if link.kind == "task" else link.target)
    return f"{text} (below)" if target.id == lesson.id else f"[{text}]({file_name(target)})"


def _link_command(address: str) -> str | None:
    link = parse_link(address)
    return link.command if link is not None and link.kind in {"walk", "misconception"} else None


# ---- in the notebook


def load_ipython_extension(shell: Any) -> None:
    """Add %%task, ask, and answer to a notebook: %load_ext inlayer.learn.notebook"""
    shell.register_magic_function(partial(_grade_cell, shell), magic_kind="cell", magic_name="task")
    shell.push({"ask": ask, "answer": answer})


@contextlib.contextmanager
def _printed_errors() -> Iterator[None]:
    """Print an error instead of raising it."""
    try:
        yield
    except InlayerError as error:
        sys.stdout.write(f"{error}\n")


@_printed_errors()
def _grade_cell(shell: Any, line: str, cell: str) -> None:
    """Grade the cell as a task's file, and define its names in the notebook."""
    service, out = _open_service(), plain_printer(sys.stdout)
    task = service.course.task(line)
    verdict = service.check(task, cell)  # comes first, because it stops endless code
    if any(result.name == "runs" and result.state == "passed" for result in verdict.results):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            shell.run_cell(cell, store_history=False)
        if not verdict.printed.startswith(printed.getvalue()):  # otherwise the verdict shows it
            sys.stdout.write(printed.getvalue())
    out.checks(verdict)
    if verdict.passed:
        out.passed(task, verdict, service.compare_with_walk(verdict))
        step = service.overview().next_step
        out.line(f"Next: {step.title}" if step else "You have finished the course.", wrap=False)


_seeds: dict[str, int] = {}  # seeds of the questions asked in this notebook


@_printed_errors()
def ask(name: str, seed: int | None = None) -> None:
    """Print an exercise or quiz question, generated from the seed."""
    _seeds[name] = random_seed() if seed is None else seed
    plain_printer(sys.stdout).question(CourseService().ask(name, _seeds[name]))


@_printed_errors()
def answer(name: str, text: str) -> None:
    """Print whether an answer to the most recent question is correct."""
    if not text.strip():
        raise InputError("Write your answer between the quotes, and run this cell again.")
    if name not in _seeds:
        raise InputError(f'Run ask("{name}") first; it generates the question.')
    service, out = _open_service(), plain_printer(sys.stdout)
    question = service.ask(name, _seeds[name])
    if isinstance(question, FreeTextQuestion):  # only the learner can mark it done: `inlayer learn exercise --done`
        out.sample_answer(question, with_points=True)
        return
    result = service.answer(question, text)
    out.answer_result(result)
    if result.correct and isinstance(question, ChoiceQuestion):
        out.reasons(question)


def plain_printer(stream: TextIO) -> CoursePrinter:
    """Return a printer for plain text, as shown in a notebook."""
    file: Any = EncodedOutput(stream)
    return CoursePrinter(Console(file=file, width=WIDTH, highlight=False, color_system=None, force_jupyter=False))


def _open_service() -> CourseService:
    return CourseService(ProgressFile(allow_unsaved=True, on_notice=lambda line: sys.stdout.write(f"({line})\n")))
