"""A class is graded file by file, and no file affects the result of another."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from inlayer.errors import InputError, MissingFileError
from inlayer.learn import grader, task_files
from inlayer.learn.batch import MAX_COPIES, MAX_UNKNOWN, BatchReport, BatchRow, escape_formula, grade_folder
from inlayer.learn.course import open_course
from inlayer.learn.notebook import file_name, write_notebooks
from inlayer.learn.sandbox.restrict import GradingLimits

pytestmark = pytest.mark.slow

QUICK = GradingLimits(seconds=5.0, memory=512 << 20, output=100_000)
GATHER = open_course().task("gather")
MEAN = open_course().task("mean_pool")


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Load what is loaded only once, so it does not count toward the limits."""
    assert grader.grade(GATHER, GATHER.solution).passed


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def graded(folder: Path, **further: object) -> dict[tuple[str, str], BatchRow]:
    """The rows by learner and file."""
    report = grade_folder(folder, limits=QUICK, **further)  # type: ignore[arg-type]
    made = {(row.learner, row.file): row for row in report.rows}
    assert len(made) == len(report.rows)
    return made


def test_misbehaving_files_do_not_affect_the_others(tmp_path: Path) -> None:
    """Each one has its own rule; the correct files before, between and after them pass."""
    wrong_rule, wrong = next(iter(GATHER.wrong.items()))
    put(
        tmp_path,
        {
            "a_first/gather.py": GATHER.solution,
            "endless/gather.py": "while True: pass\n",
            "exits/gather.py": "import sys\nsys.exit(0)\n",
            "giant/gather.py": "while True: print('x' * 1000)\n",
            "latin/gather.py": b"# caf\xe9\n" + GATHER.solution.encode(),
            "large/gather.py": b"#" * (100 << 20),
            "middle/gather.py": GATHER.solution,
            "nul/gather.py": "x = 1\0",
            "start/gather.py": GATHER.start,
            "wrong/gather.py": wrong,
            "deletes/gather.py": "import shutil, pathlib\nshutil.rmtree(pathlib.Path(__file__).parents[1])\n",
            "z_last/gather.py": GATHER.solution,
        },
    )
    (tmp_path / "folder" / "gather.py").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "gather.py")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "gather.py").symlink_to("gather.py")
    (tmp_path / "loop" / "again").symlink_to(tmp_path)
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "gather.py").symlink_to(
        GATHER.folder / "solution.py"
    )  # linking to the solution does not count

    rows = graded(tmp_path)
    for name in ("a_first", "middle", "z_last"):
        row = rows[name, f"{name}/gather.py"]
        assert (row.passed, row.rule, row.message) == (True, "", "")
        assert row.checks_passed == row.checks_total > 3
    rules = {learner: row.rule for (learner, file), row in rows.items() if not row.passed and file != "loop/again"}
    assert rules == {
        "copies": "link",
        "deletes": "refused",
        "endless": "timeout",
        "exits": "ended",
        "folder": "not-a-file",
        "giant": "output",
        "large": "too-large",
        "latin": "not-utf-8",
        "loop": "link",
        "nul": "syntax",
        "pipe": "not-a-file",
        "start": rules["start"],
        "wrong": wrong_rule,
    }
    failed = [row for row in rows.values() if row.passed is False]
    assert all(row.message and row.task == "gather" and row.checks_passed < row.checks_total for row in failed)
    assert len({row.checks_total for row in failed}) == 1  # unreadable files report the same number of checks
    assert not [row.message for row in rows.values() if "\n" in row.message]
    assert rows["loop", "loop/again"].rule == "link"
    assert (tmp_path / "z_last" / "gather.py").exists()


def test_submissions_are_found_in_every_layout(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "Ann/inlayer-course/gather.py": GATHER.solution,
            "Ann/mean_pool.py": b"\xef\xbb\xbf" + MEAN.solution.encode(),  # a byte order mark is accepted
            "Bob_mean_pool.py": MEAN.solution,
            "Cleo D_123_file_gather.py": GATHER.solution,
            "gather.py": GATHER.solution,
            "Ann/Gather.py": GATHER.solution,
            "Ann/notes.txt": "",
            "Ann/__pycache__/gather.py": "ignored",
            "Ann/.git/gather.py": "ignored",
            "Dora/.hidden": "",
        },
    )
    rows = graded(tmp_path)
    assert [(learner, row.task, row.passed, row.rule) for (learner, _), row in rows.items()] == [
        ("Ann", "gather", True, ""),
        ("Ann", "mean_pool", True, ""),
        ("Ann", "", None, "unknown-file"),
        ("Ann", "", None, "unknown-file"),
        ("Bob", "mean_pool", True, ""),
        ("Cleo D_123_file", "gather", True, ""),
        ("Dora", "", None, "nothing-submitted"),
        (tmp_path.name, "gather", True, ""),
    ]
    assert "did you mean gather.py?" in rows["Ann", "Ann/Gather.py"].message
    assert rows["Ann", "Ann/notes.txt"].message == "its name matches no task"


