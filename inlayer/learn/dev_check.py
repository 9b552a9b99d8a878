"""The course, checked: for every task the solution passes, the start fails, and each wrong solution by its own rule.

python -m inlayer.learn.dev_check [TASK ...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from inlayer.learn.course import Task, open_course
from inlayer.learn.grader import grade

__all__ = ["find_faults", "main"]

LEAST_WRONG = 5
SOLUTIONS = 3  # of a solution: values are drawn, and it must pass with all of them


def find_faults(task: Task) -> Iterator[str]:
    """What does not hold of a task, in a line each."""
    for _ in range(SOLUTIONS):
        verdict = grade(task, task.solution)
        if verdict.failure is not None:
            failed = verdict.failure
            yield f"{task.id}: the solution fails, seed {verdict.seed}: {failed.name}: {failed.rule}: {failed.message}"
    if grade(task, task.start).passed:
        yield f"{task.id}: the start passes"
    wrong = task.wrong
    messages: dict[str, str] = {}
    if len(wrong) < LEAST_WRONG:
        yield f"{task.id}: it has {len(wrong)} wrong solutions, fewer than {LEAST_WRONG}"
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


def main() -> None:
    """Check the tasks that are named, or all."""
    course = open_course()
    faults = 0
    for task in [course.task(name) for name in sys.argv[1:]] or course.tasks.values():
        for fault in find_faults(task):
            faults += 1
            sys.stdout.write(fault + "\n")
        sys.stdout.write(f"{task.id}: 1 solution, 1 start, {len(task.wrong)} wrong\n")
        sys.stdout.flush()
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
