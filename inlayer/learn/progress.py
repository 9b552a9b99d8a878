"""Progress of a learner: stored as one JSON file in the user's data folder.

front ends -> service -> [progress] -> progress.json
- the folder is the system's folder for user data; the environment variable INLAYER_DATA overrides it
- changes are read, made and written under a lock, so two processes never lose each other's changes
- a damaged file is renamed and kept; a file written by a newer inlayer is refused and left alone
- if the folder is not writable, a front end may continue unsaved (`allow_unsaved`) and must say so
- times are UTC in ISO 8601; "" means never
- elsewhere: the order of quiz questions (course_steps.py), the learner's own files (task_files.py)
Tested, with writers that are killed, in tests/learn/test_progress.py.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from inlayer.errors import InputError
from inlayer.files import locked, printable, shown, write_atomic

VERSION = 1
FORMAT = "inlayer progress"
MAX_BYTES = 2**24
LOCK_TIMEOUT = 5.0  # seconds; another process holds the lock for milliseconds
HINTS = 3
REPEATS = 2  # quizzes in which a missed question returns
T = TypeVar("T")


@dataclass(kw_only=True)
class TaskRecord:
    """Progress on a task."""

    tries: int = 0  # checks
    passed: str = ""  # time of the first pass
    summary: str = ""  # of the last check
    hints: int = 0  # shown, 0 to 3
    solution_seen: str = ""  # before the task passed

    @property
    def fails_again(self) -> bool:
        """Whether the task passed before but its last check failed."""
        return bool(self.passed) and " failed" in self.summary


@dataclass(kw_only=True)
class ExerciseRecord:
    """Progress on a theory exercise."""

    tries: int = 0
    done: str = ""  # time of the first correct answer, or of the learner's own confirmation
    seed: int | None = None  # of the question that was asked and not answered yet


@dataclass(kw_only=True)
class QuestionRecord:
    """Progress on a quiz question."""

    asked: int = 0
    missed: int = 0
    right: str = ""  # time of the first correct answer
    due: int = 0  # number of quizzes in which it must still be answered correctly on the first try


@dataclass(kw_only=True)
class ProgressState:
    """Everything a learner has done. `skipped` maps step keys to times."""

    folder: str = ""  # of the learner's files
    current: str = ""  # id of the task in progress
    read: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    exercises: dict[str, ExerciseRecord] = field(default_factory=dict)
    questions: dict[str, QuestionRecord] = field(default_factory=dict)

    def task(self, name: str) -> TaskRecord:
        """The record of a task, created if missing."""
        return self.tasks.setdefault(name, TaskRecord())

    def exercise(self, name: str) -> ExerciseRecord:
        return self.exercises.setdefault(name, ExerciseRecord())

    def question(self, name: str) -> QuestionRecord:
        return self.questions.setdefault(name, QuestionRecord())

    def note_check(self, task: str, *, passed: bool, summary: str) -> None:
        record = self.task(task)
        record.tries += 1
        record.summary = summary
        self.current = task
        if passed:
            record.passed = record.passed or now()
            self.skipped.pop(f"task/{task}", None)

    def note_hint(self, task: str, level: int | None = None) -> int:
        """Record a hint and return its level: the requested one, or the one after the last."""
        record = self.task(task)
        level = min(record.hints + 1, HINTS) if level is None else level
        record.hints = max(record.hints, level)
        self.current = task
        return level

    def note_solution(self, task: str) -> None:
        """Record that the solution was shown, unless the task had passed."""
        record = self.task(task)
        if not record.passed:
            record.solution_seen = record.solution_seen or now()

    def note_exercise(self, exercise: str, *, correct: bool | None) -> None:
        """Record a try; None means that the answer was shown. The next question uses other numbers, unless wrong."""
        record = self.exercise(exercise)
        record.tries += 1
        if correct is not False:
            record.seed = None
        if correct:
            record.done = record.done or now()
            self.skipped.pop(f"exercise/{exercise}", None)

    def note_answer(self, question: str, *, correct: bool, repeated: bool = False) -> None:
        """Record an answer. `repeated`: it was missed earlier in this quiz, so a correct answer keeps it due."""
        record = self.question(question)
        record.asked += 1
        if not correct:
            record.missed += 1
            record.due = REPEATS
            return
        record.right = record.right or now()
        if record.due and not repeated:
            record.due -= 1


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def keep_old_file(path: Path, pattern: str) -> Path | None:
    """Rename a file to the first free name, numbered from 1; None if there is no such file."""
    names = (path.with_name(pattern.format(number)) for number in itertools.count(1))
    try:
        return path.rename(next(name for name in names if not name.exists()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProgressAccessError(f"{shown(path)} cannot be renamed: {error.strerror}") from error


def data_folder() -> Path:
    """The folder of inlayer's user data."""
    if given := os.environ.get("INLAYER_DATA"):
        return Path(given)
    from platformdirs import user_data_path

    return user_data_path("inlayer", appauthor=False)


