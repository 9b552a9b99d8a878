"""Lessons as notebooks: write them, and what their cells call.

lesson.md, task.md, exercises, quiz -> [notebook] -> .ipynb        in Jupyter: %load_ext inlayer.learn.notebook
- text becomes Markdown cells, its python fences code cells; what a fence prints is stored as the cell's output
- a picture is an <img> that holds its SVG: JupyterLab shows no SVG that is an attachment (jupyterlab#10464)
- `%%task gather` grades the cell as the terminal grades gather.py, and defines it in the notebook if it runs at all;
  what fails is printed and never raised, so that a notebook runs top to bottom at any time
- exercises are drawn when the notebook is written: the numbers stay when it runs again, and differ in the next one
- needs nothing of Jupyter's to write one
Checked, in a kernel too, in tests/learn/test_notebook.py.
"""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from inlayer.errors import InlayerError, InputError
from inlayer.learn import quiz
from inlayer.learn.course import CONTENT, Lesson, Task, open_course
from inlayer.learn.messages import asked_words, judged_words, model_words, passed_words, verdict_words
from inlayer.learn.progress import Progress, State
from inlayer.learn.questions import Asked, FreeTextQuestion
from inlayer.paths import quoted, shown
from inlayer.saving import put

__all__ = [
    "Piece",
    "answer",
    "ask",
    "cut_lesson",
    "file_name",
    "load_ipython_extension",
    "task_cells",
    "write_notebooks",
]

EXTENSION = "%load_ext inlayer.learn.notebook"
MAGIC = re.compile(r"\s*%%task[ \t]+(\S+)[ \t]*\n?")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
HOW = """Run the cells from top to bottom. A cell that begins with `%%task` is yours to fill in: running it grades it,
in a process of its own, as `inlayer learn check` does. `answer("...", "")` waits for your answer between the quotes."""

Cell = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a lesson: text, or code that runs with what it prints."""

    kind: str  # "text" or "python"
    text: str
    output: str | None = None


def write_notebooks(
    folder: Path, lessons: list[Lesson], *, overwrite: bool = False, seed: int | None = None
) -> list[Path]:
    """Write a notebook for each lesson; none if one is there already and may not be written over."""
    paths = [folder / file_name(lesson) for lesson in lessons]
    there = [shown(path) for path in paths if path.exists() or path.is_symlink()]
    if there and not overwrite:
        raise InputError(
            f"{', '.join(there)}: already there, perhaps with your answers; nothing was written. "
            "Name another folder, or overwrite (--overwrite)"
        )
    seed = secrets.randbelow(2**31) if seed is None else seed
    made = [json.dumps(notebook(lesson, seed), ensure_ascii=False, indent=1) + "\n" for lesson in lessons]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, made, strict=True):
            put(path, text.encode())
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be written to: {error.strerror}") from error
    return paths


def file_name(lesson: Lesson) -> str:
    return f"{lesson.number:02}-{lesson.id}.ipynb"


def notebook(lesson: Lesson, seed: int) -> dict[str, Any]:
    """A lesson in the notebook format 4.5."""
    cells = list(_cells(lesson, seed))
    for number, cell in enumerate(cells):
        cell["id"] = f"{lesson.id}-{number}"
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def cut_lesson(text: str) -> Iterator[Piece]:
    """Cut a text at its python fences; a ```text fence right after one is what it prints."""
    held: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        end = _fence_end(lines, at)
        if line.rstrip() != "```python":
            held += lines[at:end]
            at = end
            continue
        if "\n".join(held).strip():
            yield Piece(kind="text", text="\n".join(held).strip("\n"))
        held, code, at = [], lines[at + 1 : end - 1], end
        following = next((number for number in range(at, len(lines)) if lines[number].strip()), at)
        output = None
        if following < len(lines) and lines[following].rstrip() == "```text":
            at = _fence_end(lines, following)
            output = "".join(line + "\n" for line in lines[following + 1 : at - 1])
        yield Piece(kind="python", text="\n".join(code), output=output)
    if "\n".join(held).strip():
        yield Piece(kind="text", text="\n".join(held).strip("\n"))


def _fence_end(lines: list[str], at: int) -> int:
    """The line after the fence that begins at a line; the next line where none does."""
    if not lines[at].lstrip().startswith("```"):
        return at + 1
    closing = (number for number in range(at + 1, len(lines)) if lines[number].strip() == "```")
    return next(closing, len(lines) - 1) + 1


# ---- cells


def _cells(lesson: Lesson, seed: int) -> Iterator[Cell]:
    yield _markdown(f"# {lesson.number}. {lesson.title}\n\n{HOW}")
    yield _code(EXTENSION)
    yield from _pieces(lesson.text, lesson)
    yield _markdown("## Tasks")
    for task in lesson.tasks:
        yield from _pieces(f"### {task.title}\n\n{task.text}", lesson, runs=False)
        yield _markdown("\n\n".join(_details(*hint, lesson) for hint in _hints(task)))
        yield _code(f"%%task {task.id}\n{task.start.rstrip()}")
    if lesson.exercises:
        yield _markdown("## Exercises")
    for exercise in lesson.exercises:
        yield _markdown(f"### {exercise.title}")
        drawn = exercise.ask(seed)
        yield _code(f'ask("{exercise.id}", seed={seed})', asked_words(drawn) + "\n")
        yield _code(f'answer("{exercise.id}", "")')
    yield _markdown("## Quiz")
    for question in lesson.questions:
        yield _code(f'ask("{question.id}", seed={seed})', asked_words(quiz.ask(question, seed)) + "\n")
        yield _code(f'answer("{question.id}", "")')


def _hints(task: Task) -> Iterator[tuple[str, str]]:
    for number, hint in enumerate(task.hints, start=1):
        yield f"Hint {number}", hint


