"""`inlayer learn watch`: checks the learner's file whenever it is saved, until it passes.

- the file is looked at a few times a second and read each time: no file system has to report changes, network ones
  show what is read, and an editor may write by renaming. It is checked once it has stayed the same for two looks
- with a terminal one key is a command; more than one character at once is a pasted line, not a command, and what
  follows a key that means nothing is typing: both are swallowed
- at green nothing is watched any longer: without a terminal it ends, with one a key says how to go on
- however it ends, the terminal is as it was before
Checked in a terminal of its own in tests/learn/test_watch.py.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.learn.files import file_of, find_work, open_progress, read_source, task_at_hand
from inlayer.cli.learn.next_step import say_next, say_unkept, stopping
from inlayer.cli.learn.tasks import FOLDER, begin_task, judge, show_hint, show_solution, show_task, show_verdict
from inlayer.errors import InlayerError
from inlayer.paths import shown

if TYPE_CHECKING:
    from inlayer.cli.learn.page import Page
    from inlayer.learn.course import Task
    from inlayer.learn.progress import Progress

__all__ = ["watch"]

PAUSE = 0.2  # seconds between two looks
QUIET = 0.7  # seconds without a key after which typing has ended
END = "\x04"  # Ctrl-D, and a terminal that is gone
KEYS = "h hint   c check again   n next task   s solution   q quit"
PASSED_KEYS = "passed: n next task   s solution   q quit"

WATCH_EXAMPLES = """Examples:

inlayer learn watch

inlayer learn watch gather

Keys, in a terminal: h hint, c check again, n next task, s solution, q quit; when it has passed n, s, q or Enter.

Exit code: 0 when the last check passed, 1 when not.
"""


def watch(
    what: Annotated[
        str | None,
        typer.Argument(metavar="TASK|FILE", help="A task, or a file named after one. Without, the task you are at."),
    ] = None,
    folder: FOLDER = None,
) -> None:
    """Check your file whenever you save it, until it passes."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    course, progress = open_course(), open_progress()
    with progress.changing() as state:
        task, path, fresh = find_work(course, state, what, None, folder)
        state.current = task.id
    out = page()
    watching = Watching(out, progress, task, path)
    with stopping(progress), keyboard() as key:
        watching.begin(fresh=fresh)
        say_unkept(progress)
        watching.run(key)
    if watching.passed:
        out.line()
        say_next(out, course, progress.read())
    say_unkept(progress)
    raise typer.Exit(0 if watching.passed else 1)


def look_at(path: Path) -> str | None:
    """What tells one saving from the next: when, how large, and the content itself; None where no file is."""
    try:
        with path.open("rb") as file:
            data, facts = file.read(2**20 + 1), os.fstat(file.fileno())
    except OSError:
        return None
    return f"{facts.st_mtime_ns} {facts.st_size} {hashlib.sha256(data).hexdigest()}"


