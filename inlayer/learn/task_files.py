"""The learner's files: FOLDER/TASK.py, shared by the terminal and the page.

service, batch -> [files] -> disk
- the folder is chosen once and recorded in the progress; by default, it is created where the first task is started
- nothing the learner wrote is overwritten: a reset keeps the old file under a different name
- files are untrusted: reading never blocks on a pipe and never reads without a limit
Tested in tests/learn/test_cli.py and tests/learn/test_batch.py.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import check_path, expand_home, file_errors, format_path, path_kind, utf8_problem, write_atomic
from inlayer.learn.course import Task
from inlayer.learn.progress_file import ProgressState

DEFAULT_FOLDER = "inlayer-course"
MAX_SOURCE_BYTES = 1 << 20
UNWRITABLE = "cannot be written (choose another folder with --folder)"
LINK_MESSAGE = "it is a symbolic link, which is not followed; submit the file itself"


class SubmissionError(InputError):
    """A file that cannot be read as a submission; `rule` is the short name used in reports."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class FileConflictError(InputError):
    """The learner's file was changed since it was loaded."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """The text of a learner's file with Unix line endings, and a digest of its bytes."""

    text: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """A task and the learner's file for it. `is_new` is True if the file was just created."""

    task: Task
    path: Path
    is_new: bool = False


def find_folder(state: ProgressState, folder: str | None = None) -> Path:
    """Return the folder of the learner's files: a new one, the one in the progress, or the default."""
    if folder is None:
        return Path(state.folder) if state.folder else Path.cwd() / DEFAULT_FOLDER
    path = expand_home(check_path(folder, "--folder")).absolute()
    if path_kind(path) not in {"folder", "missing"}:
        raise InputError(f"{format_path(folder)} is not a folder")
    return path


def read_source_file(path: str | Path, max_bytes: int = MAX_SOURCE_BYTES, *, follow_links: bool = True) -> SourceFile:
    """Read a regular file of UTF-8 text. Raises SubmissionError with the reason if that is not possible."""
    names = ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY", *(() if follow_links else ("O_NOFOLLOW",)))  # where they exist
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in names)
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SubmissionError("not-a-file", "it is a pipe, device, or socket, not a file")
            data = file.read(max_bytes + 1)
    except IsADirectoryError:
        raise SubmissionError("not-a-file", "it is a folder, not a file") from None
    except (FileNotFoundError, NotADirectoryError):
        raise SubmissionError("not-found", "not found") from None
    except OSError as error:
        if not follow_links and Path(path).is_symlink():
            raise SubmissionError("link", LINK_MESSAGE) from None
        raise SubmissionError("unreadable", f"it cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise SubmissionError("too-large", f"it is larger than {max_bytes:,} bytes")
    try:
        text = data.decode("utf-8-sig")  # some editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise SubmissionError("not-utf-8", f"it is {utf8_problem(error)}; save it as UTF-8") from None
    return SourceFile(text=text.replace("\r\n", "\n").replace("\r", "\n"), digest=hashlib.sha256(data).hexdigest())


def read_file(path: Path) -> SourceFile:
    """Read a learner's file; an error names the file and the problem."""
    try:
        return read_source_file(path)
    except SubmissionError as error:
        raise InputError(f"{format_path(path)}: {error}") from None


def require_unchanged(path: Path, current: SourceFile | None, base_digest: str | None) -> None:
    """Raise unless the file still has the digest it had when it was loaded (None: it did not exist)."""
    if (current.digest if current else None) != base_digest:
        raise FileConflictError(f"{path.name} was changed elsewhere since it was loaded")


def write_file(path: Path, source: str) -> None:
    make_folder(path.parent)
    with file_errors(path, UNWRITABLE):
        write_atomic(path, source.encode())


def make_folder(folder: Path) -> None:
    with file_errors(folder, UNWRITABLE):
        folder.mkdir(parents=True, exist_ok=True)
