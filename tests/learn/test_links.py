"""Texts of the course as elements for the page: complete, and never active content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from inlayer.learn.course import CONTENT, Lesson, open_course
from inlayer.learn.links import course_elements, course_line, link_command
from inlayer.learn.questions import ChoiceQuestion
from inlayer.learn.terminal import CoursePrinter
from inlayer.render.markdown import parse, print_markdown, to_notebook

TAGS = {
    "p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "hr", "br",
    "code", "h2", "h3", "h4", "pre", "a", "img", "span", "aside",
}  # fmt: skip
ATTRIBUTES = {
    "anchor", "kind", "word", "walk", "texts", "task", "lesson", "misconception", "href", "src", "alt", "align",
}  # fmt: skip


def elements(nodes: list[Any]) -> Iterator[list[Any]]:
    for node in nodes:
        if not isinstance(node, str):
            yield node
            yield from elements(node[2])


def words(nodes: list[Any]) -> str:
    return "".join(node if isinstance(node, str) else words(node[2]) for node in nodes)


def every_text() -> Iterator[tuple[str, str]]:
    course = open_course()
    yield "misconceptions", course.misconceptions.body
    for lesson in course.lessons:
        yield lesson.id, lesson.text
        for task in lesson.tasks:
            yield task.id, "\n\n".join([task.text, *task.hints, task.explanation])
        for exercise in lesson.exercises:
            asked = exercise.ask(0)
            yield exercise.id, asked.text
            if isinstance(asked, ChoiceQuestion):
                yield from ((f"{exercise.id} options", option.text) for option in asked.options)
        for question in lesson.questions:
            yield question.id, question.text


@pytest.mark.parametrize("lesson", open_course().lessons, ids=lambda lesson: lesson.id)
def test_commands_of_links_are_on_their_own_lines(lesson: Lesson) -> None:
    """A sentence reads the same with and without its links, in the terminal and in notebooks.

    The commands are at the end of a section, each once per lesson.
    """
    stream = StringIO()
    print_markdown(Console(file=stream, width=5_000), parse(lesson.text), link_command)
    shown = stream.getvalue()
    linked = [node for node in parse(lesson.text) if node.kind == "paragraph" and node.links]
    assert linked
    assert all(f"{node.plain}\n" in shown for node in linked)
    commands = {link_command(address) for node in linked for address, _ in node.links} - {None}
    assert commands
    for command in commands:
        assert len(re.findall(rf"^  {re.escape(str(command))}(?: +# .+)?$", shown, re.MULTILINE)) == 1
    ends = re.findall(r"^  inlayer .+\n\n(.*)", shown, re.MULTILINE)
    assert {*ends} <= {node.plain for node in parse(lesson.text) if node.kind == "heading"} | {""}
    assert not re.search(r":\n+  inlayer", shown)
    parts = list(to_notebook(lesson.text, lambda _, text, __: text, link_command))
    assert all(any(f"`{command}`" in part.text for part in parts) for command in commands)
    for part in parts:
        assert not re.search(r":\n\n`inlayer", part.text)
        for command in commands if part.kind == "text" else ():
            assert part.text.count(f"{command}") == f"\n\n{part.text}".count(f"\n\n`{command}`")


def test_a_lesson_names_the_command_for_all_misconceptions_once() -> None:
    for lesson in open_course().lessons:
        stream = StringIO()
        CoursePrinter(Console(file=stream)).lesson(lesson)
        n_boxes = lesson.text.count("[All misconceptions]")
        assert stream.getvalue().lower().count("all misconceptions") == min(n_boxes, 1), lesson.id
        assert stream.getvalue().count("inlayer learn misconceptions\n") == min(n_boxes, 1), lesson.id


def test_every_course_text_has_valid_elements() -> None:
    """Only known elements; every link and picture has a target; no Markdown is left over."""
    course = open_course()
    seen = 0
    for name, text in every_text():
        nodes = course_elements(text)
        json.dumps(nodes)
        for tag, attributes, _ in elements(nodes):
            assert tag in TAGS, name
            assert set(attributes) <= ATTRIBUTES, name
            assert attributes.get("word") != "missing", f"{name}: no picture for {words(nodes)[:80]}"
            assert attributes.get("task", "gather") in course.tasks, name
            assert attributes.get("lesson", "text") in {lesson.id for lesson in course.lessons}, name
            assert attributes.get("misconception", "init_std") in course.misconceptions.sections, (name, attributes)
            seen += 1
        assert "](" not in words(nodes), f"{name}: a link that is none"
    assert seen > 1_000


def test_elements_of_basic_markdown() -> None:
    assert course_elements("a *b* `c` **d**") == [
        ["p", {}, ["a ", ["em", {}, ["b"]], " ", ["code", {}, ["c"]], " ", ["strong", {}, ["d"]]]]
    ]
    assert course_line("one `two`") == ["one ", ["code", {}, ["two"]]]
    assert course_elements("# Title\n\n###### deep") == [
        ["h2", {"anchor": "title"}, ["Title"]],
        ["h4", {"anchor": "deep"}, ["deep"]],
    ]
    assert course_elements("- a\n- b") == [["ul", {}, [["li", {}, ["a"]], ["li", {}, ["b"]]]]]
    table = course_elements("| a | b |\n|---|--:|\n| 1 | 2 |")
    assert [node[1] for node in elements(table) if node[0] == "td"] == [{}, {"align": "right"}]


def test_fences() -> None:
    code = course_elements(
        "```python\nx = 1  # one\n```\n\n```text\n1\n```\n\ntext\n\n```text\n2\n```\n\n```formula\na = b\n```"
    )
    assert [node[1]["kind"] for node in code if node[0] == "pre"] == ["python", "output", "plain", "formula"]
    assert words(code[:1]) == "x = 1  # one\n"
    assert {node[1]["word"] for node in elements(code) if node[0] == "span"} == {"number", "comment"}


@pytest.mark.parametrize(
    ("address", "attributes"),
    [
        ("walk:5", {"walk": 5, "texts": []}),
        ("walk:5?text=Hi%20there&text=x", {"walk": 5, "texts": ["Hi there", "x"]}),
        ("task:gather", {"task": "gather"}),
        ("lesson:forward", {"lesson": "forward"}),
        ("misconceptions.md#init_std", {"misconception": "init_std"}),
        ("https://example.test/x", {"href": "https://example.test/x"}),
        ("walk:9", None), ("walk:0", None), ("walk:x", None), ("task:../x", None), ("lesson:", None),
        ("http://example.test", None), ("https:x", None), ("//example.test", None), ("/etc/passwd", None),
        ("ftp://x", None), ("mailto:x", None), ("blob:x", None), ("filesystem:x", None),
    ],
)  # fmt: skip
def test_links_have_known_targets_or_none(address: str, attributes: dict[str, Any] | None) -> None:
    (node,) = course_line(f"[text]({address})")
    assert node == (["span", {}, ["text"]] if attributes is None else ["a", attributes, ["text"]])


def test_hostile_markdown_stays_text() -> None:
    hostile = "<script>x</script> <img src=x onerror=y> [a](javascript:x) [b](data:text/html,x) <javascript:x>\0\ud800"
    nodes = course_elements(hostile)
    assert {node[0] for node in elements(nodes)} <= {"p", "span"}
    assert "<script>x</script>" in words(nodes)
    for source in ("pictures/../quiz.md", "../x.svg", "/etc/passwd", "https://x/y.svg", "pictures/no_such.svg"):
        (node,) = course_line(f"![words]({source})")
        assert node == ["span", {"word": "missing"}, ["words"]]


def test_pictures_become_data_addresses() -> None:
    picture = min(CONTENT.glob("pictures/*.svg"))
    (node,) = course_line(f"![words](pictures/{picture.name})")
    assert node[1]["src"].startswith("data:image/svg+xml;base64,")
    assert node[1]["alt"] == "words"
