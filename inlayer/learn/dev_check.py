"""Checks for course authors: solutions pass, start files fail, and wrong solutions fail by their own rule.

task, grader -> [dev_check] -> inlayer learn dev-check
Tested with every task in tests/learn/test_dev_check.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlayer.learn.course import Task
from inlayer.learn.grader import grade

__all__ = ["find_problems"]

MIN_WRONG = 5
SOLUTION_RUNS = 3  # with different random values


def find_problems(task: Task) -> Iterator[str]:
    """The problems of a task, one line each."""
    for _ in range(SOLUTION_RUNS):
        verdict = grade(task, task.solution, examples=False)
        if verdict.failure is not None:
            failed = verdict.failure
            yield f"{task.id}: the solution fails {failed.name} ({failed.rule}, seed {verdict.seed}): {failed.message}"
    if grade(task, task.start, examples=False).passed:
        yield f"{task.id}: the start file passes"
    wrong = task.wrong
    messages: dict[str, str] = {}
    if len(wrong) < MIN_WRONG:
        yield f"{task.id}: there are {len(wrong)} wrong solutions; at least {MIN_WRONG} are required"
    for name, source in wrong.items():
        failure = grade(task, source, examples=False).failure
        if failure is None:
            yield f"{task.id}: wrong/{name}.py passes"
        elif failure.rule != name:
            yield f"{task.id}: wrong/{name}.py fails by {failure.rule} ({failure.name}): {failure.message}"
        elif failure.message in messages:
            yield f"{task.id}: wrong/{name}.py has the same message as wrong/{messages[failure.message]}.py"
        else:
            messages[failure.message] = name
