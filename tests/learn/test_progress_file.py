"""Progress: intact after a crash, never lost between processes, never deleted if it cannot be read."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from inlayer.errors import InputError
from inlayer.files import locked
from inlayer.learn import progress_file as progress_module
from inlayer.learn.course_steps import CourseOverview
from inlayer.learn.progress_file import (
    ProgressFile,
    ProgressRecord,
    ProgressState,
    data_folder,
    dump_state,
    load_state,
    merge_states,
)
from tests.learn.small import make_course

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


def full() -> ProgressState:
    return ProgressState(
        folder="/home/x/köln",
        current="gather",
        records={
            "read/text": ProgressRecord(done="2026-01-01T00:00:00+00:00"),
            "task/init_table": ProgressRecord(skipped="2026-01-02T00:00:00+00:00"),
            "task/gather": ProgressRecord(tries=2, done="2026-01-01T00:00:00+00:00", summary="7 of 7 checks", hints=3),
            "exercise/table/bytes": ProgressRecord(tries=1, seed=7),
            "question/one": ProgressRecord(tries=2, missed=1, due=2),
        },
    )


# ---- saving and loading


def test_progress_is_stored_in_the_data_folder(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ProgressFile().path == data / "progress.json"
    monkeypatch.delenv("INLAYER_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert data_folder() == tmp_path / "inlayer"
    assert data_folder().name == "inlayer"


def test_reading_creates_nothing(data: Path) -> None:
    assert ProgressFile(data / "below").read() == ProgressState()
    assert list(data.iterdir()) == []


def test_states_survive_saving_and_loading() -> None:
    assert load_state(dump_state(full())) == full()
    assert load_state(dump_state(ProgressState())) == ProgressState()


def test_changes_are_kept_and_times_are_utc(data: Path) -> None:
    progress = ProgressFile()
    with progress.edit() as state:
        state.record("task", "gather").record_check(passed=False, summary="3 of 7 checks; shape failed, 3 were not run")
        assert (
            state.record("task", "gather").record_hint(),
            state.record("task", "gather").record_hint(),
            state.record("task", "gather").record_hint(1),
        ) == (1, 2, 1)
        state.record("task", "gather").skipped = "x"
    seen = ProgressFile().read().record("task", "gather")
    assert (seen.tries, seen.done, seen.hints, seen.skipped) == (1, "", 2, "x")
    with progress.edit() as state:
        state.record("task", "gather").record_check(passed=True, summary="7 of 7 checks")
    first = ProgressFile().read().record("task", "gather").done
    assert re.fullmatch(TIME, first)
    assert ProgressFile().read().record("task", "gather").skipped == ""
    with progress.edit() as state:
        state.record("task", "gather").record_check(passed=False, summary="0 of 7 checks")
        assert [state.record("task", "gather").record_hint() for _ in range(3)] == [3, 3, 3]
    assert ProgressFile().read().record("task", "gather").done == first  # a task stays passed
    assert sorted(path.name for path in data.iterdir()) == ["progress.json", "progress.lock"]


def test_a_failed_change_is_discarded(data: Path) -> None:
    with ProgressFile().edit() as state:
        state.current = "one"
    before = (data / "progress.json").read_bytes()

    def fail() -> None:
        with ProgressFile().edit() as state:
            state.current = "two"
            raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        fail()
    assert (data / "progress.json").read_bytes() == before


# ---- damaged and unwritable files


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0" * 100, b"{", b"[]", b"{}", b'"x"', b"\xff", b"[" * 100_000, b'{"format": "inlayer progress"}',
        b'{"format": "another", "version": 1}', dump_state(full())[:-20],
        *(json.dumps({"format": "inlayer progress", "version": 2} | wrong).encode() for wrong in [
            {"version": 1}, {"folder": 1}, {"current": 5}, {"records": []}, {"records": {"a": 1}},
            *({"records": {"a": {name: value}}} for name, value in (
                ("tries", -1), ("tries", True), ("done", 1), ("seed", "x"), ("due", 10**30), ("skipped", None),
            )),
        ]),
    ],
)  # fmt: skip
def test_damaged_files_are_renamed(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_bytes(data)
    (tmp_path / "progress.damaged-1.json").write_text("an earlier one")
    notices: list[str] = []
    assert ProgressFile(tmp_path, on_notice=notices.append).read() == ProgressState()
    assert (tmp_path / "progress.damaged-2.json").read_bytes() == data
    assert (tmp_path / "progress.damaged-1.json").read_text() == "an earlier one"
    assert len(notices) == 1
    assert notices[0].startswith("progress was reset because ")
    assert notices[0].endswith("progress.damaged-2.json")
    with ProgressFile(tmp_path, on_notice=notices.append).edit() as state:
        state.current = "x"
    assert ProgressFile(tmp_path, on_notice=notices.append).read().current == "x"
    assert len(notices) == 1


@pytest.mark.parametrize("operation", ["touch", "rename"])
def test_a_damaged_file_in_an_unwritable_folder(operation: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "progress.json").write_bytes(b"{")

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(Path, operation, refuse)
    with pytest.raises(InputError, match="Permission denied"):
        ProgressFile().read()
    notices: list[str] = []
    loose = ProgressFile(on_notice=notices.append, allow_unsaved=True)
    assert loose.read() == ProgressState()
    with loose.edit() as state:
        state.current = "x"
    assert loose.read().current == "x"
    assert [notice.partition(":")[0] for notice in notices] == ["progress is not saved"]
    assert (data / "progress.json").read_bytes() == b"{"


def test_a_newer_file_is_refused_and_kept(data: Path) -> None:
    newer = json.dumps({"format": "inlayer progress", "version": 3, "records": "of another kind"}).encode()
    (data / "progress.json").write_bytes(newer)
    with pytest.raises(InputError, match="update inlayer"):
        ProgressFile().read()
    with pytest.raises(InputError, match="update inlayer"), ProgressFile().edit():
        pass
    assert (data / "progress.json").read_bytes() == newer


def test_unknown_fields_of_a_record_are_ignored() -> None:
    data = json.loads(dump_state(full()))
    data["records"]["task/gather"]["mood"] = "good"
    assert load_state(json.dumps(data).encode()) == full()


def test_an_unwritable_folder_is_reported_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with (
        pytest.raises(InputError, match=r"below cannot be written .*INLAYER_DATA"),
        ProgressFile(tmp_path / "file" / "below").edit(),
    ):
        pass


def test_reset_keeps_the_old_file(data: Path) -> None:
    assert ProgressFile().reset() is None
    for number in (1, 2):
        with ProgressFile().edit() as state:
            state.current = f"task{number}"
        before = (data / "progress.json").read_bytes()
        kept = ProgressFile().reset()
        assert kept == data / f"progress.before-reset-{number}.json"
        assert kept.read_bytes() == before
        assert ProgressFile().read() == ProgressState()


# ---- merging


def test_merging_two_machines_is_idempotent() -> None:
    mine, other = full(), ProgressState(folder="/elsewhere", current="init_table")
    other.records = {
        "task/gather": ProgressRecord(
            tries=5, summary="2 of 7 checks", hints=1, solution_seen="2026-01-03T00:00:00+00:00"
        ),
        "task/init_table": ProgressRecord(tries=1, done="2026-01-04T00:00:00+00:00"),
        "exercise/table/bytes": ProgressRecord(tries=3, done="2026-01-05T00:00:00+00:00"),
        "question/one": ProgressRecord(tries=5, missed=1, done="2026-01-06T00:00:00+00:00", due=0),
        "read/text": ProgressRecord(done="2025-01-01T00:00:00+00:00"),
    }
    both = merge_states(mine, other)
    assert (both.folder, both.current) == (mine.folder, mine.current)
    assert both.record("task", "gather") == ProgressRecord(
        tries=5,
        done="2026-01-01T00:00:00+00:00",
        summary="2 of 7 checks",
        hints=3,
        solution_seen="2026-01-03T00:00:00+00:00",
    )
    assert both.record("task", "init_table").done
    assert both.record("task", "init_table").skipped == ""  # it was skipped in one state and passed in the other
    assert both.record("exercise", "table/bytes") == ProgressRecord(tries=3, done="2026-01-05T00:00:00+00:00")
    assert both.record("question", "one").due == 0
    assert both.record("read", "text").done == "2025-01-01T00:00:00+00:00"
    assert merge_states(both, other) == both
    assert mine == full()
    assert merge_states(ProgressState(), full()) == ProgressState(**{**vars(full()), "folder": "", "current": ""})


# ---- steps of the course


def test_steps_of_the_course_in_order(tmp_path: Path) -> None:
    course, state = make_course(tmp_path), ProgressState()
    keys = [step.key for step in CourseOverview(course, state).steps]
    assert keys == [
        "read/first", "task/add", "task/add_again", "exercise/first/sum_of", "exercise/first/which",
        "exercise/first/words", "quiz/first", "read/second", "task/add_more", "exercise/second/which", "quiz/second",
    ]  # fmt: skip
    state.record("task", "add").skipped = state.record("quiz", "first").skipped = "x"
    walked = []
    while (step := CourseOverview(course, state).next_step) is not None:
        walked.append(step.key)
        if step.kind == "read":
            state.record("read", step.id).finish()
        elif step.kind == "task":
            state.record("task", step.id).record_check(passed=True, summary="")
        elif step.kind == "exercise":
            state.record("exercise", step.id).record_exercise(correct=True)
        else:
            for question in step.lesson.questions:
                state.record("question", question.id).finish()
    assert walked == [key for key in keys if key not in ("task/add", "quiz/first")] + ["task/add", "quiz/first"]


# ---- several processes

COUNTING = """
import sys
from inlayer.learn.progress_file import ProgressFile
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range(int(sys.argv[1])):
    with ProgressFile().edit() as state:
        state.record("task", sys.argv[2]).tries += 1
        state.record("task", "both").tries += 1
