"""Submissions: the files learners write, read safely, one by one or from a whole class folder.

TASK.py, notebooks, FOLDER/LEARNER/.../TASK.py -> [submission] -> service, batch
- files are untrusted: reading never blocks on a pipe and never reads without a limit; a class folder is scanned
  without following links
- a file that belongs to no task is reported by name; hidden files and leftovers of Python and Jupyter are ignored
- elsewhere: grading (grader.py, batch.py)
Tested in tests/learn/test_batch.py and, for single files, tests/learn/test_service.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import printable
from inlayer.learn.course import Course, Task, suggest

__all__ = ["SourceFile", "Submission", "SubmissionError", "find_submissions", "read_source_file", "task_cells"]

MAX_SOURCE_BYTES = 1 << 20
MAX_NOTEBOOK_BYTES = 32 << 20  # with pictures and outputs
MAX_COPIES = 5  # files of one task by one learner
MAX_ENTRIES = 5_000  # files and folders of one learner
MAX_UNKNOWN = 20  # unknown files of one learner that are listed one by one
MAX_DEPTH = 12
IGNORED = {"__pycache__", "node_modules", "site-packages", "venv"}  # and names that start with a dot
LINK_MESSAGE = "it is a symbolic link, which is not followed; submit the file itself"
TASK_MAGIC = re.compile(r"\s*%%task[ \t]+(\S+)[ \t]*\n?")


class SubmissionError(InputError):
    """A file that cannot be read as a submission; `rule` is the short name used in reports."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """The text of a learner's file with Unix line endings, and a digest of its bytes."""

    text: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An entry of a class folder: code to grade, or the rule that says why there is none."""

    learner: str
    file: str
    task: Task | None = None
    source: str | None = None
    rule: str = ""
    message: str = ""


def read_source_file(path: str | Path, max_bytes: int = MAX_SOURCE_BYTES, *, follow_links: bool = True) -> SourceFile:
    """Read a regular file of UTF-8 text; SubmissionError says why it cannot be read."""
    names = ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY", *(() if follow_links else ("O_NOFOLLOW",)))  # not on every system
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in names)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if not follow_links and Path(path).is_symlink():
            raise SubmissionError("link", LINK_MESSAGE) from None
        rule = "not-found" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "unreadable"
        raise SubmissionError(rule, f"it cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, device or socket"
            raise SubmissionError("not-a-file", f"it is {kind}, not a file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise SubmissionError("unreadable", f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)
    if len(data) > max_bytes:
        raise SubmissionError("too-large", f"it has more than {max_bytes:,} bytes")
    try:
        text = data.decode("utf-8-sig")  # some editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise SubmissionError(
            "not-utf-8", f"it is not valid UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}; save it as UTF-8"
        ) from None
    return SourceFile(text=text.replace("\r\n", "\n").replace("\r", "\n"), digest=hashlib.sha256(data).hexdigest())


def task_cells(text: str) -> list[tuple[str, str]]:
    """The task cells of a notebook: the word after %%task, and the code of the cell."""
    try:
        sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        joined = [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SubmissionError("no-notebook", f"it is not a notebook: {error}") from None
    found = [(source, TASK_MAGIC.match(source)) for source in joined]
    return [(magic[1], source[magic.end() :]) for source, magic in found if magic is not None]


# ---- a class folder


def find_submissions(folder: Path, course: Course, wanted: list[Task] | None) -> list[Submission]:
    """List every submission in a folder by learner, task and file; wanted tasks without a file are listed too."""
    by_learner: dict[str, list[Submission]] = {}
    for entry in _entries(str(folder)):
        if entry.is_dir(follow_symlinks=False) and _task_named(entry.name, course) is None:
            name = printable(entry.name)
            found = _in_folder(name, entry, course)
        else:
            name, task = _owner(entry.name, course, printable(folder.resolve().name))
            found = _from_entry(name, entry, printable(entry.name), task, course)
        by_learner.setdefault(name, []).extend(found)
    everything = [one for name, found in by_learner.items() for one in _counted(name, found, wanted)]
    order = list(course.tasks)
    return sorted(
        everything, key=lambda one: (one.learner, order.index(one.task.id) if one.task else len(order), one.file)
    )


def _counted(name: str, found: list[Submission], wanted: list[Task] | None) -> Iterator[Submission]:
    """The submissions of a learner that count, and the tasks that are missing."""
    kept = [one for one in found if wanted is None or one.task is None or one.task in wanted]
    seen: Counter[str] = Counter()
    for one in kept:
        seen[one.task.id if one.task else one.rule] += 1
        if one.task and one.source is not None and seen[one.task.id] > MAX_COPIES:
            message = f"there are more than {MAX_COPIES} files for this task; this one was not graded"
            yield replace(one, source=None, rule="too-many-files", message=message)
        elif one.task or one.rule != "unknown-file" or seen["unknown-file"] <= MAX_UNKNOWN:
            yield one
    missing = [task for task in wanted or () if task not in [one.task for one in kept]]
    notes: list[tuple[Task | None, str, str]] = [
        (task, "not-submitted", f"there is no {task.id}.py") for task in missing
    ]
    if (more := seen["unknown-file"] - MAX_UNKNOWN) > 0:
        notes.append((None, "unknown-file", f"{more:,} more files with names that match no task"))
    if not kept and not missing:
        notes.append((None, "nothing-submitted", "the folder contains no files"))
    for task, rule, message in notes:
        yield Submission(learner=name, file="", task=task, rule=rule, message=message)


def _in_folder(name: str, top: os.DirEntry[str], course: Course) -> Iterator[Submission]:
    """Everything in a learner's folder, at any depth."""
    waiting = [(top.path, printable(top.name))]
    seen = 0
    while waiting:
        path, label = waiting.pop(0)
        try:
            entries = _entries(path)
        except OSError as error:
            message = f"the folder cannot be read: {error.strerror}"
            yield Submission(learner=name, file=label, rule="unreadable", message=message)
            continue
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES or label.count("/") >= MAX_DEPTH:
                message = f"more than {MAX_ENTRIES:,} files, or {MAX_DEPTH} levels of folders; the rest was ignored"
                yield Submission(learner=name, file=label, rule="too-many-files", message=message)
                return
            file = f"{label}/{printable(entry.name)}"
            task = _task_named(entry.name, course)
            if entry.is_dir(follow_symlinks=False) and task is None:
                waiting.append((entry.path, file))
            else:
                yield from _from_entry(name, entry, file, task, course)