def _details(title: str, text: str, lesson: Lesson) -> str:
    return f"<details><summary>{title}</summary>\n\n{_linked(text, lesson)}\n\n</details>"


def _pieces(text: str, lesson: Lesson, runs: bool = True) -> Iterator[Cell]:
    """Cells of a text; the code of a task's statement is an example to read."""
    for piece in cut_lesson(text) if runs else [Piece(kind="text", text=text)]:
        if piece.kind == "python":
            yield _code(piece.text, piece.output)
        else:
            yield _markdown(_linked(piece.text, lesson))


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


def _linked(text: str, lesson: Lesson) -> str:
    """The text with pictures inside it and links that lead somewhere from a notebook; fences stay as they are."""
    lines = text.splitlines()
    done: list[str] = []
    at = 0
    while at < len(lines):
        start, end = at, _fence_end(lines, at)
        if lines[start].lstrip().startswith("```"):
            done += [lines[start].replace("```formula", "```text"), *lines[start + 1 : end]]
        else:
            while end < len(lines) and not lines[end].lstrip().startswith("```"):  # a link may run over two lines
                end += 1
            done.append(LINK.sub(lambda found: _link(found, lesson), "\n".join(lines[start:end])))
        at = end
    return "\n".join(done)


def _link(found: re.Match[str], lesson: Lesson) -> str:
    picture, words, target = found.groups()
    if picture:
        data = base64.b64encode((CONTENT / target).read_bytes()).decode()
        alt = html.escape(" ".join(words.split()))
        return f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
    kind, _, name = target.partition(":")
    if kind == "walk":
        return f"{words} (`{walk_command(target)}`)"
    if kind == "task":
        task = open_course().task(name)
        there = open_course().lesson(task.lesson)
        return f"{words} (below)" if there.id == lesson.id else f"[{words}]({file_name(there)})"
    if kind == "lesson":
        return f"[{words}]({file_name(open_course().lesson(name))})"
    if target.startswith("misconceptions.md#"):
        return f"{words} (`inlayer learn errata {target.partition('#')[2]}`)"
    return found[0]


def walk_command(target: str) -> str:
    """walk:5?text=Hi as a command."""
    parts = urlsplit(target)
    texts = parse_qs(parts.query).get("text", [])
    given = "".join(' "' + re.sub(r'([\\"$`])', r"\\\1", text) + '"' for text in texts)
    return f"inlayer walk{given} --step {parts.path}"


# ---- in the notebook


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook %%task, ask and answer: %load_ext inlayer.learn.notebook"""
    shell.register_magic_function(_magic(shell), magic_kind="cell", magic_name="task")
    shell.push({"ask": ask, "answer": answer})


def _magic(shell: Any) -> Callable[[str, str], None]:
    def task(line: str, cell: str) -> None:
        """Grade the cell as a task's file, and define here what it defines."""
        from inlayer.learn.grader import grade

        try:
            asked = open_course().task(line)
        except InputError as error:
            return _say(str(error))
        verdict = grade(asked, cell)  # first: code that never ends is ended there, and does not come here
        if any(result.name == "runs" and result.state == "passed" for result in verdict.results):
            with contextlib.redirect_stdout(io.StringIO()) as here:
                shell.run_cell(cell, store_history=False)
            if not verdict.printed.startswith(here.getvalue()):  # else the verdict tells it
                _say(here.getvalue().rstrip("\n"))
        _say(verdict_words(verdict))
        if verdict.passed:
            _say("\n" + passed_words(asked, verdict.own))
        return _note(lambda state: state.note_check(asked.id, passed=verdict.passed, summary=verdict.summary))

    return task


_seeds: dict[str, int] = {}


def ask(name: str, seed: int | None = None) -> None:
    """Print an exercise or a question of the quiz, as the seed draws it."""
    _seeds[name] = secrets.randbelow(2**31) if seed is None else seed
    try:
        _say(asked_words(_asked(name)))
    except InputError as error:
        _say(str(error))


def answer(name: str, said: str) -> None:
    """Print what an answer is worth, to the exercise or question as it was asked last."""
    if not said.strip():
        return _say("Write your answer between the quotes, and run this cell again.")
    if name not in _seeds:
        return _say(f'Run ask("{name}") first: it draws the question.')
    try:
        asked = _asked(name)
        if isinstance(
            asked, FreeTextQuestion
        ):  # whether it is done, only the learner can say: `inlayer learn exercise`
            return _say(model_words(asked))
        judged = asked.judge(said)
    except InputError as error:
        return _say(str(error))
    _say(judged_words(asked, judged))
    if name in open_course().exercises:
        return _note(lambda state: state.note_exercise(name, correct=judged.correct))
    return _note(lambda state: quiz.note_answer(state, name, correct=judged.correct))


def _asked(name: str) -> Asked:
    course = open_course()
    if name in course.questions:
        return quiz.ask(course.questions[name], _seeds[name])
    if name not in course.exercises:
        raise InputError(f"there is no exercise and no question {quoted(name)}")
    return course.exercises[name].ask(_seeds[name])


def _note(change: Callable[[State], None]) -> None:
    """Remember it, where that is possible; a notebook goes on without."""
    try:
        with Progress().changing() as state:
            change(state)
    except (InlayerError, OSError) as error:
        _say(f"(progress was not kept: {error})")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def task_cells(text: str) -> list[tuple[str, str]]:
    """The tasks in a notebook's JSON: the word after %%task, and the code of its cell."""
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        joined = [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"this is no notebook: {error}") from None
    found = [(source, MAGIC.match(source)) for source in joined]
    return [(magic[1], source[magic.end() :]) for source, magic in found if magic is not None]
