"""Watching a file: every way of saving triggers a check; keys work; the terminal settings are restored."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inlayer.cli.learn.watch import fingerprint
from inlayer.learn.progress_file import ProgressFile
from tests.learn.small import SOLUTION, START, WRONG

termios = pytest.importorskip("termios", reason="a terminal as Unix has them")
pty = pytest.importorskip("pty", reason="a terminal as Unix has them")

# Replaces the grader, which starts slowly and is tested elsewhere: a file passes if it sums rows.
WATCH = """
import sys
from pathlib import Path
import inlayer.learn.course
from tests.learn.small import make_course
made = make_course(Path(sys.argv.pop(1)))
inlayer.learn.course.open_course = lambda: made
from types import SimpleNamespace
from inlayer.cli import main
from inlayer.learn.service import CourseService

def check(service, task, source):
    passed = ".sum(" in source
    outcomes = [("syntax", "passed", "", ""), ("values", "passed" if passed else "failed", "mean", "this is the mean")]
    results = [SimpleNamespace(name=name, description="", state=state, rule=rule, message=message, feedback=())
               for name, state, rule, message in outcomes]
    summary = f"{1 + passed} of 2 checks passed"
    with service.progress.edit() as state:
        state.record("task", task.id).record_check(passed=passed, summary=summary)
    return SimpleNamespace(task=task.id, results=results, passed=passed, summary=summary, seed=1, printed="",
                           walk_output=None, failure=None if passed else results[1])