def test_notebooks_are_graded_by_their_cells(tmp_path: Path) -> None:
    lesson = open_course().lesson("forward")
    write_notebooks(tmp_path / "Ann", [lesson])
    path = tmp_path / "Ann" / file_name(lesson)
    book = json.loads(path.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if "".join(cell["source"]).startswith("%%task gather\n"):
            cell["source"] = ("%%task gather\n" + GATHER.solution).splitlines(keepends=True)
    book["cells"].append({"cell_type": "code", "source": "%%task gathered\n"})
    path.write_text(json.dumps(book), encoding="utf-8")
    put(
        tmp_path,
        {
            "Bob_03-forward.ipynb": "{}",
            "Cleo.ipynb": '{"cells": []}',
            "Dora/x.ipynb": "[" * 100_000,
            "Eve/x.ipynb": '{"cells": [{"cell_type": "code", "source": [1]}]}',
        },
    )
    report = grade_folder(tmp_path, limits=QUICK)
    ann = {row.task: row for row in report.rows if row.learner == "Ann"}
    assert set(ann) == {*(task.id for task in lesson.tasks), ""}
    assert [task for task, row in ann.items() if row.passed] == ["gather"]
    assert ann[""].rule == "unknown-task"
    others = [(row.learner, row.rule) for row in report.rows if row.learner != "Ann"]
    assert others == [
        ("Bob", "no-notebook"), ("Cleo", "no-tasks"), ("Dora", "no-notebook"), ("Eve", "no-notebook")
    ]  # fmt: skip


def test_everybody_gets_the_same_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {f"{name}/gather.py": GATHER.solution for name in "abc"})
    asked: list[object] = []

    def noted(task: object, source: str, **how: object) -> grader.Verdict:
        asked.append(how["seed"])
        return known()

    monkeypatch.setattr(grader, "grade", noted)
    seeds = {grade_folder(tmp_path).seed for _ in range(3)}
    assert len(seeds) == 3  # random unless given
    assert [seed for seed in dict.fromkeys(asked) for _ in "abc"] == asked
    report = grade_folder(tmp_path, seed=7)
    assert asked[-3:] == [7, 7, 7]
    assert report.seed == 7
    assert {row.seed for row in report.rows} == {7}


def known() -> grader.Verdict:
    passed = grader.CheckOutcome(name="syntax", description="", state="passed")
    return grader.Verdict(task="gather", results=(passed,), seed=0)


def test_named_tasks_and_missing_submissions(tmp_path: Path) -> None:
    put(tmp_path, {"Ann/gather.py": GATHER.solution, "Bob/mean_pool.py": MEAN.solution})
    report = grade_folder(tmp_path, tasks=["gather"], limits=QUICK)
    assert [(row.learner, row.task, row.passed, row.rule) for row in report.rows] == [
        ("Ann", "gather", True, ""),
        ("Bob", "gather", False, "not-submitted"),
    ]
    with pytest.raises(InputError, match="unknown task 'gathered'"):
        grade_folder(tmp_path, tasks=["gathered"])
    with pytest.raises(InputError, match="seed is -1"):
        grade_folder(tmp_path, seed=-1)


def test_an_error_in_the_grader_does_not_stop_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task: object, source: str, **how: object) -> grader.Verdict:
        if source == "bad":
            raise RuntimeError("no more processes")
        return known()

    put(tmp_path, {"Ann/gather.py": "bad", "Bob/gather.py": "good"})
    monkeypatch.setattr(grader, "grade", broken)
    rows = graded(tmp_path)
    assert [row.passed for row in rows.values()] == [None, True]  # an error in the grader is not a failure
    assert rows["Ann", "Ann/gather.py"].rule == "not-graded"
    assert "RuntimeError: no more processes" in rows["Ann", "Ann/gather.py"].message


def test_stopping_reports_what_was_not_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(task: object, source: str, **how: object) -> grader.Verdict:
        if source == "c":
            raise KeyboardInterrupt
        return known()

    put(tmp_path, {f"{name}/gather.py": name for name in "abcd"} | {"d/x.txt": "", "b/x.txt": ""})
    monkeypatch.setattr(grader, "grade", stopped)
    seen: list[tuple[int, int]] = []
    report = grade_folder(tmp_path, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 6), (2, 6), (3, 6)]
    assert report.not_graded == 2
    assert [(row.learner, row.passed, row.rule) for row in report.rows] == [
        ("a", True, ""),
        ("b", True, ""),
        ("b", None, "unknown-file"),
        ("c", None, "not-graded"),
        ("d", None, "not-graded"),
        ("d", None, "unknown-file"),
    ]
    assert json.loads(report.to_json())["not_graded"] == 2


