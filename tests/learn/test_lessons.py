"""Lessons keep their word: their Python runs top to bottom, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from markdown_it import MarkdownIt

from inlayer.learn.content import LESSONS
from inlayer.learn.course import CONTENT


def fences(text: str) -> Iterator[tuple[int, str, str | None]]:
    """The line, the code, and what is shown right below it, of every python fence."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    for number, block in enumerate(blocks):
        if block.type == "fence" and block.info.strip() == "python":
            below = blocks[number + 1] if number + 1 < len(blocks) else None
            shown = below is not None and below.type == "fence" and below.info.strip() == "text"
            yield (block.map or [0])[0] + 1, block.content, below.content if shown and below is not None else None


def faults(text: str, name: str) -> list[str]:
    """What does not run, or prints something else, in one namespace from top to bottom."""
    space: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for line, code, shown in fences(text):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                exec(compile("\n" * line + code, name, "exec"), space)  # the lines of an error are those of the file
            except Exception:
                found.append(f"line {line}: {traceback.format_exc(limit=-1)}")
                return found
        if printed.getvalue() != (shown or ""):
            found.append(f"line {line} prints\n{printed.getvalue()}and shows\n{shown or 'nothing'}")
    return found


@pytest.fixture
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lesson writes in a folder of its own, and leaves torch as it was."""
    monkeypatch.chdir(tmp_path)
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    assert torch.get_default_dtype() == dtype


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("name", LESSONS)
def test_the_python_of_a_lesson_runs_and_prints_what_is_shown(name: str) -> None:
    text = (CONTENT / name / "lesson.md").read_text(encoding="utf-8")
    assert len(list(fences(text))) >= 2
    assert faults(text, f"{name}/lesson.md") == []


RUNS = "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n"


@pytest.mark.usefixtures("_as_before")
def test_what_is_not_so_is_found() -> None:
    assert faults(RUNS, "good") == []
    assert "prints\n2\nand shows\n3\n" in faults(RUNS.replace("2\n```\n", "3\n```\n").replace("x = 3", "x = 2"), "x")[0]
    assert faults(RUNS.replace("```text\n2\n", "```text\n2 \n"), "white space counts")
    assert faults(RUNS.replace("```text\n2\n```\n", ""), "printed and not shown")
    assert faults(RUNS.replace("print(x)", "pass"), "shown and not printed")
    assert "NameError" in faults(RUNS.replace("x = 2", "y = 2"), "raises")[0]
    assert "line 2" in faults(RUNS.replace("x = 2", "x = 1 / 0"), "raises")[0]