CourseService.check = check
main()
"""


class Terminal:
    """`inlayer learn watch` with or without a terminal."""

    def __init__(self, folder: Path, *, keys: bool) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        env = os.environ | {"COLUMNS": "80", "TERM": "dumb", "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", WATCH, str(folder / "content"), "learn", "watch", "add"]
        self.process = subprocess.Popen(
            command,
            stdin=self.theirs if keys else subprocess.DEVNULL,
            stdout=self.theirs,
            stderr=self.theirs,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        self.shown = ""

    def wait_for(self, text: str) -> str:
        """Read output up to and including a text."""
        held, end = "", time.monotonic() + 300
        while text not in held:
            assert time.monotonic() < end, f"{text!r} was not printed: {held}"
            if select.select([self.ours], [], [], 0.2)[0]:
                held += os.read(self.ours, 4096).decode()
            else:
                assert self.process.poll() is None, f"it ended before {text!r} was printed: {held}"
        self.shown += held
        return held

    def press(self, key: str) -> None:
        os.write(self.ours, key.encode())

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        deadline = time.monotonic() + 300
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it did not end"
            if select.select([self.ours], [], [], 0.05)[0]:
                self.shown += os.read(self.ours, 4096).decode()
        while select.select([self.ours], [], [], 0.05)[0]:  # what it printed last
            self.shown += os.read(self.ours, 4096).decode()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    made = Terminal(home, keys=True)
    yield made
    made.close()


@pytest.mark.slow
def test_keys_from_failing_to_passing_and_the_next_task(home: Path, terminal: Terminal, data: Path) -> None:
    shown = terminal.wait_for("q quit")
    file = home / "inlayer-course" / "add.py"
    assert file.read_text() == START
    assert "checks" not in shown  # an unchanged starter file is not checked
    assert not termios.tcgetattr(terminal.theirs)[3] & termios.ICANON
    file.write_text(WRONG)
    shown = terminal.wait_for("q quit")
    assert "rule: mean" in shown
    assert "inlayer learn" not in shown  # keys replace commands
    terminal.press("h")
    assert "hint 1 of 3" in terminal.wait_for("q quit")
    terminal.press("S")
    assert "Not passed yet" in terminal.wait_for("q quit")
    terminal.press("c")
    assert "1 of 2 checks passed" in terminal.wait_for("q quit")
    beside = file.with_suffix(".tmp")
    beside.write_text(SOLUTION)
    beside.replace(file)  # many editors save this way
    shown = terminal.wait_for("q quit")
    assert "2 of 2 checks passed" in shown
    assert "passed: n next task" in shown
    assert "inlayer learn" not in shown
    file.write_text(WRONG)  # a task that has passed is no longer watched
    terminal.press("s")
    shown = terminal.wait_for("passed: n next task")
    assert "a solution" in shown
    assert "1 of 2" not in shown
    terminal.press("n")
    assert "Task add_again" in terminal.wait_for("q quit")
    assert (home / "inlayer-course" / "add_again.py").read_text() == START
    terminal.press("q")
    assert terminal.end() == 1  # the current task has not passed
    assert termios.tcgetattr(terminal.theirs) == terminal.before
    state = ProgressFile(data).read()
    assert state.record("task", "add").done
    assert (state.record("task", "add").hints, state.current) == (1, "add_again")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "q"])
def test_typed_commands_after_passing_are_ignored(home: Path, terminal: Terminal, data: Path, end: str) -> None:
    terminal.wait_for("q quit")
    (home / "inlayer-course" / "add.py").write_text(SOLUTION)
    terminal.wait_for("passed: n next task")
    terminal.press("inlayer learn next\n")
    assert "That is not one of the keys" in terminal.wait_for("passed: n next task")
    for letter in "inn\n":
        terminal.press(letter)
        time.sleep(0.05)
    terminal.wait_for("passed: n next task")
    terminal.press(end)
    assert terminal.end() == 0
    assert "Next: read lesson 1" in terminal.shown
    assert ProgressFile(data).read().current == "add"
    assert not (home / "inlayer-course" / "add_again.py").exists()


@pytest.mark.slow
def test_unknown_keys_and_deleted_files_are_reported(home: Path, terminal: Terminal) -> None:
    terminal.wait_for("q quit")
    terminal.press("x")
    assert "x is not one of the keys" in terminal.wait_for("q quit")
    file = home / "inlayer-course" / "add.py"
    file.unlink()
    terminal.wait_for("add.py was deleted")
    terminal.press("c")
    assert "add.py" in terminal.wait_for("q quit")
    file.write_text(SOLUTION)
    terminal.wait_for("passed: n next task")
    terminal.press("\x04")
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctrl-c", "terminated"])
def test_terminal_settings_are_restored(terminal: Terminal, how: str) -> None:
    terminal.wait_for("q quit")
    number = {"ctrl-c": signal.SIGINT, "terminated": signal.SIGTERM}[how]
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    assert termios.tcgetattr(terminal.theirs) == terminal.before
    assert "Traceback" not in terminal.shown
    assert ("stopped; your progress is saved" in terminal.shown) is (how == "ctrl-c")


@pytest.mark.slow
def test_without_a_terminal_it_ends_after_passing(home: Path) -> None:
    terminal = Terminal(home, keys=False)
    try:
        shown = terminal.wait_for("Ctrl-C to stop.")
        assert "h hint" not in shown
        file = home / "inlayer-course" / "add.py"
        file.write_bytes(b"\xff")
        terminal.wait_for("is not valid UTF-8")
        file.unlink()
        time.sleep(0.5)
        file.write_text(SOLUTION)
        assert terminal.end() == 0
        assert "2 of 2 checks passed" in terminal.shown
        assert "Next: read lesson 1" in terminal.shown
    finally:
        terminal.close()


def test_fingerprints_distinguish_versions(tmp_path: Path) -> None:
    file = tmp_path / "add.py"
    assert fingerprint(file) is None
    file.write_text("one")
    os.utime(file, ns=(10**18, 10**18))
    first = fingerprint(file)
    assert first == fingerprint(file)
    file.write_text("two")  # with the same size and modification time
    os.utime(file, ns=(10**18, 10**18))
    second = fingerprint(file)
    assert second not in (None, first)
    os.utime(file, ns=(10**18 + 1, 10**18 + 1))  # saved again without a change
    assert fingerprint(file) != second
    assert fingerprint(tmp_path) is None
    assert re.fullmatch(r"\d+ 3 [0-9a-f]{64}", second or "")