class Watching:
    """A file that is watched; `passed` is how its last check came out."""

    def __init__(self, out: Page, progress: Progress, task: Task, path: Path) -> None:
        self.out, self.progress, self.task, self.path = out, progress, task, path
        self.passed = False
        self._checked: str | None = None  # the look that was checked last
        self._before: str | None = None
        self._gone = False  # and that was said

    def begin(self, *, fresh: bool) -> None:
        """Say what to write and where; a file that is just the start waits for the first saving."""
        seen = look_at(self.path)  # before it is read: what is saved in between is checked
        self._checked = self._before = seen if self._is_start() else None
        show_task(self.out, self.task, self.path.parent, fresh=fresh, watched=True)
        self.out.line(f"Watching {shown(self.path)}. Ctrl-C ends it.", style="bold", whole=True)
        self._gone = seen is None
        if self._gone:
            self.out.line("There is no such file yet; it is checked once it is there.", style="yellow")

    def _is_start(self) -> bool:
        try:
            return read_source(self.path) == self.task.start
        except InlayerError:
            return False

    def run(self, key: Callable[[float], str] | None) -> None:
        """Until it is green or the learner leaves; with keys, the next task may follow from there."""
        if key is not None:
            self._say_keys()
        while True:
            before = self._checked
            if not self.passed and self._look() and key is None:
                return
            if key is None:
                time.sleep(PAUSE)
                continue
            if self._checked != before:
                self._say_keys()
            if (pressed := key(PAUSE)) and not self._obey(pressed, key):
                return

    def _say_keys(self) -> None:
        self.out.line(PASSED_KEYS if self.passed else KEYS, style="bold green" if self.passed else "dim")

    def _look(self) -> bool:
        """Check the file where it was saved; whether it passes."""
        seen = look_at(self.path)
        if seen is not None and seen == self._before and seen != self._checked:
            self._checked = seen
            self.check()
        if seen is None and self._before is None and not self._gone:  # for two looks: an editor may be at it
            self.out.line(f"{self.path.name} is gone; it is checked once it is back.", style="yellow")
        self._gone = seen is None and self._before is None
        self._before = seen
        return self.passed

    def check(self) -> None:
        """Check it now, and show how it came out."""
        out = self.out
        out.line()
        out.line(f"{time.strftime('%H:%M:%S')}  checking {self.path.name}", style="dim")
        try:
            verdict = judge(self.progress, self.task, read_source(self.path))
        except InlayerError as error:  # no UTF-8, gone, far too large: the next saving may be better
            out.line(str(error), style="yellow")
            return
        self.passed = verdict.passed
        show_verdict(out, self.task, verdict, self.path, watched=True)
        sys.stdout.flush()

    def _obey(self, pressed: str, key: Callable[[float], str]) -> bool:
        """What a key asks for; False for quit."""
        if pressed in {"q", END} or (self.passed and pressed in {"\n", "\r"}):
            return False
        if pressed == "n":
            return self._next()
        if pressed == "s":
            self._solution()
        elif pressed == "c" and not self.passed:
            self._checked = look_at(self.path)
            self.check()
        elif pressed == "h" and not self.passed:
            with self.progress.changing() as state:
                level = state.note_hint(self.task.id)
            show_hint(self.out, self.task, level, watched=True)
        elif pressed not in {"\n", "\r"}:
            while key(QUIET) not in {"", "\n", "\r", END}:
                pass
            what = f"{pressed} is none of the keys" if pressed.isalnum() and len(pressed) == 1 else "That is no key"
            self.out.line(f"{what}; commands are typed after q.", style="yellow")
        self._say_keys()
        return True

    def _solution(self) -> None:
        with self.progress.changing() as state:
            record = state.task(self.task.id)
            allowed = record.passed or record.solution_seen or record.hints == len(self.task.hints)
            if allowed:
                state.note_solution(self.task.id)
        if allowed:
            show_solution(self.out, self.task, passed=bool(record.passed))
        else:
            self.out.line("Not passed yet. See the hints first (h), or leave and type:")
            self.out.command(f"inlayer learn solution {self.task.id} --show")

    def _next(self) -> bool:
        """On to the next task that is open; the one at hand is left as it is."""
        from inlayer.learn.course import open_course

        course = open_course()
        with self.progress.changing() as state:
            names = [name for name in course.tasks if not state.task(name).passed and name != self.task.id]
            if not names:
                self.out.line("No other task is open.")
                return not self.passed
            ids = list(course.tasks)
            later = [name for name in names if ids.index(name) > ids.index(self.task.id)]
            state.current = (later or names)[0]
            self.task = task_at_hand(course, state, state.current)
        where, fresh = begin_task(self.progress, self.task, None)
        self.path, self.passed = file_of(self.task, where), False
        self.out.line()
        self.begin(fresh=fresh)
        self._say_keys()
        return True


# ---- keys


@contextmanager
def keyboard() -> Iterator[Callable[[float], str] | None]:
    """A function that waits so long for a key, or for all that comes at once; None where nobody sits at a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    try:
        import termios
        import tty
    except ImportError:
        yield _windows_key
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    ends = [signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        tty.setcbreak(place, termios.TCSADRAIN)  # a key at a time, not shown; Ctrl-C still is Ctrl-C
        yield lambda seconds: _unix_key(place, seconds)
    finally:
        termios.tcsetattr(place, termios.TCSADRAIN, before)
        for number, end in zip((signal.SIGTERM, signal.SIGHUP), ends, strict=True):
            signal.signal(number, end)


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal that ends the process ends it by the way that puts the terminal right."""
    del frame
    raise SystemExit(128 + number)


def _unix_key(place: int, seconds: float) -> str:
    import select

    if not select.select([place], [], [], seconds)[0]:
        return ""
    try:
        pressed = os.read(place, 4096)
    except OSError:  # the terminal is gone
        return END
    return pressed.decode("utf-8", "replace").lower() if pressed else END


def _windows_key(seconds: float) -> str:
    import msvcrt

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        held = ""
        while msvcrt.kbhit():  # type: ignore[attr-defined, unused-ignore]
            held += str(msvcrt.getwch()).lower()  # type: ignore[attr-defined, unused-ignore]
        if held:
            return held
        time.sleep(0.02)
    return ""
