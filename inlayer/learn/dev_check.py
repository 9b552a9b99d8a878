"""The course, checked: for every task the solution passes, the start fails, and each wrong solution by its own rule.

task, grader -> [dev_check] -> inlayer learn dev-check
Checked, with every task, in tests/learn/test_dev_check.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlayer.learn.course import Task
from inlayer.learn.grader import grade

__all__ = ["find_faults"]

MIN_WRONG = 5
TIMES = 3  # a solution is graded: values are drawn, and it must pass with all of them


def find_faults(task: Task) -> Iterator[str]:
    """What does not hold of a task, in a line each."""
    for _ in range(TIMES):
        verdict = grade(task, task.solution)
        if verdict.failure is not None:
            failed = verdict.failure
            yield f"{task.id}: the solution fails, seed {verdict.seed}: {failed.name}: {failed.rule}: {failed.message}"
    if grade(task, task.start).passed:
        yield f"{task.id}: the start passes"
    wrong = task.wrong
    messages: dict[str, str] = {}
    if len(wrong) < MIN_WRONG:
        yield f"{task.id}: it has {len(wrong)} wrong solutions, fewer than {MIN_WRONG}"
    for name, source in wrong.items():
        failure = grade(task, source).failure
        if failure is None:
            yield f"{task.id}: wrong/{name}.py passes"
        elif failure.rule != name:
            yield f"{task.id}: wrong/{name}.py fails by {failure.rule} ({failure.name}): {failure.message}"
        elif failure.message in messages:
            yield f"{task.id}: wrong/{name}.py has the message of wrong/{messages[failure.message]}.py"
        else:
            messages[failure.message] = name