class ProgressFile:
    """The progress file in a folder.

    `on_notice` receives a line if a damaged file was renamed or progress is not saved. With `allow_unsaved`, changes
    last as long as this object if the file cannot be read or written, and `unsaved_reason` says why.
    """

    def __init__(
        self, folder: Path | None = None, *, on_notice: Callable[[str], object] = str, allow_unsaved: bool = False
    ) -> None:
        self.path = (data_folder() if folder is None else folder) / "progress.json"
        self.on_notice = on_notice
        self.allow_unsaved = allow_unsaved
        self.unsaved_reason = ""
        self._unsaved_state = ProgressState()

    def read(self) -> ProgressState:
        """The stored state; an empty one if there is no file."""
        try:
            return self._load()
        except DamagedProgressError:
            with self.edit() as state:  # renames the file
                return state
        except ProgressAccessError as error:
            return self._continue_unsaved(error, ProgressState())

    @contextmanager
    def edit(self) -> Iterator[ProgressState]:
        """Yield the state and write it back if the block succeeds. Other processes wait meanwhile, so be quick."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locked())
                state = self._load()
            except DamagedProgressError as error:
                kept = keep_old_file(self.path, "progress.damaged-{}.json")
                self.on_notice(
                    f"progress starts over: {shown(self.path)} {error}; the file is kept as {shown(kept or '')}"
                )
                state = ProgressState()
            except ProgressAccessError as error:
                state = self._continue_unsaved(error, self.read())
            before = dump_state(state)
            yield state
            after = dump_state(state)
            if not self.unsaved_reason and (after != before or not self.path.exists()):
                try:
                    write_atomic(self.path, after)
                except OSError as error:
                    message = f"progress cannot be saved: {shown(self.path)}: {error.strerror}"
                    self._continue_unsaved(ProgressAccessError(message), state)

    def _continue_unsaved(self, error: ProgressAccessError, state: ProgressState) -> ProgressState:
        if not self.allow_unsaved:
            raise error
        if not self.unsaved_reason:
            self._unsaved_state, self.unsaved_reason = state, str(error)
            self.on_notice(f"progress is not saved: {error}")
        return self._unsaved_state

    def reset(self) -> Path | None:
        """Start over; returns where the old file was kept, if there was one."""
        with self._locked():
            return keep_old_file(self.path, "progress.before-reset-{}.json")

    def merge(self, other: ProgressState) -> None:
        """Add what was done on another machine."""
        with self.edit() as state:
            vars(state).update(vars(merge_states(state, other)))

    def _load(self) -> ProgressState:
        if self.unsaved_reason:
            return self._unsaved_state
        try:
            with self.path.open("rb") as file:
                return load_state(file.read(MAX_BYTES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return ProgressState()
        except OSError as error:
            raise ProgressAccessError(f"progress cannot be read: {shown(self.path)}: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.unsaved_reason:
            yield
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_name("progress.lock")
            lock.touch()
        except OSError as error:
            raise ProgressAccessError(
                f"progress cannot be saved in {shown(self.path.parent)}: {error.strerror}; set INLAYER_DATA to another "
                "folder"
            ) from error
        with locked(lock, "another process holds the lock on your progress; try again", wait=LOCK_TIMEOUT):
            yield


# ---- JSON


class DamagedProgressError(InputError):
    """The data is not a progress file."""


class ProgressAccessError(InputError):
    """The progress file cannot be read or written."""


RECORDS: dict[str, type[Any]] = {"tasks": TaskRecord, "exercises": ExerciseRecord, "questions": QuestionRecord}


def dump_state(state: ProgressState) -> bytes:
    """Serialize to JSON, without empty records."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION, **vars(state)}
    for name, kind in RECORDS.items():
        data[name] = {key: record for key, record in data[name].items() if record != kind()}
    return (json.dumps(data, default=vars, indent=1, sort_keys=True) + "\n").encode()


