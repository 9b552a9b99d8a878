"""The grader: a learner's file through the checks of a task, in order, until one does not hold.

source -> [grader] -> Verdict
- the file is read and runs in a process of its own (exam.py); what is right is known here alone
- "7 of 7 checks" are all there are; what comes after a failure was not run, and is said not to have been
- a result that makes a check itself stumble is a failure like any other: one file must not spoil the rest of a class
Checked with every solution, start and wrong solution of the course by `inlayer learn dev-check`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal

from torch import Tensor

from inlayer.learn.course import Task
from inlayer.learn.session import CheckFailed, GradingSession, Limits, describe_value
from inlayer.shapes import check_seed

__all__ = ["Result", "Verdict", "checks_of", "grade"]

MAX_SOURCE = 1 << 20  # characters
BEFORE = {
    "syntax": "the file is Python",
    "runs": "the file runs",
    "signature": "what the task asks for is there, under its name",
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One check: what it looks at, and how it came out."""

    name: str
    what: str
    state: Literal["passed", "failed", "not run"]
    rule: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All checks of a task on one file; `own` is the learner's own tensor for the walk, where a task has one."""

    task: str
    results: tuple[Result, ...]
    seed: int
    printed: str = ""
    own: Tensor | None = None

    @property
    def passed(self) -> bool:
        return all(result.state == "passed" for result in self.results)

    @property
    def n_passed(self) -> int:
        return sum(result.state == "passed" for result in self.results)

    @property
    def failure(self) -> Result | None:
        return next((result for result in self.results if result.state == "failed"), None)

    @property
    def summary(self) -> str:
        """How many checks held, of how many; and how many were not run."""
        counted = f"{self.n_passed} of {len(self.results)} checks"
        if self.failure is None:
            return counted
        left = len(self.results) - self.n_passed - 1
        not_run = {0: "", 1: ", 1 was not run"}.get(left, f", {left} were not run")
        return f"{counted}; {self.failure.name} failed{not_run}"


def checks_of(task: Task) -> ModuleType:
    """The module that judges a task; CHECKS in it are its checks, in order."""
    return import_module(f"inlayer.learn.content.{task.lesson}.{task.id}.check")


def grade(task: Task, source: str, *, seed: int | None = None, limits: Limits | None = None) -> Verdict:
    """Grade a file; a seed draws the same values again."""
    module = checks_of(task)
    checks: tuple[Callable[[GradingSession], None], ...] = module.CHECKS
    names = {**BEFORE, **{check.__name__.replace("_", " "): (check.__doc__ or "").strip() for check in checks}}
    seed = secrets.randbelow(2**31) if seed is None else seed
    check_seed(seed)
    grading = Grading(task, source, module, seed, limits or Limits())
    results: list[Result] = []
    steps = grading.steps()
    for name, what in names.items():
        state: Literal["passed", "failed", "not run"] = "passed"
        rule = message = ""
        if results and results[-1].state != "passed":
            state = "not run"
        else:
            try:
                next(steps)
            except CheckFailed as failed:
                state, rule, message = "failed", failed.rule, failed.message
            except Exception as error:  # a result of a kind that no check thought of
                state, rule = "failed", "unexpected"
                message = f"what your code gave is nothing this check can look at ({type(error).__name__}: {error})"
        results.append(Result(name=name, what=what, state=state, rule=rule, message=message))
    steps.close()
    return Verdict(task=task.id, results=tuple(results), seed=seed, printed=grading.printed, own=grading.own)


class Grading:
    """One file on its way through the checks."""

    def __init__(self, task: Task, source: str, module: ModuleType, seed: int, limits: Limits) -> None:
        self.task, self.source, self.module, self.seed, self.limits = task, source, module, seed, limits
        self.printed = ""
        self.own: Tensor | None = None

    def steps(self) -> Generator[None, None, None]:
        """One check at each step; Failed where it does not hold."""
        if len(self.source) > MAX_SOURCE:
            raise CheckFailed("syntax", f"the file has {len(self.source):,} characters; it may have {MAX_SOURCE:,}")
        session = GradingSession(self.module.NAME, seed=self.seed, limits=self.limits)
        try:
            used = session.read(self.source)
            yield
            raised = session.load(self.source, f"{self.task.id}.py")
            if raised is not None:
                raise CheckFailed("raises", f"your file does not run: {raised}")
            yield
            check_signature(session, self.module)
            check_without(used, getattr(self.module, "FORBIDDEN_NAMES", ()))
            yield
            for number, check in enumerate(self.module.CHECKS, start=1):
                check(session)
                if number == len(self.module.CHECKS) and hasattr(self.module, "walk_output"):
                    self.own = self.module.walk_output(session)
                    if not isinstance(self.own, Tensor):
                        given = describe_value(self.own)
                        raise CheckFailed(
                            "not-a-tensor", f"for the walk's text the result must be a tensor; it is {given}"
                        )
                yield
        finally:
            session.close()
            self.printed = session.printed.text()


def check_signature(session: GradingSession, module: ModuleType) -> None:
    name, wanted = module.NAME, tuple(module.PARAMETERS)
    kind, parameters = session.signature()
    if kind not in {"function", "class"}:
        found = "is not there" if kind == "nothing" else f"is of type {kind}"
        raise CheckFailed("missing", f"the file must define {name}({', '.join(wanted)}); {name} {found}")
    if parameters != wanted:
        raise CheckFailed(
            "parameters",
            f"{name} must take ({', '.join(wanted)}), by these names and in this order; "
            f"yours takes ({', '.join(parameters)})",
        )


def check_without(used: dict[str, int], names: tuple[str, ...]) -> None:
    """Names that the task is to be done without."""
    for name in names:
        if name in used:
            raise CheckFailed("forbidden-name", f"this task is to be done without {name}; line {used[name]} uses it")