def test_ctrl_c_stops_the_grading(tmp_path: Path) -> None:
    """A real signal, while code runs that never ends: finished rows are reported, and no process is left."""
    put(tmp_path, {"a/gather.py": GATHER.solution, "b/gather.py": "while True: pass\n", "c/gather.py": GATHER.start})
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))

    def noted(done: int, of: int) -> None:
        timer.start()  # after the first file

    report = grade_folder(tmp_path, progress=noted, limits=GradingLimits(seconds=60.0))
    assert [(row.learner, row.passed, row.rule) for row in report.rows] == [
        ("a", True, ""), ("b", None, "not-graded"), ("c", None, "not-graded")
    ]  # fmt: skip
    assert report.not_graded == 2
    assert grader.grade(GATHER, GATHER.solution).passed


def test_copies_of_a_task_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(task: object, source: str, **how: object) -> grader.Verdict:
        asked.append(source)
        return known()

    monkeypatch.setattr(grader, "grade", noted)
    put(tmp_path, {f"Ann/{number:03}/gather.py": str(number) for number in range(50)})
    put(tmp_path, {f"Ann/{number:03}.txt": "" for number in range(50)})
    rows = grade_folder(tmp_path).rows
    assert len(asked) == MAX_COPIES
    assert sum(row.rule == "too-many-files" for row in rows) == 50 - MAX_COPIES
    strange = [row.message for row in rows if row.rule == "unknown-file"]
    assert len(strange) == MAX_UNKNOWN + 1
    assert "30 more" in strange[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    put(tmp_path, {"Ann/gather.py": GATHER.solution, "Bob/gather.py": GATHER.solution})
    (tmp_path / "Ann" / "gather.py").chmod(0)
    (tmp_path / "Bob").chmod(0)
    rows = graded(tmp_path)
    (tmp_path / "Bob").chmod(0o700)
    assert {row.rule for row in rows.values()} == {"unreadable"}


def test_os_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    put(tmp_path, {"Ann/gather.py": GATHER.solution})
    monkeypatch.setattr(task_files.os, "open", refusing)
    rows = graded(tmp_path)
    assert rows["Ann", "Ann/gather.py"].rule == "unreadable"
    assert "Permission denied" in rows["Ann", "Ann/gather.py"].message


@pytest.mark.parametrize("folder", ["nothing", "file.txt", "empty"])
def test_a_folder_without_learners_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises((MissingFileError, InputError), match=r"not found|is not a folder|contains no submissions"):
        grade_folder(tmp_path / folder)


# ---- reports


def row(learner: str = "Ann", message: str = "", **further: object) -> BatchRow:
    facts = {
        "task": "gather",
        "passed": False,
        "checks_passed": 3,
        "checks_total": 7,
        "rule": "values",
        "seed": 7,
        "file": "a.py",
    }
    return BatchRow(learner=learner, message=message, **(facts | further))  # type: ignore[arg-type]


def test_csv_has_the_facts_and_no_formulas() -> None:
    rows = (
        row("=cmd|' /C calc'!A0", "-1 is no id"),
        row("+Ann", "@SUM(A1)", passed=True, rule="", checks_passed=7),
        row('Ann, "B"', " =1+1\n", passed=None),
    )
    read = list(csv.DictReader(io.StringIO(BatchReport(rows=rows, seed=7).to_csv())))
    assert list(read[0]) == [
        "learner",
        "task",
        "passed",
        "checks_passed",
        "checks_total",
        "rule",
        "message",
        "seed",
        "file",
    ]
    assert [one["learner"] for one in read] == ["'=cmd|' /C calc'!A0", "'+Ann", 'Ann, "B"']
    assert [one["message"] for one in read] == ["'-1 is no id", "'@SUM(A1)", "' =1+1\n"]
    assert [one["passed"] for one in read] == ["no", "yes", ""]
    assert (read[0]["checks_passed"], read[0]["checks_total"], read[0]["seed"]) == ("3", "7", "7")


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", " =1", "＝1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert escape_formula(cell) == "'" + cell
    assert escape_formula("a" + cell) == "a" + cell


def test_json_has_the_same_facts_and_totals() -> None:
    rows = (row(passed=True), row(passed=False), row(task="mean_pool"), row("Bob", task="", passed=None, file=""))
    data = json.loads(BatchReport(rows=rows, seed=7).to_json())
    assert data["seed"] == 7
    assert data["learners"] == [
        {"learner": "Ann", "passed": 1, "tasks": 2, "files": 1},
        {"learner": "Bob", "passed": 0, "tasks": 0, "files": 0},
    ]
    assert [one["passed"] for one in data["rows"]] == [True, False, False, None]
    assert set(data["rows"][0]) == set(BatchRow.__annotations__)


def test_file_names_that_are_not_text_are_escaped(tmp_path: Path) -> None:
    bad = os.fsencode(tmp_path) + b"/A\xff\nn"
    try:
        os.mkdir(bad)  # noqa: PTH102
    except OSError:
        pytest.skip("the file system only accepts text")
    report = grade_folder(tmp_path)
    assert [one.learner for one in report.rows] == ["A\\udcff n"]
    assert re.search(r"A\\udcff n", report.to_csv().encode().decode())
    report.to_json().encode()
