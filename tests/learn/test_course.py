"""The course data: lessons, tasks, exercises and questions are complete, and every link has a target."""

from __future__ import annotations

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from inlayer.errors import InputError
from inlayer.learn.content import LESSONS
from inlayer.learn.course import CONTENT, Lesson, Task, open_course, read_document, read_quiz
from inlayer.learn.links import parse_link, picture_data
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, TheoryQuestion, Value

EACH_LESSON = pytest.mark.parametrize("name", LESSONS)
STEPS = range(1, 9)
DRAWS = 20


def lesson(name: str) -> Lesson:
    return open_course().lesson(name)


# ---- lessons


@EACH_LESSON
def test_lesson_is_complete(name: str) -> None:
    found = lesson(name)
    assert set(found.document.keys) == {"walk", "tasks"}
    assert found.step in STEPS
    assert found.title
    assert len(found.document.sections) >= 3
    assert found.tasks
    assert found.exercises
    assert 3 <= len(found.questions) <= 6
    folders = {path.parent.name for path in found.folder.glob("*/task.md")}
    assert folders == {task.id for task in found.tasks}  # every task folder is listed
    for folder in (found.folder, *(task.folder for task in found.tasks)):
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assert [type(node) for node in tree.body] == [ast.Expr], folder  # a docstring


def test_every_folder_is_a_lesson() -> None:
    assert {path.parent.name for path in CONTENT.glob("*/lesson.md")} == set(LESSONS)


def test_ids_are_unique() -> None:
    lessons = open_course().lessons
    tasks = Counter(task.id for lesson in lessons for task in lesson.tasks)
    exercises = Counter(exercise.id for lesson in lessons for exercise in lesson.exercises)
    questions = Counter(question.id for lesson in lessons for question in lesson.questions)
    for counted in (tasks, exercises, questions):
        assert {name: count for name, count in counted.items() if count > 1} == {}
    for name in (*tasks, *questions):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name


# ---- tasks


@EACH_LESSON
def test_task_is_complete(name: str) -> None:
    for task in lesson(name).tasks:
        assert set(task.document.keys) <= {"walk"}, task.id
        assert task.step in STEPS, task.id
        assert len(task.hints) == 3, task.id
        assert all(map(str.strip, (task.title, task.text, task.explanation, *task.hints))), task.id
        assert len(set(task.hints)) == 3, task.id
        assert set(task.document.sections) == {"Hint 1", "Hint 2", "Hint 3", "Why it works"}, task.id
        assert task.starter != task.solution, task.id
        assert len(task.wrong_solutions) >= 5, task.id
        assert len(set(task.wrong_solutions.values())) == len(task.wrong_solutions), task.id
        for rule in task.wrong_solutions:
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule), f"{task.id}: {rule}"


@EACH_LESSON
def test_checks_are_described(name: str) -> None:
    for task in lesson(name).tasks:
        module = import_module(f"inlayer.learn.content.{name}.{task.id}.check")
        assert module.CHECKS, task.id
        whats = [(check.__doc__ or "").strip() for check in module.CHECKS]
        assert all(whats), task.id
        assert len(set(whats)) == len(whats), task.id
        assert "\n" not in "".join(whats), task.id
        names = [check.__name__ for check in module.CHECKS]
        assert len({*names, "syntax", "runs", "signature"}) == len(names) + 3, (
            task.id
        )  # reserved for the built-in checks
        assert defined(task.starter, module.NAME), f"{task.id}: start.py has no {module.NAME}"
        assert defined(task.solution, module.NAME), f"{task.id}: solution.py has no {module.NAME}"
        assert module.NAME in task.text, f"{task.id}: the text does not name {module.NAME}"


def defined(source: str, name: str) -> bool:
    body = ast.parse(source).body
    return any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name for node in body)


@EACH_LESSON
def test_task_text_does_not_reveal_the_solution(name: str) -> None:
    for task in lesson(name).tasks:
        for line in body_of(task.solution) - body_of(task.starter):
            assert line not in task.text, f"{task.id}: its text holds a line of the solution: {line}"
            assert line not in "\n".join(task.hints[:2]), f"{task.id}: a hint before the last holds {line}"


