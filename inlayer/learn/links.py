"""Links and pictures in course texts: their targets, for the terminal, the page, and notebooks.

lesson.md, task.md, quiz.md -> render.markdown -> [links] -> front ends
- `walk:5?text=Hi`, `task:gather`, `lesson:forward`, `misconceptions.md#slug`, and https addresses; the rest is text
- pictures become data: addresses, which load nothing and which the page's content security policy allows
Tested in tests/learn/test_links.py.
"""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from inlayer.learn.course import CONTENT
from inlayer.render.markdown import Element, parse, to_elements

LINKS = {  # patterns of addresses, by the kind of their target
    "walk": r"walk:([1-8])(?:\?(.*))?",
    "task": r"task:([a-z0-9_]+)",
    "lesson": r"lesson:([a-z0-9_]+)",
    "misconception": r"misconceptions\.md#([a-z0-9_-]+)",
    "web": r"(https://[^/?#].*)",
}
VERBS = {"task": "next", "lesson": "read", "misconception": "misconceptions"}


@dataclass(frozen=True, kw_only=True)
class CourseLink:
    """The target of a link: a step of the walk, a task, a lesson, a misconception, or a web address."""

    kind: str  # a key of LINKS
    target: str
    texts: tuple[str, ...] = ()

    @property
    def command(self) -> str | None:
        """The command that follows this link, or None for a web address."""
        if self.kind == "walk":
            return f"inlayer walk{''.join(f' {shlex.quote(text)}' for text in self.texts)} --step {self.target}"
        return f"inlayer learn {VERBS[self.kind]} {self.target}" if self.kind in VERBS else None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the page's <a> element."""
        if self.kind == "walk":
            return {"walk": int(self.target), "texts": list(self.texts)}
        return {"href" if self.kind == "web" else self.kind: self.target}


def parse_link(address: str) -> CourseLink | None:
    """Parse an address, or return None if the course has no such kind of link."""
    for kind, pattern in LINKS.items():
        if match := re.fullmatch(pattern, address):
            query = match[2] if kind == "walk" else None
            return CourseLink(kind=kind, target=match[1], texts=tuple(parse_qs(query or "").get("text", [])))
    return None


def link_command(address: str) -> str | None:
    link = parse_link(address)
    return None if link is None else link.command


@cache
def picture_data(address: str) -> str | None:
    """Return a course picture as a data: address, or None if there is no such picture."""
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
    elements = course_elements(text)
    return list(elements[0][2]) if len(elements) == 1 and elements[0][0] == "p" else elements


def _attributes(address: str) -> dict[str, Any] | None:
    link = parse_link(address)
    return None if link is None else link.attributes
