"""What learners handed in: every file of a folder, whose it is, of which task, and its text or the reason why not.

FOLDER/LEARNER/.../TASK.py, FOLDER/LEARNER_TASK.py, FOLDER/TASK.py, notebooks -> [handed_in] -> many
- a file is hostile until checked: nothing here waits for a pipe, follows a link or reads without end
- of a file that is no task's the name is told; hidden files and what Python and Jupyter leave behind are passed over
- not here: grading (many.py)
Checked in tests/learn/test_batch.py.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from inlayer.errors import InputError
from inlayer.learn.course import Course, Task
from inlayer.learn.notebook import task_cells

__all__ = ["Found", "find", "readable"]

MAX_CODE = 1 << 20  # bytes of a .py file
MAX_NOTEBOOK = 32 << 20  # bytes of a notebook, with its pictures and outputs
MAX_COPIES = 5  # of one task by one learner
MAX_ENTRIES = 5_000  # files and folders of one learner
MAX_STRANGE = 20  # files of no task that are told one by one
DEEPEST = 12
SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv"}  # and what begins with a dot
LINK = "it is a link, which is not followed; hand in the file itself"


@dataclass(frozen=True, kw_only=True)
class Found:
    """Something in the folder: code to grade, or the rule by which there is none."""

    learner: str
    file: str
    task: Task | None = None
    source: str | None = None
    rule: str = ""
    message: str = ""


class Refused(Exception):  # noqa: N818
    """A file that is not read: by which rule, and why."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(rule, message)
        self.rule, self.message = rule, message


def find(folder: Path, course: Course, wanted: list[Task] | None) -> list[Found]:
    """Everything in the folder, by learner, task and file; what was wanted and is not there is told too."""
    by_learner: dict[str, list[Found]] = {}
    for entry in _entries(str(folder)):
        if _is_folder(entry) and _task_of(entry.name, course) is None:
            name = readable(entry.name)
            found = _of_folder(name, entry, course)
        else:
            name, task = _flat(entry.name, course, readable(folder.resolve().name))
            found = _of_entry(name, entry, readable(entry.name), task, course)
        by_learner.setdefault(name, []).extend(_few_copies(found))
    everything = [one for name, found in by_learner.items() for one in _counting(name, found, wanted)]
    order = list(course.tasks)
    return sorted(
        everything, key=lambda one: (one.learner, order.index(one.task.id) if one.task else len(order), one.file)
    )


def _counting(name: str, found: list[Found], wanted: list[Task] | None) -> Iterator[Found]:
    """What counts of a learner's files, and what is missing."""
    kept = [one for one in found if wanted is None or one.task is None or one.task in wanted]
    yield from _few_strange(kept)
    missing = [task for task in wanted or () if task not in [one.task for one in kept]]
    for task in missing:
        yield Found(learner=name, file="", task=task, rule="not-handed-in", message=f"there is no {task.id}.py")
    if not kept and not missing:
        yield Found(learner=name, file="", rule="nothing-handed-in", message="the folder holds no files")


def _few_copies(found: Iterable[Found]) -> Iterator[Found]:
    """The first files of each task with their text; the others without."""
    copies: Counter[str] = Counter()
    for one in found:
        copies[one.task.id if one.task else ""] += 1
        if one.task and one.source is not None and copies[one.task.id] > MAX_COPIES:
            message = f"the task was handed in more than {MAX_COPIES} times; this one was not graded"
            yield replace(one, source=None, rule="too-many-files", message=message)
        else:
            yield one


def _few_strange(found: list[Found]) -> Iterator[Found]:
    """All of it, but of the files that belong to no task only some."""
    strange = [one for one in found if one.rule == "unknown-file"]
    yield from (one for one in found if one.rule != "unknown-file")
    yield from strange[:MAX_STRANGE]
    if more := len(strange[MAX_STRANGE:]):
        message = f"{more:,} more with names that are no task's"
        yield Found(learner=strange[0].learner, file="", rule="unknown-file", message=message)


