"""The course in the terminal: every command, with good and bad input, as a learner uses it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from inlayer.cli import main
from inlayer.cli.learn import learn
from inlayer.cli.learn.tasks import code_spinner
from inlayer.learn.batch import BatchReport, BatchRow
from inlayer.learn.course import Course, Lesson
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import NumberQuestion
from inlayer.learn.terminal import REPLACEMENTS, CoursePrinter, EncodedOutput
from inlayer.render.progress_bar import no_progress
from tests.learn.small import SOLUTION, START, WRONG, make_course

VERBS = [
    "list", "read", "next", "check", "watch", "hint", "solution", "skip", "reset", "exercise", "quiz", "progress",
    "misconceptions", "notebook", "grade", "dev-check",
]  # fmt: skip


@dataclass
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    made = make_course(tmp_path / "content")
    monkeypatch.setattr("inlayer.learn.course.open_course", lambda: made)
    return made


@pytest.fixture
def run(course: Course, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `inlayer learn ...` in this process and its own folder, with typed input."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "80")

    def run_here(*arguments: str, typed: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["inlayer", "learn", *arguments])
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(typed.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert "\x1b" not in captured.out  # no color without a terminal
        return Done(int(stopped.value.code or 0), captured.out, captured.err)

    return run_here


def test_commands_are_frozen() -> None:
    group: Any = typer.main.get_command(learn)
    assert group.list_commands(None) == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_help_with_examples(run: Run, verb: str) -> None:
    done = run(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"inlayer learn {verb}" in done.out.split("Examples:")[1]


# ---- finding your way


def test_without_a_command_lists_lessons_and_the_next_step(run: Run) -> None:
    done = run()
    assert (done.code, done.err) == (0, "")
    assert done.out == run("list").out
    assert re.search(r"1  first +The first lesson +· +0/2 +0/3 +0/2\n", done.out)
    assert done.out.endswith("Next: read lesson 1, The first lesson\n  inlayer learn next\n")
    assert max(map(len, done.out.splitlines())) <= 80


def test_list_as_json(run: Run) -> None:
    data = json.loads(run("--json").out)
    assert data == json.loads(run("list", "--json").out)
    assert [lesson["id"] for lesson in data["lessons"]] == ["first", "second"]
    title = "read lesson 1, The first lesson"
    command = "inlayer learn read first"
    assert data["next"] == {"kind": "read", "id": "first", "lesson": "first", "title": title, "command": command}
    assert [task["state"] for task in data["lessons"][0]["tasks"]] == ["open", "open"]
    assert data["lessons"][0]["counts"]["exercise"] == {"done": 0, "total": 3}
    assert [exercise["graded"] for exercise in data["lessons"][0]["exercises"]] == [True, True, False]
    assert [lesson["id"] for lesson in json.loads(run("list", "2", "--json").out)["lessons"]] == ["second"]


def test_list_shows_the_parts_of_a_lesson(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("next", "add")
    run("check", "add")
    run("skip", "add_again")
    run("skip", "first/which")
    out = run("list", "first").out
    assert "· add: Add the rows (3 of 6 checks passed; shape failed, 2 were not run)" in out
    assert "· add_again: Add the rows (skipped)" in out
    assert "first/sum_of: a sum (graded)" in out
    assert "first/which: a choice (graded, skipped)" in out
    assert "first/words: in words (self-checked)" in out
    assert "0 of 2 questions correct" in out
    monkeypatch.setenv("COLUMNS", "40")
    assert "\n    passed" in run("list", "first").out  # a long line wraps below its text


def test_read_shows_a_lesson_and_records_it(run: Run) -> None:
    out = run("read", "first").out
    assert out.startswith("1. The first lesson\n")
    assert "Rows are gathered, see step 5 and the task, positions, why." in out.replace("\n", " ")
    for command in ("walk Hi --step 5", "learn next add", "learn misconceptions index_select", "learn read second"):
        assert re.search(rf"\n  inlayer {command}( +# .+)?\n", out)
    assert "pictures/rows.svg" not in out
    assert re.search(r"picture .*\n│ A table of rows and an arrow to one of them\. +│\n", out)
    assert "\n    H = E[ids]\n\n    print(1 + 1)\n\n    2\n" in out
    assert not re.search(r" $|\n\n\n", out, flags=re.MULTILINE)
    assert "Next: the task add, Add the rows" in out
    assert run("read", "1").out == out
    assert run("read").out.startswith("2. The second lesson")
    assert run("read", "add").out.startswith("Task add: Add the rows\n")
    assert list(ProgressFile().read().records) == ["read/first", "read/second"]


def test_misconceptions_are_shown_by_name(run: Run) -> None:
    whole = run("misconceptions").out
    assert whole.startswith("Common misconceptions\n")
    entry = run("misconceptions", "index_select").out
    assert re.match(r"Common misconception: .+\n(.+\n)?index_select\n\n", entry)
    assert len(entry) < len(whole) / 4
    assert "index_select" in run("misconceptions", "nope").err


# ---- a task


def test_next_creates_the_file_of_a_task_and_never_overwrites_it(run: Run) -> None:
    run("next")
    done = run("next")
    file = Path("inlayer-course/add.py")
    assert f"Created for you to edit: {file.absolute()}" in done.out
    assert file.read_text() == START
    file.write_text("mine")
    assert "Your file: " in run("next").out
    assert file.read_text() == "mine"
    assert (run("next", "add_more").code, Path("inlayer-course/add_more.py").read_text()) == (0, START)


def test_the_folder_is_remembered(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("next", "add", "--folder", "mine")
    assert Path("mine/add.py").read_text() == START
    mine = Path("mine").absolute()
    monkeypatch.chdir(tmp_path)
    run("next", "add_again")
    assert (mine / "add_again.py").exists()
    assert ProgressFile().read().folder == str(mine)
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in run("next", "add", "--folder", "file").err


@pytest.mark.parametrize("verb", [["next", "add"], ["next"], ["watch", "add"], ["check", "add"], ["reset", "add"]])
def test_only_a_folder_that_worked_is_remembered(run: Run, verb: list[str]) -> None:
    run("next", "add", "--folder", "mine")
    Path("file").write_text("x")
    done = run(*verb, "--folder", "file/below")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert ProgressFile().read().folder == str(Path("mine").absolute())
    assert "Your file: " in run("next", "add").out


def test_a_folder_is_remembered_before_the_first_task(run: Run) -> None:
    assert run("next", "--folder", "mine").out.startswith("1. The first lesson")
    run("next")
    assert Path("mine/add.py").read_text() == START


def test_check_fails_then_passes(run: Run) -> None:
    run("next", "add")
    file = Path("inlayer-course/add.py")
    file.write_text(WRONG)
    done = run("check")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("add: 4 of 6 checks passed; values failed, 1 was not run\n  ✓ syntax ")
    assert "\n  ✓ signature  it defines the required function or class\n" in done.out
    assert "\n  ✗ values     the sum of the rows\n  · gradient   repeated ids add up (not run)\n" in done.out
    assert "\n  this is the mean" in done.out
    assert "\n  rule: mean\n" in done.out
    assert "\n  your code printed:\n    here\n" in done.out
    assert done.out.endswith("inlayer learn hint add\n")
    assert "    your output  a float32 tensor of shape (3,)\n" in done.out
    assert "    expected     a float32 tensor of shape (3,)\n" in done.out
    assert "Another input and its correct output:" in done.out
    file.write_text(SOLUTION)
    done = run("check")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("add: 6 of 6 checks passed\n")
    assert "Why it works\nBecause rows add up.\n" in done.out
    assert "In the walk\n" in done.out
    assert "   Your result\n   a float32 tensor of shape (3,)\n" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    record = ProgressFile().read().record("task", "add")
    assert (record.attempts, record.summary, bool(record.done_at)) == (2, "6 of 6 checks passed", True)
    assert run("check", "add", "--seed", "5").code == 0


@pytest.mark.parametrize("arguments", [["add"], ["add.py"], ["add", "--json"], ["add", "--folder", "other"]])
def test_check_never_opens_a_task(run: Run, arguments: list[str]) -> None:
    done = run("check", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.endswith("add.py does not exist; open the task with inlayer learn next add\n")
    assert list(Path().iterdir()) == []
    state = ProgressFile().read()
    assert (state.records, state.current, state.folder) == ({}, "", "")


def test_check_without_a_name_grades_the_last_task_again(run: Run) -> None:
    assert "no task is in progress" in run("check").err
    run("next", "add")
    Path("inlayer-course/add.py").write_text(SOLUTION)
    for _ in range(2):  # the second time, it has already passed
        done = run("check")
        assert (done.code, done.out.startswith("add: 6 of 6 checks passed\n")) == (0, True)
    assert [path.name for path in Path("inlayer-course").iterdir()] == ["add.py"]
    assert list(ProgressFile().read().records) == ["task/add"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho 'Traceback:' >&2\necho 'ImportError: no torch' >&2\nexit 1\n", "ImportError: no torch"),
        ("#!/bin/sh\nexit 3\n", "it ended with code 3"),
        ("#!/no/such/program\n", "No such file or directory"),
    ],
)
def test_a_grader_that_cannot_start_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    run("next", "add")
    Path("python").write_text(script)
    Path("python").chmod(0o700)
    monkeypatch.setattr("inlayer.learn.sandbox.fork_server._fork_server", None)
    monkeypatch.setattr("sys.executable", str(Path("python").absolute()))
    done = run("check")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"inlayer: the grader's process did not start: {reason}\n"


def test_a_terminal_shows_that_the_code_is_running(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    terminal = Console(file=shown, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with code_spinner(CoursePrinter(terminal), enabled=True):
        end = time.monotonic() + 60  # drawn by a thread
        while "running your code... 0:00:01" not in re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue()):
            assert time.monotonic() < end
            time.sleep(0.01)
    monkeypatch.undo()
    run("next", "add")
    assert "running your code" not in run("check").out  # not a terminal


def test_check_as_json_and_by_file(run: Run) -> None:
    Path("try2.py").write_text(WRONG)
    done = run("check", "try2.py", "--task", "add", "--seed", "3", "--json")
    data = json.loads(done.out)
    assert (done.code, data["task"], data["passed"], data["n_passed"], data["n_checks"]) == (1, "add", False, 4, 6)
    assert data["seed"] == 3
    assert [check["state"] for check in data["checks"]] == ["passed"] * 4 + ["failed", "not run"]
    assert data["checks"][4]["rule"] == "mean"
    Path("sub").mkdir()
    Path("sub/add.py").write_bytes(b"\xef\xbb\xbf" + SOLUTION.encode())  # with a byte order mark
    done = run("check", "sub/add.py", "--json")
    assert (done.code, json.loads(done.out)["walk_output"]) == (0, {"shape": [3], "dtype": "torch.float32"})
    assert not Path("inlayer-course").exists()
    run("next", "add")
    assert run("check", "add.py").code == 1  # the learner's own file, from any folder


def test_printed_control_characters_are_escaped(run: Run) -> None:
    Path("add.py").write_text(
        "def add(table, ids):\n    for n in range(30):\n        print('\\x1b[31m' + str(n) * 100)\n"
        "    raise ValueError('\\x1b[2J[bold]')\n"
    )
    out = run("check", "add.py").out  # `run` asserts that it contains no escape sequence
    assert "\\x1b[31m" in out
    assert "[bold]" in out
    assert "and 10 more lines" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "nope"),
        (["check", "nope"], "unknown task 'nope'"),
        (["check", "nope.py"], "unknown task 'nope'"),
        (["check", "ad.py"], "did you mean add?"),
        (["check", "add_agian"], "did you mean add_again?"),
        (["check", "first"], "unknown task 'first'; to list the tasks of a lesson: inlayer learn list LESSON\n"),
        (["check", "sub/add.py"], "sub/add.py"),
        (["check", "."], ". is a folder"),
        (["watch", "nope.py"], "unknown task 'nope'"),
        (["check", "x.py", "--task", "nope"], "unknown task 'nope'"),
        (["check", "--seed", "-1"], "--seed"),
        (["read", "nope"], "1 first, 2 second"),
        (["list", "nope"], "1 first, 2 second"),
        (["list", "frist"], "did you mean first?"),
        (["read", "ad"], "unknown lesson"),
        (["quiz", "add"], "unknown lesson 'add'; the lessons are 1 first, 2 second"),
        (["hint"], "no task is in progress"),
        (["solution"], "no task is in progress"),
        (["next", "nope"], "unknown task"),
        (["next", "add", "--folder", ""], "empty"),
        (["hint", "nope"], "unknown task"),
        (["hint", "add", "--level", "4"], "--level"),
        (["solution", "add"], "--show"),
        (["skip", "nope"], "unknown task"),
        (["skip", "first/sum_off"], "did you mean first/sum_of?"),
        (["exercise", "first/sum_off"], "did you mean first/sum_of?"),
        (["exercise", "sum_off"], "did you mean sum_of?"),
        (["exercise", "add"], "unknown exercise or lesson 'add'"),
        (["misconceptions", "index_selct"], "did you mean index_select?"),
        (["reset", "add", "--all"], "--all"),
        (["reset"], "no task is in progress"),
        (["exercise", "nope"], "unknown exercise or lesson"),
        (["exercise", "first/nope"], "to list a lesson's exercises: inlayer learn list LESSON\n"),
        (["exercise", "nope/nope"], "unknown exercise or lesson"),
        (["exercise", "which"], "several lessons"),
        (["exercise", "first", "--json"], "choose one of"),
        (["exercise", "first/sum_of", "--seed", "1", "--answer", "many"], "not a number"),
        (["exercise", "first/sum_of", "--done"], "--answer"),
        (["quiz", "nope"], "unknown lesson"),
        (["quiz", "--question", "nope"], "question 'nope'"),
        (["quiz", "--question", "first_on"], "did you mean first_one?"),
        (["quiz", "--answer", "a"], "--question and --seed"),
        (["quiz", "--answer", "a", "--seed", "3"], "--question and --seed"),
        (["quiz", "--answer", "a", "--question", "first_one"], "--question and --seed"),
        (["quiz", "--answer", "z", "--question", "first_one", "--seed", "3"], "not one of the options"),
        (["progress", "--json", "--reset"], "run them separately"),
        (["progress", "--import", "nope"], "nope"),
        (["progress", "--import", "."], "folder"),
        (["progress", "--export", "."], "folder"),
        (["progress", "--export", "no/such/file"], "cannot be written"),
        (["progress", "--reset"], "nothing was reset"),
        (["--json", "progress"], "--json"),
        (["watch", "nope"], "unknown task"),
        (["notebook", "nope"], "unknown lesson"),
        (["grade", "no/such"], "no/such"),
        (["grade"], "missing argument 'folder'"),
        (["dev-check", "nope"], "unknown task"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("inlayer: ")
    assert done.err.count("\n") == 1
    assert says in done.err
    assert not ProgressFile().read().records or "exercise" in arguments


def test_unusable_files_are_reported(run: Run) -> None:
    for data, says in [
        (b"\xff\xfe", "is not valid UTF-8: byte 0xff at offset 0; save it as UTF-8"),
        (b"#" * 2**21, "is larger than 1,048,576 bytes"),
    ]:
        Path("add.py").write_bytes(data)
        done = run("check", "add.py")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert says in done.err
    for source, rule in [("", "missing"), ("def add(:", "syntax"), ("x = 1 / 0", "raises")]:
        Path("add.py").write_text(source)
        assert json.loads(run("check", "add.py", "--json").out)["checks"][2 if rule == "missing" else 0]["state"]
        assert f"rule: {rule}\n" in run("check", "add.py").out


def test_one_more_hint_each_time(run: Run) -> None:
    assert [run("hint", "add").out.splitlines()[0] for _ in range(4)] == [
        "add: hint 1 of 3", "add: hint 2 of 3", "add: hint 3 of 3", "add: hint 3 of 3"
    ]  # fmt: skip
    assert "inlayer learn solution add --show" in run("hint").out
    assert run("hint", "--level", "1").out == "add: hint 1 of 3\nA nudge.\n\n"
    assert ProgressFile().read().record("task", "add").hints == 3


def test_solution_needs_show_before_passing(run: Run) -> None:
    assert run("solution", "add").code == 2
    assert ProgressFile().read().records == {}
    done = run("solution", "add", "--show")
    assert "return table[ids].sum(0)" in done.out
    assert "Because rows add up." in done.out
    assert "solution viewed" in done.out
    assert ProgressFile().read().record("task", "add").solution_seen_at
    assert run("solution", "add").code == 0  # seen before
    assert "solution viewed before passing: add" in run("progress").out
    Path("add_again.py").write_text(SOLUTION)
    run("check", "add_again.py")
    done = run("solution")
    assert done.out.startswith("add_again: a solution")
    assert "Recorded" not in done.out
    assert ProgressFile().read().record("task", "add_again").solution_seen_at == ""


def test_reset_restores_the_start_file_and_keeps_the_old_one(run: Run) -> None:
    run("next", "add")
    file = Path("inlayer-course/add.py")
    for number in (1, 2):
        file.write_text(f"try {number}")
        run("hint", "add")
        done = run("reset", "add")
        assert (done.code, done.out.endswith("\n  inlayer learn check add\n")) == (0, True)
        assert file.read_text() == START
        assert Path(f"inlayer-course/add.py.bak{number}").read_text() == f"try {number}"
    assert ProgressFile().read().record("task", "add").hints == 2  # hints stay recorded
    run("reset", "--yes")  # unchanged, so no copy is kept
    file.unlink()
    run("reset", typed="yes\n")
    assert file.read_text() == START
    assert len(list(file.parent.iterdir())) == 3


def test_progress_is_reset_after_confirmation(run: Run, data: Path) -> None:
    run("hint", "add")
    assert run("progress", "--reset", typed="no\n").code == 2
    assert ProgressFile().read().record("task", "add").hints == 1
    done = run("progress", "--reset", typed="yes\n")
    assert (done.code, ProgressFile().read().records) == (0, {})
    assert (data / "progress.before-reset-1.json").exists()
    assert "Next: read lesson 1" in done.out
    assert run("progress", "--reset", "--yes").out.startswith("There was no progress to reset.\n")


def test_skipped_steps_return_at_the_end(run: Run) -> None:
    skipped = []
    for _ in range(11):
        done = run("skip")
        assert done.code == 0
        skipped.append(done.out.splitlines()[0])
    assert skipped[:3] == [
        "Skipped: read lesson 1, The first lesson",
        "Skipped: the task add, Add the rows",
        "Skipped: the task add_again, Add the rows",
    ]
    assert "only skipped steps are left; the first is read lesson 1" in run("skip").err
    assert "Next: read lesson 1, The first lesson (skipped before)" in run().out


# ---- exercises and quizzes


def answer_of(course: Course, name: str) -> str:
    seed = ProgressFile().read().record("exercise", name).seed
    assert seed is not None
    asked = course.exercises[name].ask(seed)
    assert isinstance(asked, NumberQuestion)
    return str(asked.answer)


def test_an_exercise_waits_for_its_answer(run: Run, course: Course) -> None:
    left = run("exercise", "first/sum_of")
    assert (left.code, left.err) == (0, "")
    assert left.out.startswith("first/sum_of: a sum (graded)\n")
    assert "Stopped here; your progress is saved. To continue:\n  inlayer learn exercise first/sum_of\n" in left.out
    asked = re.findall(r"What is .*\?", left.out)
    answer = answer_of(course, "first/sum_of")
    done = run("exercise", "sum_of", typed=f"many\n1\n\n{answer}\n")  # not a number, a wrong number, then leaving
    assert re.findall(r"What is .*\?", done.out) == asked
    assert "is not a number" in done.out
    assert "✗ Incorrect.\nYour answer, " in done.out
    assert ProgressFile().read().record("exercise", "first/sum_of").done_at == ""
    done = run("exercise", typed=f"{answer}\n")
    assert "✓ Correct.\nAdded." in done.out
    record = ProgressFile().read().record("exercise", "first/sum_of")
    assert (record.attempts, record.seed, bool(record.done_at)) == (2, None, True)


def test_a_revealed_exercise_stays_open(run: Run, course: Course) -> None:
    run("exercise", "first/sum_of")
    answer = answer_of(course, "first/sum_of")
    done = run("exercise", "first/sum_of", typed="?\n")
    assert f"\n{int(answer):,}\nAdded." in done.out.replace("quits): ", "quits): \n")
    record = ProgressFile().read().record("exercise", "first/sum_of")
    assert (record.done_at, record.seed) == ("", None)
    assert "a ✓ left" in (shown := run("exercise", "first/which", typed="?\n").out) or "b ✓ left" in shown


def test_free_text_is_checked_by_the_learner(run: Run) -> None:
    assert "(self-checked)" in run("exercise", "first/words").out
    assert ProgressFile().read().record("exercise", "first/words").attempts == 0
    done = run("exercise", "first/words", typed="Because.\nmaybe\n\ny\nn\n")
    assert "Sample answer\nBecause.\n" in done.out
    assert "1 of 2 points, self-assessed." in done.out
    assert done.out.count("y or n: ") == 4  # asked again after an invalid reply
    assert ProgressFile().read().record("exercise", "first/words").done_at == ""
    assert "2 of 2 points" in run("exercise", "first/words", typed="\ny\nyes\n").out
    assert ProgressFile().read().record("exercise", "first/words").done_at


def test_all_open_exercises_of_a_lesson(run: Run, course: Course) -> None:
    answer = course.exercises["first/sum_of"].ask(4).answer  # type: ignore[union-attr]
    which = "ab"[[option.correct for option in course.exercises["first/which"].ask(4).options].index(True)]  # type: ignore[union-attr]
    done = run("exercise", "first", "--seed", "4", typed=f"{answer}\n{which}\nmine\ny\ny\n")
    assert done.code == 0
    assert all(record.done_at for record in ProgressFile().read().records.values())
    assert len(ProgressFile().read().records) == 3
    assert "first/sum_of" in run("exercise", "first").out  # repeated once all are done
    ProgressFile().reset()
    assert "first/sum_of" in run("exercise").out
    run("skip", "first/sum_of")
    assert "first/which" in run("exercise").out


def test_exercises_without_a_question(run: Run) -> None:
    data = json.loads(run("exercise", "first/sum_of", "--seed", "4", "--json").out)
    assert (data["kind"], data["graded"], data["seed"]) == ("number", True, 4)
    assert "answer" not in data
    one, two = map(int, re.findall(r"\d+", data["text"]))
    command = ("exercise", "first/sum_of", "--seed", "4", "--answer")
    wrong = run(*command, str(one * two), "--json")
    assert (wrong.code, json.loads(wrong.out)["correct"]) == (1, False)
    assert json.loads(wrong.out)["message"] == "That is the product."
    assert (run(*command, str(one + two)).code, run(*command, "0").code) == (0, 1)
    free = run("exercise", "first/words", "--seed", "4", "--answer", "mine", "--json")
    assert (free.code, json.loads(free.out)["correct"]) == (0, None)
    assert json.loads(free.out)["points"] == ["it says because", "it is short"]
    assert "[ ] it is short" in run("exercise", "first/words", "--done").out
    assert ProgressFile().read().record("exercise", "first/words").done_at


def right_letters(course: Course, names: list[str], seed: int) -> dict[str, str]:
    choices = {name: course.questions[name].ask(seed) for name in names}
    return {name: "abc"[[option.correct for option in choice.options].index(True)] for name, choice in choices.items()}


def test_missed_questions_return(run: Run, course: Course) -> None:
    one = right_letters(course, ["first_one"], 0)["first_one"]
    wrong = "ab".replace(one, "")
    two = right_letters(course, ["first_two"], 1)["first_two"]
    again = right_letters(course, ["first_one"], 2)["first_one"]
    done = run("quiz", "first", "--seed", "0", typed=f"x\n{wrong}\n{two}\n{again}\n")
    assert (done.code, done.err) == (0, "")
    assert "'x' is not one of the options a, b" in done.out
    assert done.out.count("\nHow many rows?\n") == 2
    first_part = done.out.split("How wide?")[0]
    assert "Four is one too many." in first_part
    assert "Because three." not in first_part  # the question returns, so its answer stays hidden
    assert done.out.count("Because three.") == 1
    assert "Correct on the first try: 1 of 2." in done.out
    assert "quizzes:\n  How many rows? (first)\n" in done.out
    assert "Repeated question (first)\n" in done.out
    assert "✓ Correct; because you missed it before, it will come back in another quiz.\n" in done.out
    assert done.out.endswith("  inlayer learn next\n")
    due = json.loads(run("quiz", "second", "--json").out)["questions"]
    assert [question["id"] for question in due] == ["first_one", "second_one", "second_two"]
    out = run("progress").out
    assert re.search(r"questions correct +1 of 4\n", out)  # each is counted once
    assert "questions to repeat  1:\n  How many rows? (first)\n" in out
    data = json.loads(run("progress", "--json").out)
    assert (data["counts"]["quiz"], data["due"]) == ({"done": 1, "total": 4}, 1)
    assert "1 of 2 questions correct; 1 missed, to repeat" in run("list", "first").out
    assert "Question 1 of 3 (repeated from lesson 1: The first lesson)\n" in run("quiz", "second", typed="\n").out
    for says in ("it will come back in one more quiz", "it will not come back"):
        letter = right_letters(course, ["first_one"], 0)["first_one"]
        assert f"✓ Correct; {says}.\n" in run("quiz", "first", "--seed", "0", typed=f"{letter}\n").out
    assert "2 of 2 questions correct\n" in run("list", "first").out


def test_leaving_a_quiz_saves_the_answers(run: Run, course: Course) -> None:
    one = right_letters(course, ["first_one"], 0)["first_one"]
    for typed in (f"{one}\n", "\n"):  # the end of the input, an empty line
        done = run("quiz", "first", "--seed", "0", typed=typed)
        assert (done.code, done.err) == (0, "")
        assert "Stopped here; your progress is saved. To continue:\n  inlayer learn quiz first\n" in done.out
    assert ProgressFile().read().record("question", "first_one").done_at
    assert "How wide?" in done.out  # the quiz continued
    assert "How many rows?" not in done.out


def test_a_quiz_without_a_question(run: Run, course: Course) -> None:
    data = json.loads(run("quiz", "--json", "--seed", "5").out)["questions"]
    assert [question["id"] for question in data] == ["first_one", "first_two"]
    letters = right_letters(course, ["first_one", "first_two"], 5)
    assert run("quiz", "--question", "first_one", "--answer", letters["first_one"], "--seed", "5").code == 0
    done = run("quiz", "--question", "first_two", "--answer", letters["first_two"], "--seed", "5", "--json")
    assert (done.code, json.loads(done.out)["correct"]) == (0, True)
    assert len(json.loads(done.out)["reasons"]) == 3
    wrong = "ab".replace(letters["first_one"], "")
    done = run("quiz", "--question", "first_one", "--answer", wrong, "--seed", "5", "--json")
    assert (done.code, json.loads(done.out)["message"]) == (1, "Four is one too many.")


# ---- progress


def test_progress_is_moved_to_another_machine(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("next", "add")
    Path("inlayer-course/add.py").write_text(SOLUTION)
    run("check")
    run("read", "first")
    assert re.search(r"tasks passed +1 of 3\n", run("progress").out)
    data = json.loads(run("progress", "--json").out)
    assert data["counts"]["task"] == {"done": 1, "total": 3}
    assert run("progress", "--export", "moved.json").code == 0
    assert run("progress", "--export", "-").out == Path("moved.json").read_text()
    refused = run("progress", "--export", "moved.json")
    assert (refused.code, "--overwrite" in refused.err) == (2, True)
    assert run("progress", "--export", "moved.json", "--overwrite").code == 0
    assert str(Path.cwd()) not in Path("moved.json").read_text()  # local paths are not exported
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "other"))
    run("hint", "add_more")
    assert run("progress", "--import", "moved.json").code == 0
    there = ProgressFile().read()
    assert there.record("task", "add").done_at
    assert there.record("task", "add_more").hints == 1
    assert there.folder == ""
    Path("bad.json").write_text("{}")
    done = run("progress", "--import", "bad.json")
    assert (done.code, done.err) == (2, "inlayer: bad.json is not a progress file of inlayer\n")
    Path("new.json").write_text('{"format": "inlayer progress", "version": 99}')
    assert run("progress", "--import", "new.json").err.startswith("inlayer: new.json has version 99, but")
    assert ProgressFile().read() == there


def test_damaged_progress_is_reported_and_replaced(run: Run, data: Path) -> None:
    (data / "progress.json").write_text("}{")
    done = run("list")
    assert done.code == 0
    assert done.err.startswith("inlayer: progress was reset because ")
    assert done.err.count("\n") == 1
    assert (data / "progress.damaged-1.json").read_text() == "}{"
    assert run("list").err == ""
    (data / "progress.json").write_text('{"format": "inlayer progress", "version": 99}')
    done = run("list")
    assert (done.code, "update inlayer" in done.err) == (2, True)


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that nobody can create, not even root."""
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "file" / "data"))
    return tmp_path / "file" / "data"


