"""What a learner has done: kept in the user's data folder, whole after a crash, moved as one file of JSON.

the doors -> [progress] -> progress.json
- the folder is the system's own for a user's data; INLAYER_DATA names another
- two processes never lose each other's change: it is read, changed and written while a lock is held
- a file that is damaged, or is something else, is set aside and kept; one of a newer inlayer is refused and left alone
- where the folder cannot be written, a door may go on without (`loose`); it must then say that nothing is recorded
- times are UTC, ISO 8601; "" is never
- not here: what a quiz asks next (quiz.py); the learner's own files, which lie where he wants them
Checked, with writers that are killed, in tests/learn/test_progress.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeVar

from inlayer.errors import InputError
from inlayer.learn.course import Course, Lesson
from inlayer.paths import printable, shown
from inlayer.saving import locked, put

__all__ = [
    "Exercised", "Progress", "Questioned", "State", "Step", "Tasked", "data_folder", "merged", "now", "read_state",
    "steps", "what_next", "written",
]  # fmt: skip

VERSION = 1
FORMAT = "inlayer progress"
MAX_BYTES = 2**24
WAIT = 5.0  # seconds for another process's change, which takes milliseconds
HINTS = 3


@dataclass(kw_only=True)
class Tasked:
    """What was done about a task."""

    tries: int = 0  # checks
    passed: str = ""  # when it first did
    summary: str = ""  # of the last check
    hints: int = 0  # shown, 0 to 3
    solution_seen: str = ""  # before it passed

    @property
    def broken(self) -> bool:
        """Has it passed, and its last check has not?"""
        counted = re.match(r"(\d+) of (\d+) ", self.summary)
        return bool(self.passed and counted and int(counted[1]) < int(counted[2]))


@dataclass(kw_only=True)
class Exercised:
    """What was done about a theory exercise."""

    tries: int = 0
    done: str = ""  # judged right, or by the learner himself where no program can judge
    seed: int | None = None  # of the one that was asked and waits for its answer


@dataclass(kw_only=True)
class Questioned:
    """What was done about a question of a quiz."""

    asked: int = 0
    missed: int = 0
    right: str = ""  # when it first was
    due: int = 0  # sittings in which it has to come back, and be right at once


@dataclass(kw_only=True)
class State:
    """All of it. `skipped` holds keys of steps."""

    folder: str = ""  # where the learner's files lie
    current: str = ""  # the task at hand
    read: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, Tasked] = field(default_factory=dict)
    exercises: dict[str, Exercised] = field(default_factory=dict)
    questions: dict[str, Questioned] = field(default_factory=dict)

    def task(self, name: str) -> Tasked:
        """The record of a task, to be read or changed; there is one from now on."""
        return self.tasks.setdefault(name, Tasked())

    def exercise(self, name: str) -> Exercised:
        return self.exercises.setdefault(name, Exercised())

    def question(self, name: str) -> Questioned:
        return self.questions.setdefault(name, Questioned())

    def note_check(self, task: str, *, passed: bool, summary: str) -> None:
        """A file was checked."""
        record = self.task(task)
        record.tries += 1
        record.summary = summary
        self.current = task
        if passed:
            record.passed = record.passed or now()
            self.skipped.pop(f"task/{task}", None)

    def note_hint(self, task: str, level: int | None = None) -> int:
        """The level of the hint to show: the one after the last, or the one that was asked for."""
        record = self.task(task)
        shown_now = min(record.hints + 1, HINTS) if level is None else level
        record.hints = max(record.hints, shown_now)
        self.current = task
        return shown_now

    def note_solution(self, task: str) -> None:
        """The solution is shown; remembered where the task had not passed."""
        record = self.task(task)
        if not record.passed:
            record.solution_seen = record.solution_seen or now()

    def note_exercise(self, exercise: str, *, correct: bool) -> None:
        """An answer was judged, or judged by the learner himself."""
        record = self.exercise(exercise)
        record.tries += 1
        if correct:
            record.done = record.done or now()
            record.seed = None
            self.skipped.pop(f"exercise/{exercise}", None)

    def note_given_away(self, exercise: str) -> None:
        """The answer was shown: a try, and the next time other numbers are drawn, so that it is still to be done."""
        record = self.exercise(exercise)
        record.tries += 1
        record.seed = None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def data_folder() -> Path:
    """Where inlayer keeps what a user did."""
    if said := os.environ.get("INLAYER_DATA"):
        return Path(said)
    from platformdirs import user_data_path

    return user_data_path("inlayer", appauthor=False)


class Progress:
    """The file, in a folder. `tell` hears in a line what was found there and set aside.

    A `loose` one goes on where the file cannot be kept: changes last as long as this object, and `unkept` says why.
    """

    def __init__(self, folder: Path | None = None, *, tell: Callable[[str], object] = str, loose: bool = False) -> None:
        self.path = (data_folder() if folder is None else folder) / "progress.json"
        self.tell = tell
        self.loose = loose
        self.unkept = ""
        self._loose_state = State()

    def read(self) -> State:
        """What is there now; nothing done, where there is no file."""
        if self.unkept:
            return self._loose_state
        try:
            if (data := self._bytes()) is None:
                return State()
            try:
                return read_state(data)
            except DamagedError:
                with self._held():
                    return self._found()
        except UnkeptError as error:
            self._go_on_without(error, State())
            return self._loose_state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """What is there, to be changed; written when the block ends well. Others wait meanwhile: do it quickly."""
        with ExitStack() as stack:
            try:
                if not self.unkept:
                    stack.enter_context(self._held())
                    state = self._found()
            except UnkeptError as error:
                self._go_on_without(error, None)
            if self.unkept:
                yield self._loose_state
                return
            before = written(state)
            yield state
            after = written(state)
            if after != before or not self.path.exists():
                try:
                    self._put(after)
                except UnkeptError as error:
                    self._go_on_without(error, state)

    def _go_on_without(self, error: UnkeptError, state: State | None) -> None:
        """From a state that is given, or from what can still be read."""
        if not self.loose:
            raise error
        if state is None:
            state = self.read()  # which may have found out by itself
        self.unkept, self._loose_state = self.unkept or str(error), state

    def reset(self) -> Path | None:
        """Begin anew; what was there is kept beside, where this says."""
        with self._held():
            return self._set_aside("before-reset")

    def take_in(self, other: State) -> None:
        """Add what was done on another machine."""
        with self.changing() as state:
            joined = merged(state, other)
            for one in fields(State):
                setattr(state, one.name, getattr(joined, one.name))

    # ---- the file

    def _bytes(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnkeptError(f"progress cannot be read: {shown(self.path)}: {error.strerror}") from error

    def _found(self) -> State:
        """Under the lock: the state in the file, which is set aside where it is none."""
        if (data := self._bytes()) is None:
            return State()
        try:
            return read_state(data)
        except DamagedError as error:
            kept = self._set_aside("damaged")
            self.tell(f"progress begins anew: {shown(self.path)} {error}; it is kept as {shown(kept or '')}")
            return State()

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_name("progress.lock")
            lock.touch()
        except OSError as error:
            raise UnkeptError(
                f"progress cannot be kept in {shown(self.path.parent)}: {error.strerror}; INLAYER_DATA names another "
                "folder"
            ) from error
        with locked(lock, "another process keeps its progress for too long; try again", wait=WAIT):
            yield

    def _put(self, data: bytes) -> None:
        try:
            put(self.path, data)
        except OSError as error:
            raise UnkeptError(f"progress cannot be kept: {shown(self.path)}: {error.strerror}") from error

    def _set_aside(self, why: str) -> Path | None:
        number = 1
        while (kept := self.path.with_name(f"progress.{why}-{number}.json")).exists():
            number += 1
        try:
            self.path.rename(kept)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnkeptError(f"{shown(self.path)} cannot be set aside: {error.strerror}") from error
        return kept


# ---- as JSON


class DamagedError(InputError):
    """What was read is no progress."""


class UnkeptError(InputError):
    """The file cannot be read or written."""


Record = TypeVar("Record", Tasked, Exercised, Questioned)


def written(state: State) -> bytes:
    """As JSON. A record in which nothing happened is left out."""
    told: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **{one.name: getattr(state, one.name) for one in fields(State)},
    }
    for name, kind in (("tasks", Tasked), ("exercises", Exercised), ("questions", Questioned)):
        told[name] = {key: record for key, record in told[name].items() if record != kind()}
    return (json.dumps(told, default=vars, indent=1, sort_keys=True) + "\n").encode()


def read_state(data: bytes) -> State:
    """The state that `written` wrote. DamagedError where it is none, InputError where a newer inlayer wrote it."""
    if len(data) > MAX_BYTES:
        raise DamagedError(f"holds more than {MAX_BYTES:,} bytes")
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedError("is no JSON") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("version"), int):
        raise DamagedError("is no progress of inlayer")
    if told["version"] > VERSION:
        raise InputError(
            f"the progress was written by a newer inlayer (version {printable(str(told['version']))[:20]} of the file, "
            f"this one reads {VERSION}); update inlayer"
        )
    return State(
        folder=_text(told, "folder"),
        current=_text(told, "current"),
        read=_times(told, "read"),
        skipped=_times(told, "skipped"),
        tasks=_records(told, "tasks", Tasked),
        exercises=_records(told, "exercises", Exercised),
        questions=_records(told, "questions", Questioned),
    )


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name, "")
    if not isinstance(value, str):
        raise DamagedError(f"has a {name} that is no text")
    return value


def _times(told: Mapping[str, Any], name: str) -> dict[str, str]:
    value = told.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(time, str) for time in value.values()):
        raise DamagedError(f"has {name} that are no times")
    return value


def _records(told: Mapping[str, Any], name: str, kind: type[Record]) -> dict[str, Record]:
    value = told.get(name, {})
    if not isinstance(value, dict):
        raise DamagedError(f"has {name} that are no records")
    return {key: _record(record, name, kind) for key, record in value.items()}


def _record(told: object, name: str, kind: type[Record]) -> Record:
    if not isinstance(told, dict):
        raise DamagedError(f"has {name} that are no records")
    known: dict[str, Any] = {}
    for one in fields(kind):
        value = told.get(one.name, one.default)
        ours = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if one.default is None:
            fits = value is None or (ours and value < 2**63)
        else:
            fits = isinstance(value, str) if isinstance(one.default, str) else ours and value < 2**31
        if not fits:
            raise DamagedError(f"has a record of {name} whose {one.name} makes no sense")
        known[one.name] = value
    return kind(**known)


def merged(mine: State, other: State) -> State:
    """Both: what was done on either machine is done. Where files lie and what is at hand stay mine."""
    joined = State(folder=mine.folder, current=mine.current)
    joined.read = _earliest(mine.read, other.read)
    for name in {**mine.tasks, **other.tasks}:
        one, two = replace(mine.tasks.get(name, Tasked())), other.tasks.get(name, Tasked())
        one.summary = one.summary if one.tries >= two.tries else two.summary
        one.tries, one.hints = max(one.tries, two.tries), max(one.hints, two.hints)
        one.passed = _first(one.passed, two.passed)
        one.solution_seen = _first(one.solution_seen, two.solution_seen)
        joined.tasks[name] = one
    for name in {**mine.exercises, **other.exercises}:
        was, theirs = mine.exercises.get(name, Exercised()), other.exercises.get(name, Exercised())
        done, seed = _first(was.done, theirs.done), theirs.seed if was.seed is None else was.seed
        joined.exercises[name] = Exercised(tries=max(was.tries, theirs.tries), done=done, seed=None if done else seed)
    for name in {**mine.questions, **other.questions}:
        here, there = mine.questions.get(name, Questioned()), other.questions.get(name, Questioned())
        more = here if here.asked >= there.asked else there
        joined.questions[name] = replace(more, right=_first(here.right, there.right))
    done_now = {f"task/{name}" for name, record in joined.tasks.items() if record.passed}
    done_now |= {f"exercise/{name}" for name, record in joined.exercises.items() if record.done}
    skipped = _earliest(mine.skipped, other.skipped)
    joined.skipped = {key: time for key, time in skipped.items() if key not in done_now}
    return joined


def _earliest(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    return {key: _first(one.get(key, ""), two.get(key, "")) for key in {**one, **two}}


def _first(one: str, two: str) -> str:
    """The earlier of two times; ISO times of one zone sort as text."""
    return min(filter(None, (one, two)), default="")


# ---- the way through the course

Kind = Literal["read", "task", "exercise", "quiz"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do: a lesson to read, a task, an exercise, a quiz."""

    kind: Kind
    id: str
    lesson: Lesson

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"

    @property
    def command(self) -> str:
        """What to type for it."""
        verb = {"read": "read", "task": "check", "exercise": "exercise", "quiz": "quiz"}[self.kind]
        return f"inlayer learn {verb} {self.id}"

    def is_done(self, state: State) -> bool:
        if self.kind == "read":
            return self.id in state.read
        if self.kind == "task":
            return bool(state.tasks.get(self.id, Tasked()).passed)
        if self.kind == "exercise":
            return bool(state.exercises.get(self.id, Exercised()).done)
        return all(state.questions.get(one.id, Questioned()).right for one in self.lesson.questions)


def steps(lesson: Lesson) -> Iterator[Step]:
    """A lesson in its order: the text, its tasks, its exercises, its quiz."""
    yield Step(kind="read", id=lesson.id, lesson=lesson)
    for task in lesson.tasks:
        yield Step(kind="task", id=task.id, lesson=lesson)
    for exercise in lesson.exercises:
        yield Step(kind="exercise", id=exercise.id, lesson=lesson)
    yield Step(kind="quiz", id=lesson.id, lesson=lesson)


def what_next(course: Course, state: State) -> Step | None:
    """The first step that is neither done nor skipped; then the first that was skipped; None at the end of it all."""
    left = [step for lesson in course.lessons for step in steps(lesson) if not step.is_done(state)]
    return next((step for step in left if step.key not in state.skipped), left[0] if left else None)
