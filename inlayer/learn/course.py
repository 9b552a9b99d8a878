"""The course: lessons, tasks, and quiz questions, loaded from the files in content/.

content/LESSON/lesson.md, quiz.md, exercises.py, TASK/task.md -> [course] -> service
- a document is a title, then `key: value` lines up to the first blank line, then text with `##` sections
- files are read on first use; this module does not import torch
- see also: grading code (grader.py) and answers (questions.py)
Tested, with every file of the course, in tests/learn/test_course.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from inlayer.errors import InputError
from inlayer.files import quote
from inlayer.learn.content import LESSONS
from inlayer.learn.questions import Exercise, Option, Question
from inlayer.render.markdown import parse

CONTENT = Path(__file__).parent / "content"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A Markdown file: title, `key: value` lines, and a body of text and `##` sections."""

    title: str
    keys: dict[str, str]
    body: str

    @cached_property
    def _parts(self) -> list[tuple[str, str]]:
        """Return the text under each `##` heading; the part before the first heading has the heading ""."""
        lines = self.body.splitlines()
        starts = [node.lines[0] for node in parse(self.body) if node.kind == "heading" and node.level == 2]
        parts = [("", "\n".join(lines[: starts[0] if starts else None]).strip())]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            parts.append((lines[start].strip("# "), "\n".join(lines[start + 1 : end]).strip()))
        return parts

    @property
    def text(self) -> str:
        return self._parts[0][1]

    @property
    def sections(self) -> dict[str, str]:
        return dict(self._parts[1:])


@dataclass(frozen=True, kw_only=True)
class CoursePart:
    """A lesson or task: a folder with a document."""

    id: str
    folder: Path

    @cached_property
    def document(self) -> Document:
        return read_document(self.folder / f"{type(self).__name__.lower()}.md")

    @property
    def title(self) -> str:
        return self.document.title

    @property
    def text(self) -> str:
        """The text a learner reads first, without hints and other sections."""
        return self.document.text

    @property
    def step(self) -> int:
        """The step of `inlayer walk` that shows this topic."""
        return int(self.document.keys["walk"])


@dataclass(frozen=True, kw_only=True)
class Task(CoursePart):
    """A coding task; the learner's file is named `id`.py."""

    lesson: str

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(self.document.sections[name] for name in ("Hint 1", "Hint 2", "Hint 3"))

    @property
    def explanation(self) -> str:
        return self.document.sections["Why it works"]

    @property
    def starter(self) -> str:
        return (self.folder / "start.py").read_text(encoding="utf-8")

    @property
    def solution(self) -> str:
        return (self.folder / "solution.py").read_text(encoding="utf-8")

    @property
    def wrong_solutions(self) -> dict[str, str]:
        """Wrong solutions, by the rule that they break."""
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("wrong/*.py"))}


@dataclass(frozen=True, kw_only=True)
class Lesson(CoursePart):
    """A text with its tasks, exercises, and quiz."""

    number: int

    @property
    def text(self) -> str:
        """The whole text, including its sections."""
        return self.document.body

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        names = self.document.keys["tasks"].split(", ")
        return tuple(Task(id=name, lesson=self.id, folder=self.folder / name) for name in names)

    @cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        functions = import_module(f"inlayer.learn.content.{self.id}.exercises").EXERCISES
        return tuple(
            Exercise(id=f"{self.id}/{draw.__name__}", lesson=self.id, title=draw.__doc__.splitlines()[0], draw=draw)
            for draw in functions
        )

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        return read_quiz(self.folder / "quiz.md", self.id)


@dataclass(frozen=True, kw_only=True)
class Course:
    lessons: tuple[Lesson, ...]

    @cached_property
    def tasks(self) -> dict[str, Task]:
        return {task.id: task for lesson in self.lessons for task in lesson.tasks}

    @cached_property
    def exercises(self) -> dict[str, Exercise]:
        return {exercise.id: exercise for lesson in self.lessons for exercise in lesson.exercises}

    @cached_property
    def questions(self) -> dict[str, Question]:
        return {question.id: question for lesson in self.lessons for question in lesson.questions}

    @cached_property
    def misconceptions(self) -> Document:
        return read_document(CONTENT / "misconceptions.md")

    def lesson(self, name: str) -> Lesson:
        """Find a lesson by number or id."""
        for lesson in self.lessons:
            if name.strip().lower() in {lesson.id, str(lesson.number)}:
                return lesson
        listed = ", ".join(f"{lesson.number} {lesson.id}" for lesson in self.lessons)
        raise not_found_error("lesson", name, [lesson.id for lesson in self.lessons], f"the lessons are {listed}")

    def task(self, name: str) -> Task:
        """Find a task by id or by the name of its file."""
        task_id = name.strip().removesuffix(".py")
        if task_id in self.tasks:
            return self.tasks[task_id]
        raise not_found_error("task", task_id, self.tasks, "to list the tasks of a lesson: inlayer learn list LESSON")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a "did you mean" question for the closest known name, or "" if none is close."""
    cutoff = 0.8 if "/" in name else 0.6
    matches = difflib.get_close_matches(name.strip().lower()[:80], list(known), n=1, cutoff=cutoff)
    return f"did you mean {matches[0]}?" if matches else ""


def not_found_error(kind: str, name: str, known: Iterable[str], fallback: str) -> InputError:
    """Return the error for an unknown name, which suggests a close name or ends with `fallback`."""
    return InputError(f"unknown {kind} {quote(name)}; {suggest(name, known) or fallback}")


@cache
def open_course() -> Course:
    lessons = [Lesson(id=name, number=number, folder=CONTENT / name) for number, name in enumerate(LESSONS, start=1)]
    return Course(lessons=tuple(lessons))


def read_document(path: Path) -> Document:
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# "):
        raise InputError(f"{path.name} of {path.parent.name} has no title; its first line must be `# Title`")
    end = lines.index("") if "" in lines else len(lines)
    keys = dict(re.split(r":\s+", line, maxsplit=1) for line in lines[1:end])
    return Document(title=lines[0][2:].strip(), keys=keys, body="\n".join(lines[end + 1 :]) + "\n")


def read_quiz(path: Path, lesson: str) -> tuple[Question, ...]:
    """Read questions: `## id`, text, then `- [x] option` and `- [ ] option`, each with an indented reason."""
    return tuple(_read_question(name, body, lesson) for name, body in read_document(path).sections.items())


def _read_question(name: str, body: str, lesson: str) -> Question:
    text, *parts = re.split(r"^- \[([ x])\] ", body, flags=re.MULTILINE)
    options = []
    for mark, part in zip(parts[::2], parts[1::2], strict=True):
        option, *reason = filter(str.strip, part.splitlines())
        for line in reason:
            if not line.startswith("  "):
                raise InputError(f"question {name}: {quote(line)} is neither an option nor an indented reason")
        options.append(Option(text=option, correct=mark == "x", reason=" ".join(map(str.strip, reason))))
    return Question(id=name, lesson=lesson, text=text.strip(), options=tuple(options))