def _of_folder(name: str, top: os.DirEntry[str], course: Course) -> Iterator[Found]:
    """What lies in a learner's folder, however deep."""
    waiting = [(top.path, readable(top.name))]
    seen = 0
    while waiting:
        path, shown = waiting.pop(0)
        try:
            entries = _entries(path)
        except OSError as error:
            message = f"the folder cannot be read: {error.strerror}"
            yield Found(learner=name, file=shown, rule="unreadable", message=message)
            continue
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES or shown.count("/") >= DEEPEST:
                message = f"more than {MAX_ENTRIES:,} files, or {DEEPEST} folders deep; the rest was not looked at"
                yield Found(learner=name, file=shown, rule="too-many-files", message=message)
                return
            place = f"{shown}/{readable(entry.name)}"
            task = _task_of(entry.name, course)
            if _is_folder(entry) and task is None:
                waiting.append((entry.path, place))
            else:
                yield from _of_entry(name, entry, place, task, course)


def _of_entry(name: str, entry: os.DirEntry[str], place: str, task: Task | None, course: Course) -> Iterator[Found]:
    """One entry that is no folder of a learner's: code, a notebook, or neither."""
    is_notebook = entry.name.endswith(".ipynb")
    if task is None and not is_notebook:
        rule, message = ("link", LINK) if entry.is_symlink() else ("unknown-file", _strange(entry.name, course))
        yield Found(learner=name, file=place, rule=rule, message=message)
        return
    try:
        source = _read(entry.path, MAX_NOTEBOOK if is_notebook else MAX_CODE)
        if task is not None:
            yield Found(learner=name, file=place, task=task, source=source)
        else:
            yield from _of_notebook(name, place, source, course)
    except Refused as refused:
        yield Found(learner=name, file=place, task=task, rule=refused.rule, message=refused.message)


def _of_notebook(name: str, place: str, text: str, course: Course) -> Iterator[Found]:
    try:
        cells = task_cells(text)
    except InputError as error:
        raise Refused("no-notebook", str(error)) from None
    if not cells:
        raise Refused("no-tasks", "the notebook has no cell that begins with %%task")
    for asked, source in cells:
        if asked in course.tasks:
            yield Found(learner=name, file=place, task=course.tasks[asked], source=source)
        else:
            message = f"%%task {asked[:80]}: there is no such task"
            yield Found(learner=name, file=place, rule="unknown-task", message=message)


def _read(path: str, most: int) -> str:
    """The text of a regular file that is not too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if Path(path).is_symlink():
            raise Refused("link", LINK) from None
        raise Refused("unreadable", f"it cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, device or socket"
            raise Refused("not-a-file", f"it is {kind}, not a file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise Refused("unreadable", f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)
    if len(data) > most:
        raise Refused("too-large", f"it has more than {most:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused("not-utf-8", f"byte {error.start} is not UTF-8; save the file in that encoding") from None


def _entries(path: str) -> list[os.DirEntry[str]]:
    """What lies in a folder, in order, without what no learner hands in on purpose."""
    with os.scandir(path) as entries:
        kept = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in SKIPPED]
    return sorted(kept, key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _task_of(name: str, course: Course) -> Task | None:
    return course.tasks.get(name.removesuffix(".py")) if name.endswith(".py") else None


def _flat(name: str, course: Course, folder: str) -> tuple[str, Task | None]:
    """Whose a file is that lies in no learner's folder: ann_gather.py is ann's, gather.py the folder's own."""
    if (task := _task_of(name, course)) is not None:
        return folder, task
    stem, _, ending = name.rpartition(".")
    if ending == "py":
        for known in sorted(course.tasks, key=len, reverse=True):  # ann_mean_pool before any task called pool
            if found := re.fullmatch(rf"(.+)[_ -]{known}", stem, flags=re.DOTALL):
                return readable(found[1]), course.tasks[known]
    if ending == "ipynb":
        named = re.fullmatch(r"(?:(.+)[_ -])?\d\d-[a-z]+", stem, flags=re.DOTALL)
        return readable(stem if named is None else named[1] or folder), None
    return folder, None


def _strange(name: str, course: Course) -> str:
    known = [f"{task}.py" for task in course.tasks]
    close = difflib.get_close_matches(name.lower()[:80], known, n=1, cutoff=0.7)
    return "its name is no task's" + (f"; is it meant to be {close[0]}?" if close else "")


def readable(name: str) -> str:
    """A file's name on one line, also where it is no text at all."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in name)
