"""`inlayer learn watch`: grades the learner's file whenever it is saved, until it passes.

- the file is read several times a second, which works on every file system and with editors that save by renaming;
  it is graded once it is unchanged between two reads
- in a terminal, single keys are commands; pasted text and typing after an unknown key are ignored
- once the file passes, the command ends; in a terminal, it waits for a key that selects the next action
- the terminal settings are always restored, no matter how the command ends
Tested on a pseudo-terminal in tests/learn/test_watch.py.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from inlayer.cli.learn.common import FolderOption, TaskOrFile, command, interruptible, open_printer, open_service
from inlayer.cli.learn.tasks import show_task_file, show_verdict
from inlayer.errors import InlayerError
from inlayer.files import format_path
from inlayer.learn.service import CourseService
from inlayer.learn.task_files import TaskFile, read_file
from inlayer.learn.terminal import CoursePrinter

INTERVAL = 0.2  # seconds between two reads
TYPING_PAUSE = 0.7  # after this many seconds without a keystroke, typing has ended
END = "\x04"  # Ctrl-D, or a closed terminal
KEYS = "h hint   c check again   n next task   s solution   q quit"
PASSED_KEYS = "passed: n next task   s solution   q quit"


@command(
    "inlayer learn watch",
    "inlayer learn watch gather",
    "Keys on a terminal: h hint, c check again, n next task, s solution, q quit; after passing n, s, q, Enter.",
    "Exit code: 0 if the last check passed, 1 if not.",
)
def watch(target: TaskOrFile = None, folder: FolderOption = None) -> None:
    """Grade your file whenever you save it, until it passes."""
    service, out = open_service(folder=folder), open_printer()
    file = service.find_task_file(target, create=True)
    with service.progress.edit() as state:
        state.current = file.task.id
    watcher = FileWatcher(out, service, file)
    with interruptible(service), keyboard() as watcher.key:
        watcher.start()
        watcher.run()
    if watcher.passed:
        out.line()
        out.next_step(service.overview())
    raise typer.Exit(0 if watcher.passed else 1)


def fingerprint(path: Path) -> str | None:
    """Identify one version of a file by time, size, and content. None if it does not exist or cannot be read."""
    try:
        status = path.stat()
        version = f"{status.st_mtime_ns} {status.st_size}"
        return f"{version} {read_file(path).digest}" if path.is_file() else None
    except InlayerError as error:  # graded, so the learner sees why it cannot be read
        return f"{version} {error}"
    except OSError:
        return None


class FileWatcher:
    """A watched file. `passed` is the result of its last check; `key` is None without a terminal."""

    def __init__(self, out: CoursePrinter, service: CourseService, file: TaskFile) -> None:
        self.out, self.service, self.file = out, service, file
        self.key: Callable[[float], str] | None = None
        self.passed = False
        self._seen: str | None = None  # fingerprint of the version that was read last
        self._handled: str | None = None  # digest of the version that was graded or reported as deleted

    def start(self) -> None:
        """Show the task; an unchanged starter file is not graded until it is saved."""
        path = self.file.path
        self._seen, is_start = fingerprint(path), False  # taken before reading, so that a save in between is graded
        with suppress(InlayerError):
            is_start = read_file(path).text == self.file.task.starter
        self._handled = self._seen if is_start else None
        show_task_file(self.out, self.file, watching=True)
        self.out.line(f"Watching {format_path(path)}. Press Ctrl-C to stop.", style="bold", wrap=False)
        if self._seen is None:
            self.out.line("The file does not exist yet; it will be graded once it exists.", style="yellow")
        self._show_keys()

    def run(self) -> None:
        """Grade saved versions until one passes or the learner quits; keys may continue with other tasks."""
        while True:
            if not self.passed:
                self._poll()
            if self.key is not None:
                if (pressed := self.key(INTERVAL)) and not self._handle_key(pressed, self.key):
                    return
            elif self.passed:
                return
            else:
                time.sleep(INTERVAL)

    def _show_keys(self) -> None:
        if self.key is not None:
            self.out.line(PASSED_KEYS if self.passed else KEYS, style="bold green" if self.passed else "dim")

    def _poll(self) -> None:
        """Grade a new version once it is unchanged between two reads, because an editor may still be saving."""
        before, self._seen = self._seen, fingerprint(self.file.path)
        if self._seen != before or self._seen == self._handled:
            return
        self._handled = self._seen
        if self._seen is None:
            self.out.line(f"{self.file.path.name} was deleted; it will be graded once it exists again.", style="yellow")
            return
        self.check()
        self._show_keys()

    def check(self) -> None:
        """Grade the file now and show the verdict."""
        out, path = self.out, self.file.path
        out.line()
        out.line(f"{time.strftime('%H:%M:%S')}  checking {path.name}", style="dim")
        try:
            verdict = self.service.check(self.file.task, read_file(path).text)
        except InlayerError as error:  # not UTF-8, gone, or too large; the next version may be readable
            out.line(str(error), style="yellow")
            return
        self.passed = verdict.passed
        show_verdict(out, self.service, self.file, verdict, watching=True)
        sys.stdout.flush()

    def _handle_key(self, pressed: str, key: Callable[[float], str]) -> bool:
        """Handle a key press; returns False to quit."""
        if pressed in {"q", END} or (self.passed and pressed in {"\n", "\r"}):
            return False
        if pressed == "n":
            return self._next_task()
        if pressed == "s":
            self._solution()
        elif pressed == "c" and not self.passed:
            self._handled = fingerprint(self.file.path)
            self.check()
        elif pressed == "h" and not self.passed:
            level = self.service.hint(self.file.task)
            self.out.hint(self.file.task, level)
            if level == len(self.file.task.hints):
                self.out.line("This is the last hint. Press s to see the solution.")
        elif pressed not in {"\n", "\r"}:
            while key(TYPING_PAUSE) not in {"", "\n", "\r", END}:
                pass
            name = pressed if pressed.isalnum() and len(pressed) == 1 else "That"
            self.out.line(f"{name} is not one of the keys; to type commands, quit with q first.", style="yellow")
        self._show_keys()
        return True

    def _solution(self) -> None:
        task, record = self.file.task, self.service.state().record("task", self.file.task.id)
        if self.service.may_see_solution(task) or record.hints == len(task.hints):
            self.out.solution(task, passed=self.service.record_solution(task))
        else:
            command = f"inlayer learn solution {task.id} --show"
            self.out.commands("Not passed yet. See the hints first (h), or quit and run:", command)

    def _next_task(self) -> bool:
        """Continue with the next open task. Return False if there is none and the current one has passed."""
        task = self.service.next_open_task(self.file.task)
        if task is None:
            self.out.line("No other task is open.")
            return not self.passed
        self.file, self.passed = self.service.start_task(task.id), False
        self.out.line()
        self.start()
        return True


# ---- keys


@contextmanager
def keyboard() -> Iterator[Callable[[float], str] | None]:
    """Yield a function that waits for a key, or None if standard input is not a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    import termios  # grading needs a Unix system anyway
    import tty

    descriptor = sys.stdin.fileno()

    def read_key(seconds: float) -> str:
        if not select.select([descriptor], [], [], seconds)[0]:
            return ""
        try:
            pressed = os.read(descriptor, 4096)
        except OSError:  # the terminal was closed
            return END
        return pressed.decode("utf-8", "replace").lower() if pressed else END

    before = termios.tcgetattr(descriptor)
    for number in (signal.SIGTERM, signal.SIGHUP):  # exit through the cleanup below
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)  # one key at a time, without echo; Ctrl-C still works
        yield read_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
