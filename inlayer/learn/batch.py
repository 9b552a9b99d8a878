"""Batch grading: the submissions of a class, graded one by one, as CSV and JSON.

folder -> submission -> [batch] -> BatchReport
- everybody gets the same seed, and so the same values; it is random unless given, and part of the report
- a file that cannot be read, crashes or never ends gets its reason in its row, and grading continues
- a cell that a spreadsheet would treat as a formula is prefixed with a quote
- Ctrl-C stops grading; the report lists what was not graded
Tested, with misbehaving files, in tests/learn/test_batch.py.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, not_a_file, path_kind, printable
from inlayer.learn.course import open_course
from inlayer.learn.submission import Submission, find_submissions

if TYPE_CHECKING:
    from inlayer.learn.session import GradingLimits

__all__ = ["BatchReport", "BatchRow", "grade_folder"]

MAX_MESSAGE = 1_000  # characters
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True, kw_only=True)
class BatchRow:
    """One file or notebook cell; `passed` is None if it was not graded."""

    learner: str
    task: str  # "" if the file belongs to no task
    passed: bool | None
    checks: int
    of: int
    rule: str
    message: str
    seed: int
    file: str


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """All rows by learner, task and file; `left` files were not graded because grading was stopped."""

    rows: tuple[BatchRow, ...]
    seed: int
    left: int = 0

    @property
    def learners(self) -> list[dict[str, str | int]]:
        """Totals per learner: tasks submitted, how many passed in at least one file, and files."""
        by_name: dict[str, list[BatchRow]] = {}
        for row in self.rows:
            by_name.setdefault(row.learner, []).append(row)
        return [
            {"learner": name, "passed": len({row.task for row in rows if row.passed}),
             "tasks": len({row.task for row in rows} - {""}), "files": len({row.file for row in rows} - {""})}
            for name, rows in by_name.items()
        ]  # fmt: skip

    def to_csv(self) -> str:
        """One line per row; no cell can be taken for a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(BatchRow)])
        for row in self.rows:
            passed = {True: "yes", False: "no", None: ""}[row.passed]
            writer.writerow([escape_formula(str(value)) for value in {**asdict(row), "passed": passed}.values()])
        return text.getvalue()

    def to_json(self) -> str:
        rows = [asdict(row) for row in self.rows]
        data = {"seed": self.seed, "left": self.left, "learners": self.learners, "rows": rows}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def grade_folder(
    folder: Path,
    *,
    tasks: Sequence[str] | None = None,
    seed: int | None = None,
    limits: GradingLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BatchReport:
    """Grade all submissions in a folder; with `tasks`, only these count and missing ones are reported."""
    folder = check_path(folder, "the folder")
    if (kind := path_kind(folder)) != "folder":
        raise MissingFileError(f"{folder} is not a folder") if kind == "file" else not_a_file(folder, kind)
    from inlayer.shapes import check_seed

    course = open_course()
    wanted = None if tasks is None else [course.task(name) for name in tasks]
    seed = secrets.randbelow(2**31) if seed is None else seed
    check_seed(seed)
    found = find_submissions(folder, course, wanted)
    if not found:
        raise InputError(f"{folder} contains no submissions; docs/learn.md describes the layout")
    rows: list[BatchRow] = []
    try:
        for one in found:
            rows.append(_row(one, seed, limits))
            if progress is not None:
                progress(len(rows), len(found))
    except KeyboardInterrupt:
        pass
    waiting = found[len(rows) :]
    rows += [_ungraded(one, seed, "not-graded", "grading was stopped before this file") for one in waiting]
    return BatchReport(rows=tuple(rows), seed=seed, left=sum(one.source is not None for one in waiting))


def _row(one: Submission, seed: int, limits: GradingLimits | None) -> BatchRow:
    if one.task is None or one.source is None:
        return _ungraded(one, seed, one.rule, one.message)
    from inlayer.learn.grader import grade

    try:
        verdict = grade(one.task, one.source, seed=seed, limits=limits, examples=False)
    except Exception as error:  # a bug in the grader must not stop the batch
        return _ungraded(one, seed, "not-graded", f"the grader itself failed: {type(error).__name__}: {error}")
    failure = verdict.failure
    rule, message = (failure.rule, failure.message) if failure else ("", "")
    row = _ungraded(one, seed, rule, message)
    return replace(row, passed=verdict.passed, checks=verdict.n_passed, of=len(verdict.results))


def _ungraded(one: Submission, seed: int, rule: str, message: str) -> BatchRow:
    """A row without a verdict: unreadable files failed, the others were not graded."""
    from inlayer.learn.grader import count_checks

    if one.source is None:
        rule, message = one.rule, one.message
    return BatchRow(
        learner=one.learner,
        task=one.task.id if one.task else "",
        passed=False if one.task and one.source is None else None,
        checks=0,
        of=count_checks(one.task) if one.task else 0,
        rule=rule,
        message=_one_line(message),
        seed=seed,
        file=one.file,
    )


def _one_line(message: str) -> str:
    """A message on one line, without the markers under a drawing."""
    lines = [" ".join(printable(part) for part in line.split()) for line in message.splitlines()]
    whole = " / ".join(line for line in lines if line.strip("^ "))
    return whole if len(whole) <= MAX_MESSAGE else whole[:MAX_MESSAGE] + "..."


def escape_formula(cell: str) -> str:
    """A cell that no spreadsheet treats as a formula."""
    return f"'{cell}" if cell.lstrip().startswith(FORMULA) else cell
