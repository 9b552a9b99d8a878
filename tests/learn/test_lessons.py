"""Lessons: their Python runs from top to bottom, boxes included, and prints the output shown below each block."""

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


def fences(text: str, *, boxes: bool = True) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line, code and shown output of every Python block; `boxes` includes those in block quotes."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    for number, block in enumerate(blocks):
        if block.type == "fence" and block.info.strip() == "python" and (boxes or block.level == 0):
            below = blocks[number + 1] if number + 1 < len(blocks) else None
            shown = below is not None and below.type == "fence" and below.info.strip() == "text"
            yield (block.map or [0])[0] + 1, block.content, below.content if shown and below is not None else None


def faults(text: str, name: str) -> list[str]:
    """List the blocks that raise or print something else, run in one namespace from top to bottom."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for line, code, shown in fences(text):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                exec(compile("\n" * line + code, name, "exec"), namespace)  # error lines match the lines of the file
            except Exception:
                found.append(f"line {line}: {traceback.format_exc(limit=-1)}")
                return found
        if printed.getvalue() != (shown or ""):
            found.append(f"line {line} prints\n{printed.getvalue()}but shows\n{shown or 'nothing'}")
    return found


@pytest.fixture
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in a temporary folder, and check that torch's default dtype is unchanged."""
    monkeypatch.chdir(tmp_path)
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    assert torch.get_default_dtype() == dtype


@pytest.mark.usefixtures("_isolated")
@pytest.mark.parametrize("name", LESSONS)
def test_lesson_code_runs_and_prints_the_shown_output(name: str) -> None:
    text = (CONTENT / name / "lesson.md").read_text(encoding="utf-8")
    assert len(list(fences(text))) >= 2
    assert faults(text, f"{name}/lesson.md") == []


RUNS = "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n"


@pytest.mark.usefixtures("_isolated")
def test_faults_are_found() -> None:
    assert faults(RUNS, "good") == []
    assert "prints\n2\nbut shows\n3\n" in faults(RUNS.replace("2\n```\n", "3\n```\n").replace("x = 3", "x = 2"), "x")[0]
    assert faults(RUNS.replace("```text\n2\n", "```text\n2 \n"), "whitespace counts")
    assert faults(RUNS.replace("```text\n2\n```\n", ""), "printed but not shown")
    assert faults(RUNS.replace("print(x)", "pass"), "shown but not printed")
    assert "NameError" in faults(RUNS.replace("x = 2", "y = 2"), "raises")[0]
    assert "line 2" in faults(RUNS.replace("x = 2", "x = 1 / 0"), "raises")[0]
    in_box = "".join(f"> {line}\n" for line in RUNS.splitlines())
    assert faults(in_box, "good") == []
    assert "NameError" in faults(in_box.replace("x = 2", "y = 2"), "raises")[0]