def body_of(source: str) -> set[str]:
    """Return the longer statements, without imports, signatures and docstrings."""
    lines = {line.strip() for line in source.splitlines()}
    return {line for line in lines if len(line) > 25 and not re.match(r'import |from |def |class |#|"""|raise ', line)}


# ---- exercises


@EACH_LESSON
def test_exercise_accepts_its_own_answer(name: str) -> None:
    for exercise in lesson(name).exercises:
        assert exercise.title, exercise.id
        drawn = [exercise.ask(seed) for seed in range(DRAWS)]
        assert drawn == [exercise.ask(seed) for seed in range(DRAWS)], (
            exercise.id
        )  # the same seed gives the same question
        for seed, asked in enumerate(drawn):
            assert faults(asked) == [], f"{exercise.id}, seed {seed}"
        if not isinstance(drawn[0], FreeTextQuestion):
            assert len({repr(asked) for asked in drawn}) > 1, f"{exercise.id} always asks the same"


def faults(asked: TheoryQuestion) -> list[str]:
    """List the problems of a question."""
    if isinstance(asked, NumberQuestion):
        return list(number_faults(asked))
    if isinstance(asked, ChoiceQuestion):
        return list(choice_faults(asked))
    full = asked.text.strip() and asked.sample_answer.strip() and len(asked.points) >= 2 and all(asked.points)
    return [] if full else ["a part is missing"]


def number_faults(asked: NumberQuestion) -> list[str]:
    found = [] if asked.text.strip() and asked.explanation.strip() else ["a part is missing"]
    texts = (asked.text, asked.explanation, *asked.common_mistakes.values())
    found += [f"not a plural: {text}" for text in texts if re.search(r"(?<![\d.,])1 (byte|row|token|value)s", text)]
    found += [f"{given} is graded as wrong" for given in spellings(asked.answer) if not asked.grade(given).correct]
    for value, why in asked.common_mistakes.items():
        graded = asked.grade(spellings(value)[0])
        if graded.correct:
            found.append(f"near {value} is graded right: the answer is {asked.answer}")
        elif graded.message != why or not why.strip():
            found.append(f"near {value} gets another message: {graded.message}")
    return found


def choice_faults(asked: ChoiceQuestion) -> list[str]:
    found = [] if asked.text.strip() else ["there is no text"]
    if sum(option.correct for option in asked.options) != 1 or len(asked.options) < 2:
        found.append("not one right option")
    if len({option.text for option in asked.options}) != len(asked.options):
        found.append("an option is there twice")
    for number, option in enumerate(asked.options):
        if not option.reason.strip():
            found.append(f"{option.text!r} has no reason")
        if asked.grade(chr(ord("a") + number)).correct != option.correct:
            found.append(f"{option.text!r} is graded the other way")
    return found


def spellings(value: Value) -> list[str]:
    """Return the ways a learner might type a value."""
    if isinstance(value, tuple):
        return [str(value), str(list(value))]
    return [f"{value:,}", repr(value)] if isinstance(value, int) else [repr(value)]


def test_faulty_exercises_are_found() -> None:
    assert faults(NumberQuestion(text="How many?", answer=6, explanation="2 x 3", common_mistakes={5: "added"})) == []
    assert faults(NumberQuestion(text="How many?", answer=6, explanation="", common_mistakes={5: "added"}))
    assert faults(
        NumberQuestion(text="How many?", answer=6, explanation="2 x 3", common_mistakes={6: "by chance the same"})
    )
    assert faults(
        NumberQuestion(
            text="How many?", answer=600, tolerance=0.1, explanation="2 x 300", common_mistakes={610: "too near"}
        )
    )
    option = lesson("forward").questions[0].options[0]
    assert faults(ChoiceQuestion(text="Which?", options=(option, option)))


# ---- quizzes


@EACH_LESSON
def test_question_has_one_correct_option_and_a_reason_for_each(name: str) -> None:
    for question in lesson(name).questions:
        assert choice_faults(ChoiceQuestion(text=question.text, options=question.options)) == [], question.id
        whys = [option.reason for option in question.options]
        assert len(set(whys)) == len(whys), f"{question.id}: two options have the same reason"