"""
ENDLESS = """
from inlayer.learn.progress_file import ProgressFile
number = 0
while True:
    with ProgressFile().edit() as state:
        number = state.record("task", "a").tries + 1
        state.record("task", "a").tries = state.record("task", "b").tries = number
    print(number, flush=True)
"""


def start(code: str, *arguments: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_and_threads_lose_nothing(data: Path) -> None:
    """Two processes and two threads write at the same time."""
    writers = [start(COUNTING, "15", name) for name in ("one", "two")]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"

    def count(name: str) -> None:
        for _ in range(15):
            with ProgressFile().edit() as state:
                state.record("task", name).tries += 1
                state.record("task", "both").tries += 1

    threads = [threading.Thread(target=count, args=(name,)) for name in ("three", "four")]
    for thread in threads:
        thread.start()
    for writer in writers:
        writer.communicate("go\n", timeout=300)
        assert writer.returncode == 0
    for thread in threads:
        thread.join()
    found = {name: record.tries for name, record in ProgressFile().read().records.items()}
    assert found == {"task/one": 15, "task/two": 15, "task/three": 15, "task/four": 15, "task/both": 60}


def test_a_killed_writer_leaves_an_intact_file(data: Path) -> None:
    moments, last = random.Random(0), 0
    for _ in range(3):
        with start(ENDLESS) as writer:
            assert int(writer.stdout.readline()) == last + 1
            time.sleep(moments.uniform(0, 0.05))
            writer.kill()
            reported = [int(line) for line in writer.stdout.read().splitlines()]
        state = ProgressFile(on_notice=pytest.fail).read()
        assert state.record("task", "a").tries == state.record("task", "b").tries
        assert state.record("task", "a").tries >= max([last + 1, *reported])  # no reported write is lost
        last = state.record("task", "a").tries
        with ProgressFile(on_notice=pytest.fail).edit() as state:  # the lock was released when the process died
            assert state.record("task", "a").tries == last
    assert not [path.name for path in data.iterdir() if "damaged" in path.name]


def test_a_lock_held_too_long_is_reported(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "LOCK_TIMEOUT", 0.05)
    with (
        locked(data / "progress.lock", "in a test"),
        pytest.raises(InputError, match=r"is in use: .* try again"),
        ProgressFile().edit(),
    ):
        pass


def test_a_full_disk_keeps_the_old_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressFile().edit() as state:
        state.current = "one"

    def full_disk(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(progress_module, "write_atomic", full_disk)
    with pytest.raises(InputError, match="No space left"), ProgressFile().edit() as state:
        state.current = "two"
    assert ProgressFile().read().current == "one"


def test_unsaved_progress_lasts_as_long_as_the_object(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" / "data"
    with pytest.raises(InputError, match="cannot be written"), ProgressFile(folder).edit():
        pass
    notices: list[str] = []
    loose = ProgressFile(folder, on_notice=notices.append, allow_unsaved=True)
    assert (loose.read(), loose.unsaved, notices) == (ProgressState(), None, [])
    with loose.edit() as state:
        state.record("task", "gather").record_check(passed=True, summary="7 of 7 checks")
    assert [notice.partition(" (")[0] for notice in notices] == [f"progress is not saved: {folder} cannot be written"]
    with loose.edit() as state:
        assert state.record("task", "gather").done
    assert loose.read().record("task", "gather").tries == 1
    assert ProgressFile(folder).read() == ProgressState()


def test_unsaved_progress_starts_from_the_stored_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressFile().edit() as state:
        state.current = "one"

    def full_disk(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(progress_module, "write_atomic", full_disk)
    notices: list[str] = []
    loose = ProgressFile(on_notice=notices.append, allow_unsaved=True)
    with loose.edit() as state:
        state.current = "two"
    assert "No space left" in notices[0]
    assert (loose.read().current, ProgressFile().read().current) == ("two", "one")


def test_a_passed_task_can_fail_again() -> None:
    state = ProgressState()
    state.record("task", "gather").record_check(passed=False, summary="3 of 7 checks; shape failed, 3 were not run")
    assert not state.record("task", "gather").fails_again
    state.record("task", "gather").record_check(passed=True, summary="7 of 7 checks")
    assert not state.record("task", "gather").fails_again
    state.record("task", "gather").record_check(passed=False, summary="3 of 7 checks; shape failed, 3 were not run")
    assert state.record("task", "gather").fails_again
