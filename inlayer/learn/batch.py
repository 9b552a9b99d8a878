"""Batch grading: grades a class's submissions one by one, and reports the results as CSV and JSON.

FOLDER/LEARNER/.../TASK.py, notebooks -> [batch] -> BatchReport
- the folder is scanned without following links. A file that does not belong to a task is reported by name; hidden
  files and leftovers of Python and Jupyter are ignored
- every learner gets the same seed, and therefore the same values. The seed is random unless given, and is
  recorded in the report
- if a file cannot be read, crashes, or never ends, its row gives the reason, and grading continues
- a cell that a spreadsheet would treat as a formula is prefixed with a quote
- Ctrl-C stops grading; the report lists the files that were not graded
Tested, with misbehaving files, in tests/learn/test_batch.py.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from inlayer.errors import InputError, MissingFileError
from inlayer.facts_base import Facts
from inlayer.files import not_a_file_error, path_kind, printable
from inlayer.learn.course import Course, Task, open_course, suggest
from inlayer.learn.questions import random_seed
from inlayer.learn.task_files import LINK_MESSAGE, SubmissionError, read_source_file
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import Progress, no_progress

if TYPE_CHECKING:
    from inlayer.learn.sandbox.restrict import GradingLimits

MAX_CELL_CHARACTERS = 1_000
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
MAX_NOTEBOOK_BYTES = 32 << 20  # size limit, including pictures and outputs
MAX_COPIES = 5  # files of one task by one learner
MAX_ENTRIES = 5_000  # files and folders of one learner
MAX_UNKNOWN = 20  # unknown files listed one by one per learner
MAX_DEPTH = 12
IGNORED = {"__pycache__", "node_modules", "site-packages", "venv"}  # names that start with a dot are also ignored
TASK_MAGIC = re.compile(r"\s*%%task[ \t]+(\S+)[ \t]*\n?")


class BatchRow(Facts):
    """One file or notebook cell. `passed` is None if it was not graded."""

    learner: str
    task: str = ""  # empty if the file belongs to no task
    passed: bool | None = None
    checks_passed: int = 0
    checks_total: int = 0
    rule: str = ""
    message: str = ""
    seed: int
    file: str


Submission: TypeAlias = "tuple[BatchRow, str | None]"  # a row without a verdict, and the code to grade, if any


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """All rows by learner, task, and file. `not_graded` counts files not graded because grading was stopped."""

    rows: tuple[BatchRow, ...]
    seed: int
    not_graded: int = 0

    @property
    def learners(self) -> list[dict[str, str | int]]:
        """Return totals per learner: tasks submitted, tasks passed in at least one file, and files."""
        by_name = {name: list(rows) for name, rows in groupby(self.rows, attrgetter("learner"))}
        return [
            {"learner": name, "passed": len({row.task for row in rows if row.passed}),
             "tasks": len({row.task for row in rows} - {""}), "files": len({row.file for row in rows} - {""})}
            for name, rows in by_name.items()
        ]  # fmt: skip

    def to_csv(self) -> str:
        """Return one line per row, without cells that a spreadsheet would treat as formulas."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(BatchRow)])
        for row in self.rows:
            passed = {True: "yes", False: "no", None: ""}[row.passed]
            writer.writerow([escape_formula(str(value)) for value in {**vars(row), "passed": passed}.values()])
        return text.getvalue()

    def to_json(self) -> str:
        rows = [vars(row) for row in self.rows]
        data = {"seed": self.seed, "not_graded": self.not_graded, "learners": self.learners, "rows": rows}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def grade_folder(
    folder: Path,
    *,
    tasks: Sequence[str] | None = None,
    seed: int | None = None,
    limits: GradingLimits | None = None,
    progress: Progress = no_progress,
) -> BatchReport:
    """Grade all submissions in a folder; with `tasks`, only these are included, and missing ones are reported."""
    if (kind := path_kind(folder)) != "folder":
        raise MissingFileError(f"{folder} is not a folder") if kind == "file" else not_a_file_error(folder, kind)
    from inlayer.checks import check_seed

    course = open_course()
    chosen = None if tasks is None else [course.task(name) for name in tasks]
    seed = check_seed(random_seed() if seed is None else seed)
    submissions = ClassFolder(course, seed).submissions(folder, chosen)
    if not submissions:
        raise InputError(f"{folder} contains no submissions: one folder per learner, files named after tasks")
    rows: list[BatchRow] = []
    with suppress(KeyboardInterrupt):
        for row, source in submissions:
            rows.append(row if source is None else _graded(row, course.tasks[row.task], source, limits))
            progress(len(rows), len(submissions))
    remaining, reason = submissions[len(rows) :], "grading was stopped before this file"
    for row, source in remaining:
        rows.append(row if source is None else replace(row, rule="not-graded", message=reason))
    return BatchReport(rows=tuple(rows), seed=seed, not_graded=sum(source is not None for _, source in remaining))


