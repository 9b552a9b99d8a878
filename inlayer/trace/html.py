"""The walk as one page: what is in page/ put together into a single document that loads nothing.

text -> bytes -> pieces -> ids -> rows -> (+ positions) -> hidden states, and backwards
- served: the page asks the API of the server it came from; exported: its facts lie inside it, and it works from disk
- the policy names the one script and the one style by their hashes: nothing that came in as text can run, and nothing
  can be fetched from elsewhere, whatever a text, a token or a model's name says
- plain JavaScript in small files, in one scope, in the order below: no build step, nothing to install
- not here: what the facts are (trace/facts.py), which of them an exported page takes along (trace/export.py)
Checked in Chromium in tests/browser/.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["STYLES", "content_security_policy", "hash_of", "page", "read_part"]

STYLES = ("base.css", "parts.css", "figures.css")
SCRIPTS = (
    "dom.js", "format.js", "state.js", "source.js", "grid.js", "changes.js", "sentences.js",
    "steps/text.js", "steps/ids.js", "steps/rows.js", "steps/positions.js", "steps/hidden.js", "steps/backward.js",
    "inspector.js", "formulas.js", "formulas-later.js", "token.js", "questions.js", "predict.js", "birth.js",
    "controls.js", "refused.js", "path.js", "keys.js", "theme.js", "main.js",
)  # fmt: skip


def page(*, title: str, data: dict[str, Any] | None, served: bool) -> str:
    """The whole document; `data` is what an exported page shows, a served one has none."""
    parts = {
        "mode": "served" if served else "exported",
        "policy": "" if served else f'<meta http-equiv="Content-Security-Policy" content="{_policy(served=False)}">',
        "title": escape(title.encode(errors="replace").decode()),
        "style": _style(),
        "script": _script(),
        "data": "null" if data is None else _embed(data),
    }
    # One pass: a title or a text that spells a placeholder stays what it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], read_part("page.html"))


def content_security_policy(*, served: bool) -> str:
    """What the page may do; a served page gets it as a header, an exported one carries it inside."""
    return _policy(served=served)


@cache
def _policy(*, served: bool) -> str:
    rules = [
        "default-src 'none'",
        f"script-src '{hash_of(_script())}'",
        f"style-src '{hash_of(_style())}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if served:
        rules += ["connect-src 'self'", "frame-ancestors 'self'"]  # beside a lesson; it counts only in a header
    return "; ".join(rules)


def _embed(data: dict[str, Any]) -> str:
    """JSON that no text can break out of: every bracket and everything beyond ASCII is written as an escape."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _style() -> str:
    return "\n" + "\n".join(read_part(name) for name in STYLES)


@cache
def _script() -> str:
    return "\n(() => {\n" + '"use strict";\n' + "\n".join(read_part(name) for name in SCRIPTS) + "})();\n"


@cache
def read_part(name: str, room: str = "inlayer.trace") -> str:
    """A file of the page; the course has a page of its own."""
    return files(room).joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """How a policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
