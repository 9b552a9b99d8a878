"""The course: its lessons, tasks and questions, read from the Markdown in content/.

content/LESSON/lesson.md, quiz.md, exercises.py, TASK/task.md -> [course] -> doors
- a document is a title, then lines `key: value` until the first blank one, then text and its `##` sections
- everything is read when it is asked for, and once; nothing here imports torch
- not here: what judges code (grader.py) and answers (asking.py)
Checked, with every file of the course, in tests/learn/test_course.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from inlayer.errors import InputError
from inlayer.learn.content import LESSONS
from inlayer.learn.questions import Exercise, Option, exercises_of
from inlayer.paths import quoted

__all__ = ["Course", "Document", "Lesson", "Question", "Task", "guessed", "open_course", "read_document"]

CONTENT = Path(__file__).parent / "content"
HINTS = ("Hint 1", "Hint 2", "Hint 3")
WHY = "Why it works"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A Markdown file: its title, the `key: value` lines under it, the text, and what stands under each `##`.

    `whole` is text and sections as they stand.
    """

    title: str
    keys: dict[str, str]
    whole: str
    text: str
    sections: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of a quiz; one of its options is right, and each has its reason."""

    id: str
    lesson: str
    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Something to write; `id` is the name of the learner's file, without .py."""

    id: str
    lesson: str
    folder: Path

    @cached_property
    def document(self) -> Document:
        return read_document(self.folder / "task.md")

    @property
    def title(self) -> str:
        return self.document.title

    @property
    def text(self) -> str:
        return self.document.text

    @property
    def step(self) -> int:
        """The step of the walk that it is about."""
        return int(self.document.keys["walk"])

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(self.document.sections[name] for name in HINTS)

    @property
    def why(self) -> str:
        return self.document.sections[WHY]

    @property
    def start(self) -> str:
        return (self.folder / "start.py").read_text(encoding="utf-8")

    @property
    def solution(self) -> str:
        return (self.folder / "solution.py").read_text(encoding="utf-8")

    @property
    def wrong(self) -> dict[str, str]:
        """Wrong solutions by the rule each breaks."""
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("wrong/*.py"))}


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A text, what there is to do for it, and a quiz."""

    id: str
    number: int
    folder: Path

    @cached_property
    def document(self) -> Document:
        return read_document(self.folder / "lesson.md")

    @property
    def title(self) -> str:
        return self.document.title

    @property
    def text(self) -> str:
        """All of it, sections included."""
        return self.document.whole

    @property
    def step(self) -> int:
        """The step of the walk that it is about."""
        return int(self.document.keys["walk"])

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        names = self.document.keys["tasks"].split(", ")
        return tuple(Task(id=name, lesson=self.id, folder=self.folder / name) for name in names)

    @cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        return exercises_of(import_module(f"inlayer.learn.content.{self.id}.exercises"), self.id)

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
    def errata(self) -> Document:
        return read_document(CONTENT / "misconceptions.md")

    def lesson(self, name: str) -> Lesson:
        """A lesson by its number or its id."""
        for lesson in self.lessons:
            if name.strip().lower() in {lesson.id, str(lesson.number)}:
                return lesson
        if (wanted := name.strip().removesuffix(".py")) in self.tasks:
            raise InputError(f"there is no lesson {quoted(name)}: that is a task of {self.tasks[wanted].lesson}")
        named = ", ".join(f"{lesson.number} {lesson.id}" for lesson in self.lessons)
        guess = guessed(name, [lesson.id for lesson in self.lessons])
        raise InputError(f"there is no lesson {quoted(name)}; {guess or f'the lessons are {named}'}")

    def task(self, name: str) -> Task:
        """A task by its id, or by the learner's file."""
        wanted = name.strip().removesuffix(".py")
        if wanted in self.tasks:
            return self.tasks[wanted]
        for lesson in self.lessons:
            if wanted.lower() == lesson.id:
                tasks = ", ".join(task.id for task in lesson.tasks)
                raise InputError(f"there is no task {quoted(name)}: that is a lesson, and its tasks are {tasks}")
        guess = guessed(wanted, self.tasks) or "inlayer learn list LESSON names those of a lesson"
        raise InputError(f"there is no task {quoted(name)}; {guess}")


def guessed(name: str, known: Iterable[str], near: float = 0.6) -> str:
    """Which name was meant, as a question; "" where none is near."""
    found = difflib.get_close_matches(name.strip().lower()[:80], list(known), n=1, cutoff=near)
    return f"did you mean {found[0]}?" if found else ""


@cache
def open_course() -> Course:
    """The course that inlayer carries."""
    lessons = [Lesson(id=name, number=number, folder=CONTENT / name) for number, name in enumerate(LESSONS, start=1)]
    return Course(lessons=tuple(lessons))


def read_document(path: Path) -> Document:
    """Read title, keys, text and sections; a `##` inside a fence is no section."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# "):
        raise InputError(f"{path.name} of {path.parent.name} has no title: its first line is `# Title`")
    end = lines.index("") if "" in lines else len(lines)
    keys = dict(re.split(r":\s+", line, maxsplit=1) for line in lines[1:end])
    text: list[str] = []
    sections: dict[str, str] = {}
    for heading, body in _cut(lines[end:]):
        if heading:
            sections[heading] = body
        else:
            text.append(body)
    return Document(
        title=lines[0][2:].strip(),
        keys=keys,
        whole="\n".join(lines[end + 1 :]) + "\n",
        text="\n".join(text),
        sections=sections,
    )


def read_quiz(path: Path, lesson: str) -> tuple[Question, ...]:
    """Questions under `## id`: text, then `- [x] option` and `- [ ] option`, each with its indented reason."""
    return tuple(_read_question(name, body, lesson) for name, body in read_document(path).sections.items())


def _read_question(name: str, body: str, lesson: str) -> Question:
    text: list[str] = []
    options: list[tuple[bool, str, list[str]]] = []
    for line in body.splitlines():
        if found := re.fullmatch(r"- \[([ x])\] (.*)", line):
            options.append((found[1] == "x", found[2], []))
        elif options and line.startswith("  "):
            options[-1][2].append(line.strip())
        elif options and line.strip():
            raise InputError(f"question {name}: {quoted(line)} is neither an option nor its indented reason")
        elif not options:
            text.append(line)
    made = tuple(Option(text=option, correct=right, reason=" ".join(why)) for right, option, why in options)
    return Question(id=name, lesson=lesson, text="\n".join(text).strip(), options=made)


def _cut(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Pieces of text under their `##` headings; the first one has none."""
    heading, fenced = "", False
    held: list[str] = []
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if line.startswith("## ") and not fenced:
            yield heading, "\n".join(held).strip()
            heading, held = line[3:].strip(), []
        else:
            held.append(line)
    yield heading, "\n".join(held).strip()