def _graded(row: BatchRow, task: Task, source: str, limits: GradingLimits | None) -> BatchRow:
    from inlayer.learn.grader import grade

    try:
        verdict = grade(task, source, seed=row.seed, limits=limits, examples=False)
    except Exception as error:  # a bug in the grader must not stop the batch
        message = f"the grader itself failed: {type(error).__name__}: {error}"
        return replace(row, rule="not-graded", message=_one_line(message))
    row = replace(row, passed=verdict.passed, checks_passed=verdict.n_passed)
    failure = verdict.failure
    return row if failure is None else replace(row, rule=failure.rule, message=_one_line(failure.message))


def _one_line(message: str) -> str:
    """Return a message on one line, without the markers under a drawn shape."""
    lines = [" ".join(printable(part) for part in line.split()) for line in message.splitlines()]
    joined = " / ".join(line for line in lines if line.strip("^ "))
    return joined if len(joined) <= MAX_CELL_CHARACTERS else joined[:MAX_CELL_CHARACTERS] + "..."


def escape_formula(cell: str) -> str:
    """Return a cell's text, quoted if a spreadsheet would treat it as a formula."""
    return f"'{cell}" if cell.lstrip().startswith(FORMULA) else cell


# ---- finding submissions


def task_cells(text: str) -> list[tuple[str, str]]:
    """Return the task cells of a notebook: the word after %%task, and the code of the cell."""
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        joined = [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SubmissionError("no-notebook", f"it is not a notebook: {error}") from None
    matches = [(source, TASK_MAGIC.match(source)) for source in joined]
    return [(magic[1], source[magic.end() :]) for source, magic in matches if magic is not None]


class ClassFolder:
    """Finds a class's submissions, and explains why others cannot be graded."""

    def __init__(self, course: Course, seed: int) -> None:
        self.course, self.seed = course, seed

    def submissions(self, folder: Path, chosen: list[Task] | None) -> list[Submission]:
        """List every submission in a folder by learner, task, and file, and the chosen tasks that have no file."""
        by_learner: dict[str, list[Submission]] = {}
        for entry in _entries(str(folder)):
            if entry.is_dir(follow_symlinks=False) and self.task_named(entry.name) is None:
                name = printable(entry.name)
                found = self.in_folder(name, entry)
            else:
                name, task = self.owner(entry.name, printable(folder.resolve().name))
                found = self.in_entry(name, entry, printable(entry.name), task)
            by_learner.setdefault(name, []).extend(found)
        counted = [each for name, found in by_learner.items() for each in self.counted(name, found, chosen)]
        order = [*self.course.tasks, ""]  # files that belong to no task come last
        return sorted(counted, key=lambda each: (each[0].learner, order.index(each[0].task), each[0].file))

    def row(
        self, learner: str, rule: str = "", message: str = "", *, file: str = "", task: Task | None = None
    ) -> BatchRow:
        """Return a row without a verdict; `rule` is the reason if there is no code; a task then counts as failed."""
        row = BatchRow(learner=learner, rule=rule, message=_one_line(message), seed=self.seed, file=file)
        if task is None:
            return row
        from inlayer.learn.grader import GradingRun

        return replace(row, task=task.id, passed=False if rule else None, checks_total=len(GradingRun(task).checks))

    def counted(self, name: str, found: list[Submission], chosen: list[Task] | None) -> Iterator[Submission]:
        """Yield a learner's submissions that are included, and the tasks that are missing."""
        included = None if chosen is None else {"", *(task.id for task in chosen)}
        counted = [(row, source) for row, source in found if included is None or row.task in included]
        seen: Counter[str] = Counter()
        for row, source in counted:
            seen[row.task or row.rule] += 1
            if source is not None and seen[row.task] > MAX_COPIES:
                message = f"there are more than {MAX_COPIES} files for this task; this one was not graded"
                yield replace(row, passed=False, rule="too-many-files", message=message), None
            elif row.rule != "unknown-file" or seen["unknown-file"] <= MAX_UNKNOWN:
                yield row, source
        missing = [task for task in chosen or () if task.id not in seen]
        for task in missing:
            yield self.row(name, "not-submitted", f"there is no {task.id}.py", task=task), None
        if (more := seen["unknown-file"] - MAX_UNKNOWN) > 0:
            message = f"{pluralize(more, 'more file')} with names that match no task"
            yield self.row(name, "unknown-file", message), None
        if not counted and not missing:
            yield self.row(name, "nothing-submitted", "the folder contains no files"), None

    def in_folder(self, name: str, top: os.DirEntry[str]) -> Iterator[Submission]:
        """Yield everything in a learner's folder, at any depth."""
        pending, seen = [(top.path, printable(top.name))], 0
        while pending:
            path, label = pending.pop(0)
            try:
                entries = _entries(path)
            except OSError as error:
                yield self.row(name, "unreadable", f"the folder cannot be read: {error.strerror}", file=label), None
                continue
            seen += len(entries)
            if seen > MAX_ENTRIES or (entries and label.count("/") >= MAX_DEPTH):
                message = f"more than {MAX_ENTRIES:,} files, or {MAX_DEPTH} levels of folders; the rest was ignored"
                yield self.row(name, "too-many-files", message, file=label), None
                return
            for entry in entries:
                file, task = f"{label}/{printable(entry.name)}", self.task_named(entry.name)
                if entry.is_dir(follow_symlinks=False) and task is None:
                    pending.append((entry.path, file))
                else:
                    yield from self.in_entry(name, entry, file, task)

    def in_entry(self, name: str, entry: os.DirEntry[str], file: str, task: Task | None) -> Iterator[Submission]:
        """Yield the submissions in one directory entry: a Python file, the cells of a notebook, or neither."""
        tasks = self.course.tasks
        try:
            if task is not None:
                source = read_source_file(entry.path, follow_links=False).text
                yield self.row(name, file=file, task=task), source
                return
            if not entry.name.endswith(".ipynb"):
                if entry.is_symlink():
                    raise SubmissionError("link", LINK_MESSAGE)
                near = suggest(entry.name, [f"{known}.py" for known in tasks])
                raise SubmissionError("unknown-file", "its name matches no task" + (f"; {near}" if near else ""))
            cells = task_cells(read_source_file(entry.path, MAX_NOTEBOOK_BYTES, follow_links=False).text)
            if not cells:
                raise SubmissionError("no-tasks", "the notebook has no cell that starts with %%task")
            for word, source in cells:
                if word in tasks:
                    yield self.row(name, file=file, task=tasks[word]), source
                else:
                    message = f"%%task {word[:80]}: there is no such task"
                    yield self.row(name, "unknown-task", message, file=file), None
        except SubmissionError as error:
            yield self.row(name, error.rule, str(error), file=file, task=task), None

    def task_named(self, name: str) -> Task | None:
        return self.course.tasks.get(name.removesuffix(".py")) if name.endswith(".py") else None

    def owner(self, name: str, folder: str) -> tuple[str, Task | None]:
        """Return the learner and task of a top-level file: ann_gather.py is by ann, gather.py by the folder itself."""
        if (task := self.task_named(name)) is not None:
            return folder, task
        stem, _, ending = name.rpartition(".")
        if ending == "py":
            for known in sorted(self.course.tasks, key=len, reverse=True):  # ann_mean_pool before a task called pool
                if match := re.fullmatch(rf"(.+)[_ -]{known}", stem, flags=re.DOTALL):
                    return printable(match[1]), self.course.tasks[known]
        if ending == "ipynb":
            lesson_file = re.fullmatch(r"(?:(.+)[_ -])?\d\d-[a-z]+", stem, flags=re.DOTALL)
            return printable(stem if lesson_file is None else lesson_file[1] or folder), None
        return folder, None


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in IGNORED]
    return sorted(visible, key=lambda entry: entry.name)
