"""The grader: runs the checks of a task on a learner's file, in order, until one fails.

source -> session -> [grader] -> Verdict
- code runs in a separate process (session.py); expected values exist only here
- checks after the first failure are reported as not run
- an exception inside a check counts as a failure, so one file cannot break the grading of a whole class
Tested with every solution, starter file, and wrong solution of the course by `inlayer learn dev-check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, TypeAlias

from torch import Tensor

from inlayer.checks import check_seed
from inlayer.facts_base import Facts
from inlayer.learn.assertions import NO_OUTPUT, LearnerException, RecordedCall, labeled
from inlayer.learn.course import Task
from inlayer.learn.questions import random_seed
from inlayer.learn.sandbox.restrict import GradingLimits
from inlayer.learn.session import CheckFailed, GradingSession, describe_value
from inlayer.render.numbers import pluralize

MAX_SOURCE = 1 << 20  # characters
Check: TypeAlias = "Callable[[GradingSession], None]"
MIN_WRONG = 5  # required wrong solutions per task
SOLUTION_RUNS = 3  # runs with different random values
MAX_EXAMPLES = 5  # number of examples to draw until one differs from the graded input
STOP_RULES = {"timeout", "output", "memory", "refused", "ended"}  # failures that only an unfinished call explains


class CheckOutcome(Facts):
    """The outcome of one check: passed, failed (with a rule and feedback), or not run."""

    name: str
    description: str
    state: Literal["passed", "failed", "not run"]
    rule: str = ""
    message: str = ""
    feedback: tuple[str, ...] = ()  # lines: the call that failed, the expected kind of result, and an example


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All checks of a task on one file; `walk_output` is the learner's tensor for the walk's text, if there is one."""

    task: str
    results: tuple[CheckOutcome, ...]
    seed: int
    printed: str = ""
    walk_output: Tensor | None = None

    @property
    def passed(self) -> bool:
        return all(result.state == "passed" for result in self.results)

    @property
    def failure(self) -> CheckOutcome | None:
        return next((result for result in self.results if result.state == "failed"), None)

    @property
    def n_passed(self) -> int:
        return sum(result.state == "passed" for result in self.results)

    @property
    def summary(self) -> str:
        """How many checks passed, which one failed, and how many were not run."""
        counted = f"{self.n_passed} of {len(self.results)} checks"
        if self.failure is None:
            return f"{counted} passed"
        remaining = len(self.results) - self.n_passed - 1
        not_run = {0: "", 1: ", 1 was not run"}.get(remaining, f", {remaining} were not run")
        return f"{counted} passed; {self.failure.name} failed{not_run}"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values, with the shape of `walk_output` in place of its numbers."""
        output = self.walk_output
        return {
            "task": self.task,
            "passed": self.passed,
            "n_passed": self.n_passed,
            "n_checks": len(self.results),
            "summary": self.summary,
            "seed": self.seed,
            "checks": [vars(result) for result in self.results],
            "printed": self.printed,
            "walk_output": None if output is None else {"shape": list(output.shape), "dtype": str(output.dtype)},
        }


def grade(
    task: Task, source: str, *, seed: int | None = None, limits: GradingLimits | None = None, examples: bool = True
) -> Verdict:
    """Grade a file. The same seed draws the same values; `examples` adds a fresh example to a failed check."""
    seed = check_seed(random_seed() if seed is None else seed)
    run = GradingRun(task, source, seed, limits)
    with run.open_session(seed) as session:
        results = list(run.outcomes(session, examples=examples))
    return Verdict(
        task=task.id, results=tuple(results), seed=seed, printed=session.printed, walk_output=run.walk_output
    )


class GradingRun:
    """One file and its checks: the common checks of every task, then those of this task."""

    def __init__(self, task: Task, source: str = "", seed: int = 0, limits: GradingLimits | None = None) -> None:
        self.task, self.source, self.seed, self.limits = task, source, seed, limits
        self.module = import_module(f"inlayer.learn.content.{task.lesson}.{task.id}.check")
        self.walk_output: Tensor | None = None
        self.random_state: Tensor | None = None  # as of the start of the current check
        self.checks: list[Check] = [self.syntax, self.runs, self.signature, *self.module.CHECKS]

    def open_session(self, seed: int) -> GradingSession:
        return GradingSession(self.module.NAME, seed=seed, limits=self.limits, parameters=tuple(self.module.PARAMETERS))

    def outcomes(self, session: GradingSession, *, examples: bool) -> Iterator[CheckOutcome]:
        """Run the checks until one fails."""
        failed: CheckFailed | None = None
        for check in self.checks:
            outcome = CheckOutcome(
                name=check.__name__.replace("_", " "), description=(check.__doc__ or "").strip(), state="not run"
            )
            if failed is not None:
                yield outcome
                continue
            try:
                session.calls, self.random_state = [], session.generator.get_state()
                self.walk_output = self.run_check(check, session)
                yield replace(outcome, state="passed")
            except Exception as error:
                message = f"the check cannot process what your code returned ({type(error).__name__}: {error})"
                failed = error if isinstance(error, CheckFailed) else CheckFailed("unexpected", message)
                feedback = self.feedback(failed, session, check if examples else None)
                yield replace(outcome, state="failed", rule=failed.rule, message=failed.message, feedback=feedback)

    def run_check(self, check: Check, session: GradingSession) -> Tensor | None:
        """Run a check; the last one also computes the learner's tensor for the walk's text, if the task has one."""
        check(session)
        if check is not self.checks[-1] or not hasattr(self.module, "walk_output"):
            return None
        output = self.module.walk_output(session)
        if not isinstance(output, Tensor):
            message = f"the result for the walk's text must be a tensor; it is {describe_value(output)}"
            raise CheckFailed("not-a-tensor", message)
        return output

    def syntax(self, session: GradingSession) -> None:
        """the file is valid Python"""
        if len(self.source) > MAX_SOURCE:
            message = f"the file has {len(self.source):,} characters; at most {MAX_SOURCE:,} are allowed"
            raise CheckFailed("syntax", message)
        session.parse(self.source)

    def runs(self, session: GradingSession) -> None:
        """the file runs"""
        raised = session.load(self.source, f"{self.task.id}.py", tuple(getattr(self.module, "FORBIDDEN", ())))
        if raised is not None:
            raise CheckFailed("raises", f"your file raised {raised}")

    def signature(self, session: GradingSession) -> None:
        """it defines the required function or class"""
        name, expected = self.module.NAME, tuple(self.module.PARAMETERS)
        kind, parameters = session.signature()
        if kind not in {"function", "class"}:
            actual = "it is not defined" if kind == "nothing" else f"it is of type {kind}"
            raise CheckFailed("missing", f"the file must define {name}({', '.join(expected)}); {actual}")
        if parameters != expected:
            message = f"{name} must take the parameters ({', '.join(expected)}); yours takes ({', '.join(parameters)})"
            raise CheckFailed("parameters", message)

    def feedback(self, failed: CheckFailed, session: GradingSession, check: Check | None) -> tuple[str, ...]:
        """Return the failed check's last call, the expected kind of result, and an example with other random values."""
        if not session.calls:
            example = self.run_solution(self.module.CHECKS[0], 1) if check and failed.rule == "forbidden-name" else None
            return ("An input and its correct output:", *example.lines("output")) if example else ()
        last, index = session.calls[-1], len(session.calls)
        if failed.rule in STOP_RULES and last.output is not NO_OUTPUT:
            return ()
        expected, example = failed.expected, None
        if check is not None:
            solved = self.run_solution(check, index, random_state=self.random_state)
            if not expected and solved is not None:
                raises = isinstance(solved.output, LearnerException)
                expected = f"error: {solved.output.type}" if raises else describe_value(solved.output)
            drawn = (self.run_solution(check, index, seed_offset=number) for number in range(1, MAX_EXAMPLES + 1))
            example = next((call for call in drawn if call and call.input_lines() != last.input_lines()), None)
        lines = last.lines("your output") + labeled("expected", expected)
        if example is not None:
            lines += ["", "Another input and its correct output:", *example.lines("output")]
        return tuple(lines)

    def run_solution(
        self, check: Check, index: int, *, seed_offset: int = 1, random_state: Tensor | None = None
    ) -> RecordedCall | None:
        """Repeat a call of the check (counted from 1) with the task's solution, by default on new values."""
        with suppress(OSError, CheckFailed), self.open_session((self.seed + seed_offset) % 2**31) as solved:
            if random_state is not None:
                solved.generator.set_state(random_state)
            solved.load(self.task.solution, f"{self.task.id}.py")
            self.run_check(check, solved)
        if not solved.calls:
            return None
        call = solved.calls[min(index, len(solved.calls)) - 1]
        if isinstance(call.output, LearnerException):  # its line number refers to the solution, not the learner's file
            call = replace(call, output=replace(call.output, line=None))
        return call


# ---- for authors


def find_problems(task: Task) -> Iterator[str]:
    """Yield the problems of a task, one line each."""
    for _ in range(SOLUTION_RUNS):
        verdict = grade(task, task.solution, examples=False)
        if verdict.failure is not None:
            failed = verdict.failure
            yield f"{task.id}: the solution fails {failed.name} ({failed.rule}, seed {verdict.seed}): {failed.message}"
    if grade(task, task.starter, examples=False).passed:
        yield f"{task.id}: the starter file passes"
    wrong = task.wrong_solutions
    messages: dict[str, str] = {}
    if len(wrong) < MIN_WRONG:
        yield f"{task.id}: it has {pluralize(len(wrong), 'wrong solution')}; at least {MIN_WRONG} are required"
    for name, source in wrong.items():
        failure = grade(task, source, examples=False).failure
        if failure is None:
            yield f"{task.id}: wrong/{name}.py passes"
        elif failure.rule != name:
            yield f"{task.id}: wrong/{name}.py fails with {failure.rule} ({failure.name}): {failure.message}"
        elif failure.message in messages:
            yield f"{task.id}: wrong/{name}.py has the same message as wrong/{messages[failure.message]}.py"
        else:
            messages[failure.message] = name