def _from_entry(
    name: str, entry: os.DirEntry[str], file: str, task: Task | None, course: Course
) -> Iterator[Submission]:
    """The submissions in one directory entry: a Python file, a notebook, or neither."""
    is_notebook = entry.name.endswith(".ipynb")
    try:
        if task is None and not is_notebook:
            if entry.is_symlink():
                raise SubmissionError("link", LINK_MESSAGE)
            near = suggest(entry.name, [f"{known}.py" for known in course.tasks])
            raise SubmissionError("unknown-file", "its name matches no task" + (f"; {near}" if near else ""))
        limit = MAX_NOTEBOOK_BYTES if is_notebook else MAX_SOURCE_BYTES
        source = read_source_file(entry.path, limit, follow_links=False).text
        if task is not None:
            yield Submission(learner=name, file=file, task=task, source=source)
        else:
            yield from _from_notebook(name, file, source, course)
    except SubmissionError as error:
        yield Submission(learner=name, file=file, task=task, rule=error.rule, message=str(error))


def _from_notebook(name: str, file: str, text: str, course: Course) -> Iterator[Submission]:
    cells = task_cells(text)
    if not cells:
        raise SubmissionError("no-tasks", "the notebook has no cell that starts with %%task")
    for word, source in cells:
        if word in course.tasks:
            yield Submission(learner=name, file=file, task=course.tasks[word], source=source)
        else:
            message = f"%%task {word[:80]}: there is no such task"
            yield Submission(learner=name, file=file, rule="unknown-task", message=message)


def _entries(path: str) -> list[os.DirEntry[str]]:
    """The sorted entries of a folder, without ignored ones."""
    with os.scandir(path) as entries:
        kept = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in IGNORED]
    return sorted(kept, key=lambda entry: entry.name)


def _task_named(name: str, course: Course) -> Task | None:
    return course.tasks.get(name.removesuffix(".py")) if name.endswith(".py") else None


def _owner(name: str, course: Course, folder: str) -> tuple[str, Task | None]:
    """The learner a top-level file belongs to: ann_gather.py is by ann, gather.py by the folder itself."""
    if (task := _task_named(name, course)) is not None:
        return folder, task
    stem, _, ending = name.rpartition(".")
    if ending == "py":
        for known in sorted(course.tasks, key=len, reverse=True):  # ann_mean_pool before a task called pool
            if found := re.fullmatch(rf"(.+)[_ -]{known}", stem, flags=re.DOTALL):
                return printable(found[1]), course.tasks[known]
    if ending == "ipynb":
        named = re.fullmatch(r"(?:(.+)[_ -])?\d\d-[a-z]+", stem, flags=re.DOTALL)
        return printable(stem if named is None else named[1] or folder), None
    return folder, None
