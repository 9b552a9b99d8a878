"""A learner's progress, stored as one JSON file in the user's data folder.

front ends -> service -> [progress] -> progress.json
- the folder is the system's folder for user data; the environment variable INLAYER_DATA overrides it
- the file is read, changed, and written under a lock, so two processes never lose each other's changes
- a damaged file is renamed and kept; a file written by a newer inlayer is rejected and not changed
- if the folder is not writable, a front end may continue unsaved (`allow_unsaved`) with a warning
- times are UTC in ISO 8601; "" means never
- see also: the order of quiz questions (course_steps.py), the learner's own files (task_files.py)
Tested, including killed writers, in tests/learn/test_progress_file.py.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import file_errors, format_path, locked, quote, write_atomic

VERSION = 2
FORMAT = "inlayer progress"
MAX_PROGRESS_BYTES = 2**24
UNWRITABLE = "cannot be written (set INLAYER_DATA to another folder)"
LOCK_TIMEOUT = 5.0  # seconds; normally, processes hold the lock for only milliseconds
MAX_HINTS = 3
REPEATS = 2  # number of later quizzes in which a missed question returns


@dataclass(kw_only=True)
class ProgressRecord:
    """Progress on a lesson, task, exercise, or quiz question. Fields that do not apply keep their defaults."""

    attempts: int = 0  # number of checks or answers
    done_at: str = ""  # when it was first read, passed, or answered correctly (free text: confirmed by the learner)
    skipped_at: str = ""  # when it was skipped
    summary: str = ""  # a task's last check
    hints: int = 0  # hints used for a task, 0 to 3
    solution_seen_at: str = ""  # when the solution was viewed before the task passed
    seed: int | None = None  # seed of an exercise that was asked and not answered yet
    missed: int = 0  # wrong answers to a question
    due: int = 0  # number of quizzes in which a question must still be answered correctly on the first try

    @property
    def fails_again(self) -> bool:
        """True if a task passed before but its last check failed."""
        return bool(self.done_at) and " failed" in self.summary

    def finish(self) -> None:
        """Mark the item as done; it stays done."""
        self.done_at, self.skipped_at = self.done_at or now(), ""

    def record_check(self, *, passed: bool, summary: str) -> None:
        self.attempts += 1
        self.summary = summary
        if passed:
            self.finish()

    def record_hint(self, level: int | None = None) -> int:
        """Record a hint and return its level: the requested one, or the one after the last."""
        level = min(self.hints + 1, MAX_HINTS) if level is None else level
        self.hints = max(self.hints, level)
        return level

    def record_exercise(self, *, correct: bool | None) -> None:
        """Record an attempt (None: the answer was shown). Unless it was wrong, the next question uses other numbers."""
        self.attempts += 1
        if correct is not False:
            self.seed = None
        if correct:
            self.finish()

    def record_answer(self, *, correct: bool, repeated: bool = False) -> None:
        """Record an answer. `repeated`: it was missed earlier in this quiz, so it stays due even if now correct."""
        self.attempts += 1
        if not correct:
            self.missed += 1
            self.due = REPEATS
            return
        self.finish()
        if self.due and not repeated:
            self.due -= 1


@dataclass(kw_only=True)
class ProgressState:
    """Everything a learner has done. Keys of records are "read/LESSON", "task/ID", "exercise/ID", "question/ID"."""

    folder: str = ""  # where the learner's files are
    current: str = ""  # id of the task in progress
    records: dict[str, ProgressRecord] = field(default_factory=dict)

    def record(self, kind: str, name: str) -> ProgressRecord:
        """Return the record of a lesson, task, exercise, or question, creating it if necessary."""
        return self.records.setdefault(f"{kind}/{name}", ProgressRecord())


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def back_up_file(path: Path, pattern: str) -> Path | None:
    """Rename a file to the first free name, numbered from 1. Return None if there is no such file."""
    names = (path.with_name(pattern.format(number)) for number in itertools.count(1))
    if not path.exists():
        return None
    with file_errors(path, "cannot be renamed", ProgressAccessError):
        return path.rename(next(name for name in names if not name.exists()))


def data_folder() -> Path:
    """Return the folder of inlayer's user data."""
    if override := os.environ.get("INLAYER_DATA"):
        return Path(override)
    from platformdirs import user_data_path

    return user_data_path("inlayer", appauthor=False)