def test_malformed_quiz_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "quiz.md"
    path.write_text("# Quiz\n\n## one\nWhich?\n- [ ] a\n  Why not: b\n- [x] b\nnot indented\n", encoding="utf-8")
    with pytest.raises(InputError, match="neither an option nor an indented reason"):
        read_quiz(path, "forward")
    path.write_text("no title\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no title"):
        read_document(path)


# ---- texts


TEXTS = sorted(path.relative_to(CONTENT).as_posix() for path in CONTENT.rglob("*.md"))
EACH_TEXT = pytest.mark.parametrize("text", TEXTS)
MARKDOWN = MarkdownIt("commonmark").enable("table")


def addresses(text: str) -> list[str]:
    """Return the targets of all links and pictures."""
    inside = [token for block in MARKDOWN.parse(text) for token in block.children or ()]
    return [str(token.attrs.get("href") or token.attrs.get("src")) for token in inside if token.attrs]


def is_dead(address: str) -> bool:
    course = open_course()
    link = parse_link(address)
    if link is None:
        return picture_data(address) is None
    known = {"task": course.tasks, "misconception": course.misconceptions.sections}
    if link.kind == "lesson":
        return link.target not in LESSONS
    return link.kind in known and link.target not in known[link.kind]


def prose(text: str) -> str:
    """Remove code blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@EACH_TEXT
def test_links_have_targets(text: str) -> None:
    source = (CONTENT / text).read_text(encoding="utf-8")
    assert [address for address in addresses(source) if is_dead(address)] == []
    assert "docs/" not in source  # an installed package does not have that folder


def test_dead_links_are_found() -> None:
    text = "[a](walk:9) [b](task:none) ![c](pictures/none.svg) [d](walk:5?text=Hi) [e](lesson:forward)"
    text += " [f](misconceptions.md#g)"
    found = [address for address in addresses(text) if is_dead(address)]
    assert found == ["walk:9", "task:none", "pictures/none.svg", "misconceptions.md#g"]


@EACH_TEXT
def test_text_contains_no_html(text: str) -> None:
    blocks = MARKDOWN.parse((CONTENT / text).read_text(encoding="utf-8"))
    tokens = [token for block in blocks for token in (block, *(block.children or ()))]
    assert [token.content for token in tokens if token.type in {"html_block", "html_inline"}] == []
    fences = {token.info.strip() for token in tokens if token.type == "fence"}
    assert fences <= {"python", "text", "formula", "console", "json", ""}
    assert [
        token for token in tokens if token.type == "image" and len(token.content) < 20
    ] == []  # alt texts describe the whole picture


@EACH_TEXT
def test_text_avoids_filler_words(text: str) -> None:
    found = re.findall(r".{0,30}(?:—|\b[Ss]imply\b|\b[Jj]ust\b).{0,30}", prose((CONTENT / text).read_text("utf-8")))
    assert found == []


def test_pictures_are_used_and_valid() -> None:
    used = {address for text in TEXTS for address in addresses((CONTENT / text).read_text(encoding="utf-8"))}
    pictures = {path.relative_to(CONTENT).as_posix() for path in CONTENT.glob("pictures/*")}
    assert pictures == {address for address in used if address.startswith("pictures/")}
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(CONTENT / picture).getroot()
        assert root.tag.endswith("}svg"), picture
        assert "viewBox" in root.attrib, picture
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not names & {"script", "foreignObject", "image"}, picture  # no active or external content


# ---- finding lessons and tasks by name


@pytest.mark.parametrize("given", ["forward", "3", " Forward "])
def test_lesson_is_found_by_name_and_number(given: str) -> None:
    assert open_course().lesson(given).id == "forward"


def test_unknown_names_are_reported() -> None:
    with pytest.raises(InputError, match="unknown lesson 'backward'; the lessons are 1 text, 2 table"):
        open_course().lesson("backward")
    with pytest.raises(InputError, match=r"unknown task 'gathered'; did you mean gather\?"):
        open_course().task("gathered")


def test_task_is_found_by_its_file() -> None:
    found = open_course().task("gather.py")
    assert isinstance(found, Task)
    assert found.id == "gather"
    assert found.lesson == "forward"