def test_check_grades_if_progress_cannot_be_saved(run: Run, unwritable: Path) -> None:
    says = f"inlayer: progress is not saved: {unwritable} cannot be written (set INLAYER_DATA to another folder): "
    for source, code in ((WRONG, 1), (SOLUTION, 0)):
        Path("add.py").write_text(source)
        done = run("check", "add.py")
        assert (done.code, done.err.startswith(says), done.err.count("\n")) == (code, True, 1)
        assert "of 6 checks" in done.out
        done = run("check", "add.py", "--json")
        assert (done.code, json.loads(done.out)["passed"]) == (code, code == 0)
    for verb in (["read", "first"], ["next", "add"], ["hint", "add"], ["solution", "add", "--show"], ["reset", "add"]):
        done = run(*verb)
        assert (done.code, done.err.startswith(says)) == (0, True), verb
        assert len(done.out) > 20
    assert run("list").code == 0
    assert run("skip").code == 2  # skipping only makes sense if it is saved


@pytest.mark.parametrize("verb", [["quiz", "first", "--seed", "0"], ["exercise", "first/sum_of"]])
def test_unsaved_progress_is_reported_before_asking(run: Run, unwritable: Path, verb: list[str]) -> None:
    del unwritable
    done = run(*verb, typed="\n")
    assert (done.code, done.err.count("progress is not saved")) == (0, 1)
    assert "is saved" not in done.out
    assert "Stopped here; progress is not saved." in done.out


