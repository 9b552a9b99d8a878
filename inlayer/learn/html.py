"""The course as a page: what is in page/, and what it shares with the walk's page, put together into one document.

rendering, grader -> web -> [html] -> browser
- the walk's colors, parts and matrices, so that the two read as one; the editor is CodeMirror,
  bundled by scripts/editor
- the policy names the scripts and the style by their hashes; the editor makes <style> elements, which a nonce of each
  answer lets through. Only the walk of this very server may stand in a frame
- plain JavaScript in small files, in one scope, in the order below; only the editor is built, and committed as built
Checked in Chromium in tests/browser/test_learn.py.
"""

from __future__ import annotations

import re
from functools import cache

from inlayer.trace.html import hash_of, read_part, shared_style

__all__ = ["learn_page", "learn_policy"]

ROOM = "inlayer.learn"
STYLES = ("learn.css", "doing.css")
SHARED_SCRIPTS = ("dom.js", "format.js", "grid.js", "theme.js")
SCRIPTS = (
    "state.js", "server.js", "text.js", "walk_pane.js", "results.js", "task.js", "exercises.js", "quiz.js",
    "lessons.js",
    "main.js",
)  # fmt: skip


def learn_page(nonce: str) -> str:
    """The whole document; the nonce is that of the answer's policy."""
    parts = {"nonce": nonce, "style": _style(), "editor": _editor(), "script": _script()}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], read_part("learn.html", ROOM))


def learn_policy(nonce: str) -> str:
    """What the page may do."""
    return f"{_rules()}; style-src '{hash_of(_style())}' 'nonce-{nonce}'"


@cache
def _rules() -> str:
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{hash_of(_editor())}' '{hash_of(_script())}'",
            "img-src data:",
            "connect-src 'self'",
            "frame-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


@cache
def _style() -> str:
    return "\n".join([shared_style(), *(read_part(name, ROOM) for name in STYLES)])


@cache
def _script() -> str:
    files = [*(read_part(name) for name in SHARED_SCRIPTS), *(read_part(name, ROOM) for name in SCRIPTS)]
    return "\n(() => {\n" + '"use strict";\n' + "\n".join(files) + "})();\n"


@cache
def _editor() -> str:
    return read_part("editor.js", ROOM)
