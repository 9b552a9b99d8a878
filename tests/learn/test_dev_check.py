"""Every task: its solution passes, its start fails, and each wrong solution fails by the rule it is named after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from inlayer.learn.course import Task, open_course
from inlayer.learn.grader import find_problems

pytestmark = pytest.mark.slow

TASKS = open_course().tasks


@pytest.mark.parametrize("name", TASKS)
def test_task_has_no_problems(name: str) -> None:
    assert list(find_problems(TASKS[name])) == []


@pytest.fixture
def copy(tmp_path: Path) -> Task:
    """A copy of a task whose files may be changed, with the original checks."""
    return replace(TASKS["gather"], folder=copytree(TASKS["gather"].folder, tmp_path / "gather"))


def test_problems_are_found(copy: Task) -> None:
    wrong = copy.folder / "wrong"
    (wrong / "flat.py").write_text(copy.solution)
    (wrong / "sorted.py").write_text((wrong / "off-by-one.py").read_text())
    (copy.folder / "start.py").write_text(copy.solution)
    (copy.folder / "solution.py").write_text((wrong / "off-by-one.py").read_text())
    faults = "\n".join(find_problems(copy))
    assert "gather: the solution fails" in faults
    assert "gather: the starter file passes" in faults
    assert "wrong/flat.py passes" in faults
    assert "wrong/sorted.py fails with off-by-one" in faults


def test_too_few_wrong_solutions_are_found(copy: Task) -> None:
    for path in list((copy.folder / "wrong").iterdir())[4:]:
        path.unlink()
    assert "gather: it has 4 wrong solutions; at least 5 are required" in list(find_problems(copy))
