"""Collect the "Common misconception" boxes of all lessons into content/misconceptions.md.

python -m scripts.make_misconceptions

- the boxes in the lessons are the only source: edit them there, then run this script
- a box is a block quote that starts with "**Common misconception: ...**" and ends with a link to its entry on the page
Tested in tests/learn/test_misconceptions.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import inlayer
from inlayer.learn.content import LESSONS

CONTENT = Path(inlayer.__file__).parent / "learn" / "content"
PAGE = CONTENT / "misconceptions.md"
BOX = re.compile(r"^> \*\*Common misconception: (.+)\*\*\n((?:^>.*\n)+)", re.MULTILINE)
ENTRY_LINK = re.compile(r"\n+\[All misconceptions\]\(misconceptions\.md#([a-z][a-z0-9_]*)\)\s*$")
INTRODUCTION = """# Common misconceptions

This page lists the "Common misconception" boxes of all lessons. Each entry states a belief that is wrong or incomplete,
explains what is true, and proves it: the code runs on its own, offline, and within seconds, and prints the output shown
below it.
"""


def boxes(lesson: str) -> Iterator[tuple[str, str, str]]:
    """Yield the slug, the belief and the text of every box in a lesson."""
    for box in BOX.finditer((CONTENT / lesson / "lesson.md").read_text(encoding="utf-8")):
        body = re.sub(r"^> ?", "", box[2], flags=re.MULTILINE)
        link = ENTRY_LINK.search(body)
        if link is None:
            raise ValueError(f"{lesson}/lesson.md: the box {box[1]!r} does not end with a link to misconceptions.md")
        yield link[1], box[1], body[: link.start()].strip()


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [INTRODUCTION]
    for lesson in LESSONS:
        title = (CONTENT / lesson / "lesson.md").read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        for slug, belief, body in boxes(lesson):
            parts.append(
                f"## {slug}\n\n**Common misconception: {belief}**\n\n{body}\n\nLesson: [{title}](lesson:{lesson})\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {page().count(chr(10) + '## ')} entries")
