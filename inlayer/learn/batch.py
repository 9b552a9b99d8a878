"""A class: every learner's files of a folder, graded one by one, to CSV and JSON.

folder -> handed_in -> [many] -> Report
- the same seed for all, so that everybody is asked the same; drawn afresh unless given, and told
- a file that cannot be read, ends its process or never ends has its reason in its row, and the next one is graded
- a cell that a spreadsheet would take for a formula begins with a quote
- Ctrl-C ends it, and the report says what was not graded
Checked, with files that misbehave, in tests/learn/test_batch.py.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import InputError, MissingFileError
from inlayer.learn.course import Task, open_course
from inlayer.learn.submission import Found, find, readable
from inlayer.paths import check_path, what_is_at, wrong_kind

if TYPE_CHECKING:
    from inlayer.learn.session import Limits

__all__ = ["Learner", "Report", "Row", "grade_folder"]

MAX_WORDS = 1_000  # characters of a message
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One file, or one cell of a notebook; `passed` is None where nothing was graded."""

    learner: str
    task: str  # "" where the file is of no task
    passed: bool | None
    checks: int
    of: int
    rule: str
    message: str
    seed: int
    file: str


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What one learner handed in: tasks, and how many of them passed in one file at least."""

    learner: str
    passed: int
    tasks: int
    files: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """All rows, by learner, task and file; `left` files were not graded, because it was stopped."""

    rows: tuple[Row, ...]
    seed: int
    left: int = 0

    @property
    def learners(self) -> tuple[Learner, ...]:
        """Totals, in the order of the rows."""
        names = list(dict.fromkeys(row.learner for row in self.rows))
        return tuple(self._learner(name, [row for row in self.rows if row.learner == name]) for name in names)

    @staticmethod
    def _learner(name: str, rows: list[Row]) -> Learner:
        passed = {row.task for row in rows if row.passed}
        tasks = {row.task for row in rows if row.task}
        return Learner(learner=name, passed=len(passed), tasks=len(tasks), files=len({row.file for row in rows} - {""}))

    def to_csv(self) -> str:
        """A line for each row; spreadsheets take no cell for a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in self.rows:
            passed = {True: "yes", False: "no", None: ""}[row.passed]
            writer.writerow([harmless(str(value)) for value in {**asdict(row), "passed": passed}.values()])
        return text.getvalue()

    def to_json(self) -> str:
        told = {
            "seed": self.seed,
            "left": self.left,
            "learners": [asdict(learner) for learner in self.learners],
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(told, ensure_ascii=False, indent=2) + "\n"


def grade_folder(
    folder: Path,
    *,
    tasks: Sequence[str] | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Grade every learner's files; `tasks` names those that count, and who did not hand one in is told too."""
    folder = check_path(folder, "the folder")
    if (kind := what_is_at(folder)) != "folder":
        raise MissingFileError(f"{folder} is no folder") if kind == "file" else wrong_kind(folder, kind)
    from inlayer.shapes import check_seed

    course = open_course()
    wanted = None if tasks is None else [course.task(name) for name in tasks]
    seed = secrets.randbelow(2**31) if seed is None else seed
    check_seed(seed)
    found = find(folder, course, wanted)
    if not found:
        raise InputError(f"{folder} holds no learner's files; see docs/learn.md for how they lie")
    rows: list[Row] = []
    try:
        for one in found:
            rows.append(_row(one, seed, limits))
            if progress is not None:
                progress(len(rows), len(found))
    except KeyboardInterrupt:
        pass
    waiting = found[len(rows) :]
    rows += [_told(one, seed, "not-graded", "stopped before it was graded") for one in waiting]
    return Report(rows=tuple(rows), seed=seed, left=sum(one.source is not None for one in waiting))


def _row(one: Found, seed: int, limits: Limits | None) -> Row:
    if one.task is None or one.source is None:
        return _told(one, seed, one.rule, one.message)
    from inlayer.learn.grader import grade

    try:
        verdict = grade(one.task, one.source, seed=seed, limits=limits)
    except Exception as error:  # the grader's own: it must not take the others' marks with it
        return _told(one, seed, "not-graded", f"the grader itself failed: {type(error).__name__}: {error}")
    failure = verdict.failure
    return Row(
        learner=one.learner,
        task=one.task.id,
        passed=verdict.passed,
        checks=verdict.n_passed,
        of=len(verdict.results),
        rule=failure.rule if failure else "",
        message=_words(failure.message) if failure else "",
        seed=seed,
        file=one.file,
    )


def _told(one: Found, seed: int, rule: str, message: str) -> Row:
    """A row without a verdict: what could not be read has failed, the rest was not graded."""
    if one.source is None:  # known before anything was graded
        rule, message = one.rule, one.message
    return Row(
        learner=one.learner,
        task=one.task.id if one.task else "",
        passed=False if one.task and one.source is None else None,
        checks=0,
        of=_count_checks(one.task) if one.task else 0,
        rule=rule,
        message=_words(message),
        seed=seed,
        file=one.file,
    )


def _count_checks(task: Task) -> int:
    from inlayer.learn.grader import BEFORE, checks_of

    return len(BEFORE) + len(checks_of(task).CHECKS)


def _words(message: str) -> str:
    """A message on one line; the marks under a drawing say nothing there."""
    lines = [" ".join(readable(part) for part in line.split()) for line in message.splitlines()]
    whole = " / ".join(line for line in lines if line.strip("^ "))
    return whole if len(whole) <= MAX_WORDS else whole[:MAX_WORDS] + "..."


def harmless(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip().startswith(FORMULA) else cell