def load_state(data: bytes) -> ProgressState:
    """Parse JSON from `dump_state`. DamagedProgressError if it is not, InputError if a newer inlayer wrote it."""
    if len(data) > MAX_BYTES:
        raise DamagedProgressError(f"has more than {MAX_BYTES:,} bytes")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedProgressError("is not JSON") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("version"), int):
        raise DamagedProgressError("is not a progress file of inlayer")
    if raw["version"] > VERSION:
        raise InputError(
            f"the progress file has version {printable(str(raw['version']))[:20]}, but this inlayer reads version "
            f"{VERSION}; update inlayer"
        )
    return _read(ProgressState, raw)


def _read(kind: type[T], raw: object, prefix: str = "") -> T:
    """Read a dataclass from JSON. Missing fields get their defaults, unknown ones are ignored."""
    made = kind()
    if not isinstance(raw, dict):
        raise DamagedProgressError(f"has a record in {prefix[:-1]} that is not an object")
    for key, default in vars(kind()).items():
        value = raw.get(key, default)
        if isinstance(default, dict):
            valid = isinstance(value, dict)
            if valid and key in RECORDS:
                value = {one: _read(RECORDS[key], record, f"{key}.") for one, record in value.items()}
            elif valid:
                valid = all(isinstance(time, str) for time in value.values())
        elif isinstance(default, str):
            valid = isinstance(value, str)
        else:  # a count or a seed
            valid = value is default or (type(value) is int and 0 <= value < 2**31)
        if not valid:
            raise DamagedProgressError(f"has an invalid value of {prefix}{key}")
        setattr(made, key, value)
    return made


# ---- merging


def merge_states(mine: ProgressState, other: ProgressState) -> ProgressState:
    """Combine two states: what is done in either is done. The folder and the current task stay mine."""
    merged = replace(mine, read=_earliest(mine.read, other.read))
    for name, kind in RECORDS.items():
        ours, theirs = getattr(mine, name), getattr(other, name)
        pairs = {key: (ours.get(key, kind()), theirs.get(key, kind())) for key in {**ours, **theirs}}
        setattr(merged, name, {key: _merge_records(*pair) for key, pair in pairs.items()})
    done = {f"task/{name}" for name, record in merged.tasks.items() if record.passed}
    done |= {f"exercise/{name}" for name, record in merged.exercises.items() if record.done}
    skipped = _earliest(mine.skipped, other.skipped)
    merged.skipped = {key: time for key, time in skipped.items() if key not in done}
    return merged


def _merge_records(mine: Any, other: Any) -> Any:
    """The record with more tries, except that times are the earliest and hints the most of both."""
    count = "asked" if isinstance(mine, QuestionRecord) else "tries"
    merged = replace(mine if getattr(mine, count) >= getattr(other, count) else other)
    for name in {"passed", "solution_seen", "done", "right"} & vars(merged).keys():
        setattr(merged, name, _first(getattr(mine, name), getattr(other, name)))
    if isinstance(merged, TaskRecord):
        merged.hints = max(mine.hints, other.hints)
    if isinstance(merged, ExerciseRecord):
        merged.seed = None if merged.done else other.seed if mine.seed is None else mine.seed
    return merged


def _earliest(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    return {key: _first(one.get(key, ""), two.get(key, "")) for key in {**one, **two}}


def _first(one: str, two: str) -> str:
    """The earlier of two times; ISO times in UTC sort as text."""
    return min(filter(None, (one, two)), default="")
