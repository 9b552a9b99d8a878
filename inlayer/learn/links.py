"""Links and pictures in course texts: what they refer to, for the terminal, the page and notebooks.

lesson.md, task.md, quiz.md -> render.markdown -> [links] -> front ends
- `walk:5?text=Hi`, `task:gather`, `lesson:forward`, `misconceptions.md#slug` and https addresses; anything else is text
- pictures become data: addresses, which the page's content security policy allows and which load nothing
Tested in tests/learn/test_links.py.
"""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from inlayer.learn.course import CONTENT
from inlayer.render.markdown import Element, parse, to_elements


@dataclass(frozen=True, kw_only=True)
class CourseLink:
    """The target of a link: a step of the walk, a task, a lesson, a misconception or a web address."""

    kind: str  # "walk", "task", "lesson", "misconception" or "web"
    target: str
    texts: tuple[str, ...] = ()

    @property
    def command(self) -> str | None:
        """The command that follows this link; None for a web address."""
        if self.kind == "walk":
            return f"inlayer walk{''.join(f' {shlex.quote(text)}' for text in self.texts)} --step {self.target}"
        verbs = {"task": "next", "lesson": "read", "misconception": "misconceptions"}
        return f"inlayer learn {verbs[self.kind]} {self.target}" if self.kind in verbs else None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the page's <a> element."""
        if self.kind == "walk":
            return {"walk": int(self.target), "texts": list(self.texts)}
        return {"href" if self.kind == "web" else self.kind: self.target}


def parse_link(address: str) -> CourseLink | None:
    """Parse an address; None if the course has no such kind of link."""
    scheme, _, rest = address.partition(":")
    if scheme == "walk" and (match := re.fullmatch(r"([1-8])(?:\?(.*))?", rest)):
        return CourseLink(kind="walk", target=match[1], texts=tuple(parse_qs(match[2] or "").get("text", [])))
    if scheme in {"task", "lesson"} and re.fullmatch(r"[a-z0-9_]+", rest):
        return CourseLink(kind=scheme, target=rest)
    if match := re.fullmatch(r"misconceptions\.md#([a-z0-9_-]+)", address):
        return CourseLink(kind="misconception", target=match[1])
    if scheme == "https" and urlsplit(address).netloc:
        return CourseLink(kind="web", target=address)
    return None


def link_command(address: str) -> str | None:
    """Return the command that follows a link."""
    link = parse_link(address)
    return None if link is None else link.command


@cache
def picture_data(address: str) -> str | None:
    """Return a picture of the course as a data: address; None if there is no such picture."""
    match = re.fullmatch(r"pictures/([a-z0-9_]+\.svg)", address)
    path = CONTENT / "pictures" / match[1] if match else None
    if path is None or not path.is_file():
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def course_elements(text: str) -> list[Element]:
    """Return a course text as elements for the page."""
    return to_elements(parse(text), _attributes, picture_data)


def course_line(text: str) -> list[Element]:
    """Return one line of a course text, such as an option of a question, without the paragraph around it."""
    nodes = parse(text)
    return to_elements(nodes[0].children if [node.kind for node in nodes] == ["paragraph"] else nodes, _attributes,
                       picture_data)  # fmt: skip


def _attributes(address: str) -> dict[str, Any] | None:
    link = parse_link(address)
    return None if link is None else link.attributes
