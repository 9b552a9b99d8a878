"""The learner's files: FOLDER/TASK.py, shared by the terminal and the page.

service -> [files] -> disk
- the folder is chosen once and recorded in the progress; the default is created where the program was first started
- nothing the learner wrote is overwritten: a reset keeps the old file under another name
Tested in tests/learn/test_cli.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import check_path, not_a_file, path_kind, shown, write_atomic
from inlayer.learn.course import Task
from inlayer.learn.progress import ProgressState
from inlayer.learn.submission import SourceFile, SubmissionError, read_source_file

__all__ = ["FileConflictError", "TaskFile", "choose_folder", "create_file", "load_file", "read_file",
           "require_unchanged", "write_file"]  # fmt: skip

DEFAULT_FOLDER = "inlayer-course"


class FileConflictError(InputError):
    """The learner's file was changed since it was loaded."""


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """A task and the learner's file for it; `is_new` if the file was just created."""

    task: Task
    path: Path
    is_new: bool = False


def choose_folder(state: ProgressState, folder: str | None = None) -> Path:
    """The folder of the learner's files, recorded in the progress."""
    if folder is not None:
        path = check_path(folder, "--folder").expanduser().absolute()
        if path_kind(path) not in {"folder", "missing"}:
            raise InputError(f"{shown(folder)} is not a folder")
        state.folder = str(path)
    state.folder = state.folder or str(Path.cwd() / DEFAULT_FOLDER)
    return Path(state.folder)


def create_file(task: Task, folder: Path) -> TaskFile:
    """Write the task's start file, unless the file exists."""
    path = folder / f"{task.id}.py"
    if (kind := path_kind(path)) == "missing":
        write_file(path, task.start)
    elif kind != "file":
        raise not_a_file(path, kind)
    return TaskFile(task=task, path=path, is_new=kind == "missing")


def read_file(path: Path) -> SourceFile:
    """Read a learner's file; the error names the file and says what is wrong."""
    try:
        return read_source_file(path)
    except SubmissionError as error:
        if error.rule in {"not-found", "not-a-file"}:
            raise not_a_file(path, path_kind(path)) from None
        raise InputError(f"{shown(path)}: {error}") from None


def load_file(task: Task, state: ProgressState) -> tuple[Path, SourceFile | None]:
    """The path of the learner's file for a task, and its content if it exists."""
    folder = Path(state.folder) if state.folder else Path.cwd() / DEFAULT_FOLDER
    path = (folder / f"{task.id}.py").resolve()
    return path, read_file(path) if path_kind(path) != "missing" else None


def require_unchanged(path: Path, found: SourceFile | None, loaded: str | None) -> None:
    """Raise unless the file still has the digest that was loaded (None: it did not exist)."""
    if (found.digest if found else None) != loaded:
        raise FileConflictError(f"{path.name} was changed elsewhere since it was loaded")


def write_file(path: Path, source: str) -> None:
    try:
        data = source.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"character {error.start} of the code is a lone surrogate, which is not text") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        message = f"{shown(path)} cannot be written: {error.strerror}; choose another folder with --folder"
        raise InputError(message) from None
