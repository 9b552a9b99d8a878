"""The whole course taken from the terminal: every lesson read, every task wrong and then right, every question asked.

What is typed is worked out from the course itself: the solution after a wrong one, the right letter after a wrong one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from inlayer.cli import main
from inlayer.learn.course import open_course
from inlayer.learn.course_steps import CourseOverview, QuizRun
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, TheoryQuestion

pytestmark = pytest.mark.slow

Learn = Callable[..., tuple[int, str]]


@pytest.fixture
def learn(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Learn:
    """Run `inlayer learn ...` with typed input; returns the exit code and the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, typed: str = "") -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["inlayer", "learn", *arguments])
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(typed.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        assert captured.err == "", (arguments, captured.err)
        return int(stopped.value.code or 0), captured.out

    return run


def letters(choice: ChoiceQuestion) -> tuple[str, str]:
    """A wrong answer and the right one."""
    rights = [option.correct for option in choice.options]
    return "abcdefgh"[rights.index(False)], "abcdefgh"[rights.index(True)]


def answers(asked: TheoryQuestion) -> str:
    """Input for an exercise: nonsense, a wrong answer, then the right one."""
    if isinstance(asked, FreeTextQuestion):
        return "in my own words\n" + "y\n" * len(asked.points)
    if isinstance(asked, ChoiceQuestion):
        return "zz\n" + "\n".join(letters(asked)) + "\n"
    if isinstance(asked.answer, tuple):
        wrong = "({},)".format(", ".join(str(size + 1) for size in asked.answer) or "1")
        return f"what\n{wrong}\n{asked.answer}\n"
    return f"what\n{asked.answer * 2 + 77_777}\n{asked.answer!r}\n"


def quizzed(quiz: QuizRun) -> str:
    """Input for a quiz: the first question is missed, then all answers are right."""
    typed: list[str] = []
    while quiz.question is not None:
        typed.append(letters(quiz.question)[bool(typed)])
        quiz.answer(typed[-1])
    return "\n".join(typed) + "\n"


def test_whole_course_in_the_terminal(learn: Learn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = open_course()
    for module in ("inlayer.learn.service", "inlayer.cli.learn.questions"):
        monkeypatch.setattr(f"{module}.random_seed", lambda: 11)
    taken = []
    while (step := CourseOverview(course, ProgressFile().read()).next_step) is not None:
        taken.append(step.key)
        assert len(taken) == len(set(taken)), f"{step.key} was done and is not done"
        if step.kind == "task":
            code, out = learn("next")
            assert f"Task {step.id}: " in out
            take_task(learn, step.id, tmp_path / "inlayer-course" / f"{step.id}.py")
            continue
        if step.kind == "read":
            typed, says = "", "In the walk:"
        elif step.kind == "exercise":
            asked = course.exercises[step.id].ask(11)
            typed = answers(asked)
            says = "self-assessed" if isinstance(asked, FreeTextQuestion) else "✓ Correct."
        else:
            questions = CourseOverview(course, ProgressFile().read()).quiz(step.lesson)
            typed, says = (
                quizzed(QuizRun(questions, 11)),
                f"Correct on the first try: {len(questions) - 1} of {len(questions)}.",
            )
        code, out = learn("next", typed=typed)
        assert (code, says in out) == (0, True), (step.key, typed, out)
        if step.kind == "exercise" and "✓" in says:
            assert "✗ Incorrect." in out, (step.key, typed, out)
        assert not re.search(r"(walk|task|lesson):\w|misconceptions\.md", out), step.key  # every link became a command
    assert taken == [step.key for step in CourseOverview(course, ProgressFile().read()).steps]
    code, out = learn()
    assert "You have finished the course: every lesson, task, exercise and quiz." in out
    progress = json.loads(learn("progress", "--json")[1])
    progress["counts"]["quiz"]["done"] += progress["due"]  # missed once, so they return in later quizzes
    assert all(one["done"] == one["total"] > 0 for one in progress["counts"].values())
    assert "You have finished the course" in learn("next")[1]


def take_task(learn: Learn, name: str, file: Path) -> None:
    """Take a task: a wrong solution fails by its rule, a hint helps, and the solution passes and is explained."""
    task = open_course().task(name)
    rule, wrong = next(iter(task.wrong.items()))
    assert file.read_text(encoding="utf-8") == task.start
    file.write_text(wrong, encoding="utf-8")
    code, out = learn("check")
    assert (code, f"rule: {rule}\n" in out) == (1, True), out
    counted = re.match(rf"{name}: (\d+) of (\d+) checks passed; .* failed", out)
    assert counted
    assert out.count("  ✓ ") == int(counted[1])
    assert out.count("  ✓ ") + out.count("  ✗ ") + out.count("  · ") == int(counted[2])
    assert "hint 1 of 3" in learn("hint")[1]
    file.write_text(task.solution, encoding="utf-8")
    code, out = learn("check")
    assert (code, out.startswith(f"{name}: {counted[2]} of {counted[2]} checks passed\n")) == (0, True), out
    assert "Why it works\n" in out
