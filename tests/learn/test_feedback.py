"""Feedback on a failed check: input, output and expected kind, never the graded values, and a fresh example."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inlayer.learn.assertions import describe_value, format_value, labeled
from inlayer.learn.course import Task, open_course
from inlayer.learn.grader import grade
from inlayer.learn.sandbox.protocol import RemoteHandle
from tests.learn.toy import SOLUTION, toy

MEAN = SOLUTION.replace("sum", "mean")
EXAMPLE = "Another input and its correct output:"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "solution.py").write_text(SOLUTION)
    return replace(toy(), folder=tmp_path)


def numbers(text: str) -> set[str]:
    return set(re.findall(r"-?\d+\.\d+", text))


def test_a_failed_check_shows_input_output_and_expected_kind(task: Task) -> None:
    failure = grade(task, MEAN, seed=3).failure
    assert failure is not None
    lines = failure.feedback
    assert lines[0] == "add(table, ids)"
    labels = [line[2:14].strip() for line in lines[1 : lines.index("")]]
    assert list(filter(None, labels)) == ["table", "ids", "your output", "expected"]
    assert lines[1 + labels.index("your output")].endswith("  a float32 tensor of shape (3,)")
    assert lines[1 + labels.index("expected")].endswith("  a float32 tensor of shape (3,)")
    assert EXAMPLE in lines


def test_graded_values_are_never_shown_and_the_example_is_fresh(task: Task) -> None:
    wrong, right = grade(task, MEAN, seed=3).failure, grade(task, SOLUTION + "raise_later = 1\n", seed=3)
    assert right.passed
    assert wrong is not None
    graded_call, example = "\n".join(wrong.feedback).split(EXAMPLE)
    generator = torch.Generator().manual_seed(3)
    torch.randn(4, 6, generator=generator)
    torch.randint(0, 4, (3,), generator=generator)
    table = torch.randn(5, 3, generator=generator)
    ids = torch.randint(0, 5, (2,), generator=generator)
    given = "\n".join(labeled("table", format_value(table)))
    assert given in graded_call  # the graded input
    graded = numbers(format_value(table[ids].sum(0)))
    assert not graded & numbers("\n".join(wrong.feedback))
    assert "  table " in example
    assert given not in example


def test_a_raised_error_is_the_output(task: Task) -> None:
    failure = grade(task, "def add(table, ids):\n    raise ValueError('no')\n").failure
    assert failure is not None
    assert "  your output  raised ValueError: no (line 2 of your file)" in failure.feedback


def test_a_call_that_was_stopped_shows_its_input_and_the_expected_kind(task: Task) -> None:
    failure = grade(task, "def add(table, ids):\n    raise MemoryError\n").failure
    assert failure is not None
    assert failure.rule == "memory"
    assert "  your output  none: the call was stopped" in failure.feedback
    assert "  expected     a float32 tensor of shape (6,)" in failure.feedback
    assert EXAMPLE in failure.feedback


def test_a_forbidden_name_shows_what_the_function_should_return(task: Task) -> None:
    task = replace(toy(forbidden=("inlayer",)), folder=task.folder)
    failure = grade(task, "import inlayer\n").failure
    assert failure is not None
    assert failure.rule == "forbidden-name"
    first, call, *_ = failure.feedback
    assert (first, call) == ("An input and its correct output:", "add(table, ids)")
    assert any(line.endswith("a float32 tensor of shape (6,)") for line in failure.feedback)


@pytest.mark.parametrize(
    ("name", "wrong", "seed", "has_example"),
    [
        ("read_header", "backwards", 5, True), ("read_header", "before-the-data", 5, True),
        ("read_header", "invalid-json", 5, True), ("read_header", "not-an-object", 5, True),
        ("read_header", "too-short", 5, True), ("layer_facts", "size-missing", 5, True),
        ("position_wrapper", "odd-width", 2, True), ("position_wrapper", "neither-input", 5, False),
    ],
)  # fmt: skip
def test_the_example_never_repeats_the_graded_input(name: str, wrong: str, seed: int, has_example: bool) -> None:
    task = open_course().tasks[name]
    failure = grade(task, task.wrong_solutions[wrong], seed=seed).failure
    assert failure is not None
    assert failure.rule == wrong
    assert (EXAMPLE in failure.feedback) is has_example
    graded_call, _, example = "\n".join(failure.feedback).partition(f"\n\n{EXAMPLE}\n")
    assert graded_call.split("\n  your output ")[0] != example.split("\n  output ")[0]
    assert "of your file" not in example  # the example's lines are those of the solution


def test_no_example_without_a_reason(task: Task) -> None:
    plain = grade(task, MEAN, examples=False).failure
    assert plain is not None
    assert plain.feedback
    assert EXAMPLE not in plain.feedback
    syntax = grade(task, "def add(:\n").failure
    assert syntax is not None
    assert syntax.feedback == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.ones(2, 5, 8), "a float32 tensor of shape (2, 5, 8)"),
        (torch.ones(1, dtype=torch.int64), "an int64 tensor of shape (1,)"),
        ([1], "a list of 1 item"), ({}, "a dict of 0 items"), ("ab", "a str of length 2"), (None, "None"),
        (3, "a value of type int"), (RemoteHandle("generator"), "an object of type generator"),
    ],
)  # fmt: skip
def test_kinds_of_values(value: object, kind: str) -> None:
    assert describe_value(value) == kind


def test_long_values_are_shortened() -> None:
    assert len(format_value("x" * 10**6)) < 200
    assert len(format_value(list(range(10**5)))) < 200
    assert "more rows" in format_value(torch.ones(50, 50))


@pytest.mark.slow
@pytest.mark.parametrize("name", open_course().tasks)
def test_every_task_gives_an_example(name: str) -> None:
    """For one wrong solution of each task that returns something."""
    task = open_course().tasks[name]
    found = [grade(task, source).failure for source in list(task.wrong_solutions.values())[:6]]
    shown = [failure.feedback for failure in found if failure is not None and EXAMPLE in failure.feedback]
    assert shown
    for lines in shown:  # what was expected in kind, also by checks that do not say it themselves
        assert any(line.startswith("  expected  ") for line in lines[: lines.index("")])