class ProgressFile:
    """The progress file in a folder.

    `on_notice` receives a line if a damaged file was renamed or progress is not saved. With `allow_unsaved`, progress
    is kept in `unsaved` if the file cannot be read or written, and is lost with this object.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        on_notice: Callable[[str], object] = str,
        allow_unsaved: bool = False,
        unsaved: ProgressState | None = None,
    ) -> None:
        self.path = (data_folder() if folder is None else folder) / "progress.json"
        self.on_notice = on_notice
        self.allow_unsaved = allow_unsaved
        self.unsaved = unsaved

    def read(self) -> ProgressState:
        """Return the stored state, or an empty one if there is no file."""
        try:
            return self._load()
        except (DamagedProgressError, ProgressAccessError):
            with self.edit() as state:  # editing renames a damaged file, and may continue unsaved
                return state

    @contextmanager
    def edit(self) -> Iterator[ProgressState]:
        """Yield the state and write it back if the block succeeds. Other processes wait, so keep the block short."""
        with ExitStack() as stack:
            try:
                if self.unsaved is None:
                    stack.enter_context(self._locked())
                state = self._load_or_reset()
            except ProgressAccessError as error:
                state = ProgressState()
                with suppress(DamagedProgressError, ProgressAccessError):
                    state = self._load()
                self._continue_unsaved(state, error)
            before = dump_state(state)
            yield state
            after = dump_state(state)
            if self.unsaved is None and (after != before or not self.path.exists()):
                try:
                    with file_errors(self.path, UNWRITABLE, ProgressAccessError):
                        write_atomic(self.path, after)
                except ProgressAccessError as error:
                    self._continue_unsaved(state, error)

    def _continue_unsaved(self, state: ProgressState, error: ProgressAccessError) -> None:
        if not self.allow_unsaved:
            raise error
        self.unsaved = state
        self.on_notice(f"progress is not saved: {error}")

    def reset(self) -> Path | None:
        """Start over, and return the path of the old file, if there was one."""
        with self._locked():
            return back_up_file(self.path, "progress.before-reset-{}.json")

    def merge(self, other: ProgressState) -> None:
        """Add progress made on another machine."""
        with self.edit() as state:
            state.records = merge_states(state, other).records

    def _load(self) -> ProgressState:
        if self.unsaved is not None:
            return self.unsaved
        missing = suppress(FileNotFoundError, NotADirectoryError)
        with file_errors(self.path, kind=ProgressAccessError), missing, self.path.open("rb") as file:
            return load_state(file.read(MAX_PROGRESS_BYTES + 1), format_path(self.path))
        return ProgressState()

    def _load_or_reset(self) -> ProgressState:
        """Return the stored state; a damaged file is renamed."""
        try:
            return self._load()
        except DamagedProgressError as error:
            backup = back_up_file(self.path, "progress.damaged-{}.json")
            self.on_notice(f"progress was reset because {error}; the file is kept as {format_path(backup or '')}")
            return ProgressState()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name("progress.lock")
        with file_errors(self.path.parent, UNWRITABLE, ProgressAccessError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with locked(lock, "another process holds the lock on your progress; try again", wait=LOCK_TIMEOUT):
            yield


# ---- JSON


class DamagedProgressError(InputError):
    """The data is not a progress file."""


class ProgressAccessError(InputError):
    """The progress file cannot be read or written."""


def dump_state(state: ProgressState) -> bytes:
    """Serialize to JSON, without default values."""
    default = vars(ProgressRecord())
    records = {
        key: changed
        for key, record in state.records.items()
        if (changed := {name: value for name, value in vars(record).items() if value != default[name]})
    }
    data = {"format": FORMAT, "version": VERSION, **vars(state), "records": records}
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def load_state(data: bytes, source: str = "the progress file") -> ProgressState:
    """Parse JSON from `dump_state`. Raises InputError if a newer inlayer wrote it, DamagedProgressError otherwise."""
    if len(data) > MAX_PROGRESS_BYTES:
        raise DamagedProgressError(f"{source} is larger than {MAX_PROGRESS_BYTES:,} bytes")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedProgressError(f"{source} is not JSON") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("version"), int):
        raise DamagedProgressError(f"{source} is not a progress file of inlayer")
    if raw["version"] < VERSION:
        raise DamagedProgressError(f"{source} is from an earlier inlayer, whose lessons had different names")
    if raw["version"] > VERSION:
        found = quote(raw["version"])
        raise InputError(f"{source} has version {found}, but this inlayer reads version {VERSION}; update inlayer")
    folder, current, records = (raw.get(name, default) for name, default in vars(ProgressState()).items())
    if not (isinstance(folder, str) and isinstance(current, str) and isinstance(records, dict)):
        raise DamagedProgressError(f"{source} has an invalid folder, task, or list of records")
    read = {key: _read_record(record, f"{source} has a record {quote(key)}") for key, record in records.items()}
    return ProgressState(folder=folder, current=current, records=read)


def _read_record(raw: object, source: str) -> ProgressRecord:
    """Read a record from JSON. Missing fields get their defaults; unknown ones are ignored."""
    if not isinstance(raw, dict):
        raise DamagedProgressError(f"{source} that is not an object")
    record = ProgressRecord()
    for name, default in vars(ProgressRecord()).items():
        value = raw.get(name, default)
        is_count = type(value) is int and 0 <= value < 2**31
        if not (isinstance(value, str) if isinstance(default, str) else is_count or value is default):
            raise DamagedProgressError(f"{source} with an invalid {name}")
        setattr(record, name, value)
    return record


# ---- merging


def merge_states(mine: ProgressState, other: ProgressState) -> ProgressState:
    """Combine two states: what is done in either is done. Folder and current task come from the first."""
    keys, empty = {**mine.records, **other.records}, ProgressRecord()
    pairs = {key: (mine.records.get(key, empty), other.records.get(key, empty)) for key in keys}
    return replace(mine, records={key: _merge_records(*pair) for key, pair in pairs.items()})


def _merge_records(mine: ProgressRecord, other: ProgressRecord) -> ProgressRecord:
    """Return the record with more attempts, with the earlier times and the larger hint count of the two."""
    merged = replace(mine if mine.attempts >= other.attempts else other, hints=max(mine.hints, other.hints))
    for name in ("done_at", "skipped_at", "solution_seen_at"):
        times = filter(None, (getattr(mine, name), getattr(other, name)))
        setattr(merged, name, min(times, default=""))  # ISO times in UTC sort as text
    merged.seed = None if merged.done_at else other.seed if mine.seed is None else mine.seed
    merged.skipped_at = "" if merged.done_at else merged.skipped_at
    return merged