def test_quiz_works_if_progress_cannot_be_saved(run: Run, course: Course, unwritable: Path) -> None:
    del unwritable
    letters = [right_letters(course, [name], seed)[name] for seed, name in enumerate(("first_one", "first_two"))]
    done = run("quiz", "first", "--seed", "0", typed="\n".join(letters) + "\n")
    assert (done.code, "Correct on the first try: 2 of 2." in done.out) == (0, True)


@pytest.mark.parametrize("verb", [["quiz"], ["exercise"], ["next"], ["check", "add"]])
def test_ctrl_c_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, verb: list[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for lesson in ("read first", "next add", "skip add", "skip add_again"):
        run(*lesson.split())
    monkeypatch.setattr("inlayer.cli.learn.questions.prompt", interrupted)
    monkeypatch.setattr("inlayer.learn.grader.grade", interrupted)
    done = run(*verb)
    assert (done.code, done.err) == (130, "\nstopped; your progress is saved\n")


def test_the_task_in_progress_is_shown_if_it_is_not_next(run: Run) -> None:
    assert "In progress" not in run().out
    run("next", "add_more")
    for verb in ("list", "progress"):
        assert "In progress: add_more, Add the rows\n  inlayer learn check\nNext: read lesson 1" in run(verb).out
    Path("inlayer-course/add_more.py").write_text(SOLUTION)
    run("check")
    assert "In progress" not in run().out
    done = run("hint")  # never for a task that was not started
    assert (done.code, done.err.startswith("inlayer: you have passed add_more, and no other task is in progress")) == (
        2,
        True,
    )
    assert set(ProgressFile().read().records) == {"task/add_more"}
    Path("inlayer-course/add_more.py").write_text(WRONG)
    run("check", "add_more")
    listed = " ".join(run("list", "second").out.split())
    assert "✓ add_more: Add the rows (passed before; last check: 4 of 6 checks passed; values failed" in listed


# ---- notebooks, classes, authors


def test_notebooks_of_named_lessons(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def write(folder: Path, lessons: list[Lesson], *, overwrite: bool) -> list[Path]:
        asked.append((str(folder), [lesson.id for lesson in lessons], overwrite))
        return [folder / f"{lesson.id}.ipynb" for lesson in lessons]

    monkeypatch.setattr("inlayer.learn.notebook.write_notebooks", write)
    assert run("notebook").out == (
        "inlayer-notebooks/first.ipynb\ninlayer-notebooks/second.ipynb\n"
        "Next: open them with Jupyter (pip install jupyterlab):\n  jupyter lab inlayer-notebooks\n"
    )
    run("notebook", "2", "first", "--folder", "nb", "--overwrite")
    assert asked == [("inlayer-notebooks", ["first", "second"], False), ("nb", ["second", "first"], True)]


def test_a_class_is_graded_to_csv_and_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = BatchRow(
        learner="Ada",
        task="add",
        passed=True,
        checks_passed=6,
        checks_total=6,
        rule="",
        message="",
        seed=3,
        file="Ada/add.py",
    )
    asked: list[tuple[str, dict[str, Any]]] = []

    def graded(folder: Path, **options: Any) -> BatchReport:
        asked.append((str(folder), options))
        return BatchReport(rows=(row,), seed=3, not_graded=len(asked) // 4)

    monkeypatch.setattr("inlayer.learn.batch.grade_folder", graded)
    done = run("grade", "class", "--task", "add", "--seed", "3")
    assert (done.code, done.err) == (0, "")
    assert done.out == BatchReport(rows=(row,), seed=3).to_csv()
    assert asked == [("class", {"tasks": ["add"], "seed": 3, "progress": no_progress})]
    assert json.loads(run("grade", "class", "--json").out)["rows"][0]["learner"] == "Ada"
    run("grade", "class", "--out", "grades.v1")
    assert Path("grades.v1.csv").read_text() == BatchReport(rows=(row,), seed=3).to_csv()
    assert json.loads(Path("grades.v1.json").read_text())["seed"] == 3
    stopped = run("grade", "class")
    assert (stopped.code, stopped.err) == (130, "stopped; files not graded: 1\n")


def test_dev_check_lists_problems(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {"add_again": ["add_again: the start passes"]}
    monkeypatch.setattr("inlayer.learn.grader.find_problems", lambda task: iter(faults.get(task.id, [])))
    done = run("dev-check")
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        "add: 1 solution, 1 starter file, 0 wrong solutions; 0 problems",
        "add_again: the start passes",
        "add_again: 1 solution, 1 starter file, 0 wrong solutions; 1 problem",
        "add_more: 1 solution, 1 starter file, 0 wrong solutions; 0 problems",
    ]
    assert run("dev-check", "add", "add_more").code == 0


# ---- terminals


def test_ascii_terminals_get_replacements(course: Course, capfd: pytest.CaptureFixture[str]) -> None:
    kept = BytesIO()
    stream = EncodedOutput(TextIOWrapper(kept, encoding="ascii", write_through=True))
    assert stream.write("".join(REPLACEMENTS)) > 0
    assert kept.getvalue() == "".join(REPLACEMENTS.values()).encode()
    assert stream.encoding == "ascii"
    latin = BytesIO()
    other = EncodedOutput(TextIOWrapper(latin, encoding="latin-1", write_through=True))
    other.write("✓ 2 × 3 · é  \nx")
    assert latin.getvalue().decode("latin-1") == "ok 2 × 3 · é\nx"


LIGHT = """
import sys
from inlayer.cli import main
for verb in sys.stdin.read().splitlines():
    sys.argv[1:] = ["learn", *verb.split()]
    sys.stdin = None
    try:
        main()
    except SystemExit as stopped:
        heavy = sorted({"torch", "numpy", "safetensors"} & set(sys.modules))
        print(f"[{verb}] {stopped.code} {heavy}", file=sys.stderr)
"""


def test_commands_that_grade_nothing_do_not_import_torch() -> None:
    """With the real course, in its own process, on an ASCII terminal without input."""
    verbs = [
        "",
        "read 1",
        "hint utf8_bytes",
        "quiz",
        "exercise",
        "progress",
        "misconceptions",
        "skip",
        "next",
        "list 1",
    ]
    env = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, env=env, input="\n".join(verbs), check=False
    )
    assert done.stderr.splitlines() == [f"[{verb}] 0 []" for verb in verbs]
    assert len(done.stdout) > 5000
    assert done.stdout.isascii()
    assert not re.search(r"\\u2[1-57-9]", done.stdout)  # none of our glyphs is shown as an escape code
