"""The learner at the command line: their progress, their files, what they type.

- their files are FOLDER/TASK.py; the folder is chosen once and remembered. Nothing here overwrites what they wrote: a
  task that is begun anew keeps the old file beside
- the end of the input (Ctrl-D) and an empty line end a question politely
"""

from __future__ import annotations

import sys
from pathlib import Path

from inlayer.cli.inputs import read_start
from inlayer.errors import InputError, MissingFileError
from inlayer.learn.course import Course, Task, guessed
from inlayer.learn.files import learner_folder, set_aside
from inlayer.learn.progress import Progress, State, steps
from inlayer.paths import check_path, shown, what_is_at, wrong_kind

__all__ = [
    "begin_anew", "confirm", "file_of", "find_work", "lay_out", "open_progress", "read_source", "settle",
    "task_at_hand", "task_begun", "type_line",
]  # fmt: skip

MAX_BYTES = 2**20  # of a learner's file


def open_progress(*, needed: bool = False) -> Progress:
    """The learner's progress; unless it is `needed`, a verb goes on where nothing can be recorded, and says so."""
    return Progress(tell=lambda line: sys.stderr.write(f"inlayer: {line}\n"), loose=not needed)


def settle(state: State, said: str | None) -> Path:
    """The folder of the learner's files, remembered from now on."""
    if said is not None:
        folder = check_path(said, "--folder").expanduser().absolute()
        if what_is_at(folder) not in {"folder", "nothing"}:
            raise InputError(f"{shown(said)} is no folder")
        state.folder = str(folder)
    else:
        state.folder = str(learner_folder(state))
    return Path(state.folder)


def file_of(task: Task, folder: Path) -> Path:
    return folder / f"{task.id}.py"


def lay_out(task: Task, folder: Path) -> bool:
    """Write the task's start into its file; False where there is one already."""
    path = file_of(task, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(task.start)
    except FileExistsError:
        if what_is_at(path) != "file":
            raise wrong_kind(path, what_is_at(path)) from None
        return False
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be written: {error.strerror}; --folder names another") from error
    return True


def begin_anew(task: Task, folder: Path) -> Path | None:
    """The task's start again; where the old file is kept, if there was one and it was another."""
    path = file_of(task, folder)
    if lay_out(task, folder) or path.read_bytes() == task.start.encode():
        return None
    try:
        kept = set_aside(path)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be set aside: {error.strerror}") from error
    lay_out(task, folder)
    return kept


def read_source(path: Path) -> str:
    """The learner's file, as text."""
    data = read_start(path, MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown(path)} holds more than {MAX_BYTES:,} bytes, which is no answer to a task")
    try:
        return data.decode("utf-8-sig")  # editors on Windows put a mark before the text
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown(path)} is no UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}; save it as UTF-8"
        ) from None


def task_at_hand(course: Course, state: State, said: str | None) -> Task:
    """The task that is named; without a name the one begun last, or the next one that is open."""
    if said is not None:
        return course.task(said)
    begun = course.tasks.get(state.current)
    if begun is not None and not state.task(begun.id).passed:
        return begun
    unfinished = [
        step for lesson in course.lessons for step in steps(lesson) if step.kind == "task" and not step.is_done(state)
    ]
    for step in unfinished:
        if step.key not in state.skipped:
            return course.tasks[step.id]
    if begun is not None:
        return begun
    if unfinished:
        return course.tasks[unfinished[0].id]
    raise InputError("every task has passed; name one")


def task_begun(course: Course, state: State, said: str | None) -> Task:
    """The task that is named, or the one that was begun; none is guessed, for what is told about it is remembered."""
    if said is not None:
        return course.task(said)
    if (begun := course.tasks.get(state.current)) is None:
        raise InputError("you have begun no task: inlayer learn next begins one, or name it")
    if state.task(begun.id).passed:
        raise InputError(f"{begun.id} has passed and no other task is begun: inlayer learn next, or name one")
    return begun


def find_work(
    course: Course, state: State, said: str | None, task: str | None, folder: str | None
) -> tuple[Task, Path, bool]:
    """What is to be checked: the task, the file, and whether it was written just now. `said` is a task or a file."""
    if said is not None and (task is not None or _is_file(course, said)):
        path = check_path(said, "FILE").expanduser()
        found = course.task(path.stem if task is None else task)
        if task is None and what_is_at(path) == "nothing" and path.parent == Path():
            path = file_of(found, settle(state, folder))  # `check gather.py` from anywhere
        return found, path, False
    found = task_at_hand(course, state, task if said is None else said)
    where = settle(state, folder)
    return found, file_of(found, where), lay_out(found, where)


def _is_file(course: Course, said: str) -> bool:
    if said in course.tasks:
        return False
    kind = what_is_at(Path(said).expanduser()) if said else "nothing"
    if said.endswith(".py") or "/" in said or "\\" in said or kind == "folder":
        named = Path(said).stem in course.tasks
        if kind == "folder" or (kind == "nothing" and not named):
            guess = guessed(Path(said).stem, course.tasks) if said.endswith(".py") else ""
            raise MissingFileError(f"{wrong_kind(Path(said), kind)}{f'; {guess}' if guess else ''}")
        if not named:
            raise InputError(f"{shown(said)} is named after no task; say which with --task")
        return True
    course.task(said)  # says that there is none
    return False


# ---- what is typed


def type_line(prompt: str) -> str | None:
    """A line without the blanks around it; None at the end of the input."""
    sys.stdout.flush()
    try:
        return input(prompt).strip() if sys.stdin else None
    except (EOFError, UnicodeDecodeError):
        sys.stdout.write("\n")
        return None


def confirm(question: str) -> bool:
    """Yes, and nothing less, said by a person."""
    said = type_line(f"{question} Type yes to go on: ")
    return said is not None and said.lower() == "yes"
