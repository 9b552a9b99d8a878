"""What a verdict, a question and an answer are in plain words, for where there is no terminal to paint on.

grader, asking -> [words] -> notebook
- the words are those of the terminal (cli/learn/page.py); a test holds the two against each other
Checked in tests/learn/test_notebook.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inlayer.learn.course import Task
from inlayer.learn.questions import AnswerResult, Asked, ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

if TYPE_CHECKING:
    from torch import Tensor

    from inlayer.learn.grader import Verdict

__all__ = ["answered_words", "asked_words", "judged_words", "model_words", "passed_words", "verdict_words"]

MARKS = {"passed": "✓", "failed": "✗", "not run": "·"}


def verdict_words(verdict: Verdict) -> str:
    """How many checks held, each check, the message and rule of the one that failed, and what the code printed."""
    wide = max(len(result.name) for result in verdict.results)
    lines = [f"{verdict.task}: {verdict.summary}"]
    for result in verdict.results:
        not_run = " (not run)" if result.state == "not run" else ""
        lines.append(f"  {MARKS[result.state]} {result.name:<{wide}} {result.what}{not_run}")
    if verdict.failure is not None:
        lines += ["", *(f"  {line}" for line in verdict.failure.message.splitlines())]
        lines.append(f"  rule: {verdict.failure.rule}")
    if verdict.printed.strip():
        lines += ["", "  your code printed:", *(f"    {line}" for line in verdict.printed.rstrip().splitlines())]
    if not verdict.passed:
        lines += ["", f"values drawn from seed {verdict.seed}"]
    return "\n".join(lines)


def passed_words(task: Task, own: Tensor | None) -> str:
    """What is told once a task has passed: why it works, and where it is in the walk."""
    lines = ["Why it works", "", task.why, "", f"See it in the walk: inlayer walk --step {task.step}"]
    if own is not None:
        from inlayer.learn.comparison import lay_beside

        lines += ["", "In the walk", f"Yours: {tuple(own.shape)}. {lay_beside(own, task.step).says}"]
    return "\n".join(lines)


def asked_words(asked: Asked) -> str:
    """A question, and how it is answered."""
    if isinstance(asked, ChoiceQuestion):
        return "\n".join([asked.text, "", *(f"  {letter}) {option.text}" for letter, option in lettered(asked))])
    return f"{asked.text}\n\n{answered_words(asked)}"


def answered_words(asked: NumberQuestion | FreeTextQuestion) -> str:
    """How a question without options is answered."""
    if isinstance(asked, NumberQuestion):
        return f"The answer is {asked.form}; it is judged."
    return "No program can judge this one: you compare your answer with a model answer."


def judged_words(asked: NumberQuestion | ChoiceQuestion, judged: AnswerResult) -> str:
    """Right or not, and why; of a choice every option with its reason, once it is right."""
    lines = ["✓ Right." if judged.correct else "✗ Not right.", judged.message]
    if isinstance(asked, ChoiceQuestion) and judged.correct:
        lines += [f"  {letter}) {'✓' if option.correct else '✗'} {option.reason}" for letter, option in lettered(asked)]
    return "\n".join(lines)


def model_words(free: FreeTextQuestion) -> str:
    """The model answer of a question in words, and what to look for in one's own."""
    return "\n".join(["A model answer", free.model_answer, "", *(f"  [ ] {point}" for point in free.points)])


def lettered(choice: ChoiceQuestion) -> list[tuple[str, Option]]:
    return [(chr(ord("a") + number), option) for number, option in enumerate(choice.options)]
