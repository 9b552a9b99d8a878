"""The walk page: the files of page/ assembled into one HTML document that loads nothing.

trace -> [html] -> browser
- a served page calls the API of its server; an exported page contains its data and works from disk
- the content security policy lists the script and the style sheet by hash, so no text, token or model name can run as
  code, and nothing can be fetched from elsewhere
- plain JavaScript in small files that share one scope, in the order below, without a build step
- elsewhere: the facts (trace/facts.py), the data of an exported page (trace/export.py), colors and type (render/)
Tested in Chromium in tests/browser/.
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

from inlayer.render import style_sheet

__all__ = ["content_security_policy", "hash_of", "page", "read_part", "shared_style"]

STYLES = ("layout.css", "parts.css", "figures.css")
SCRIPTS = (
    "dom.js", "format.js", "state.js", "source.js", "grid.js", "changes.js", "effects.js",
    "steps/text.js", "steps/ids.js", "steps/rows.js", "steps/positions.js", "steps/hidden.js", "steps/backward.js",
    "inspector.js", "formulas.js", "formulas-later.js", "token.js", "questions.js", "predict.js", "initialization.js",
    "controls.js", "rejected.js", "steps.js", "keys.js", "theme.js", "main.js",
)  # fmt: skip


def page(*, title: str, data: dict[str, Any] | None, served: bool) -> str:
    """Build the whole document. `data` is the content of an exported page; a served page has none."""
    parts = {
        "mode": "served" if served else "exported",
        "policy": ""
        if served
        else f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy(served=False)}">',
        "title": escape(title.encode(errors="replace").decode()),
        "style": shared_style(),
        "script": _script(),
        "data": "null" if data is None else _embed(data),
    }
    # A single pass, so that a title or text containing a placeholder is left as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read_part("page.html"))


@cache
def content_security_policy(*, served: bool) -> str:
    """Build the page's policy: a header for a served page, a meta element in an exported one."""
    rules = [
        "default-src 'none'",
        f"script-src '{hash_of(_script())}'",
        f"style-src '{hash_of(shared_style())}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if served:
        # The course frames this page next to a lesson. frame-ancestors only works in a header.
        rules += ["connect-src 'self'", "frame-ancestors 'self'"]
    return "; ".join(rules)


def _embed(data: dict[str, Any]) -> str:
    """Encode data as JSON that cannot end its script element: brackets and non-ASCII characters are escaped."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def shared_style() -> str:
    """Join the style sheets of the walk page, which the course page uses too."""
    return "\n" + "\n".join([style_sheet(), *map(read_part, STYLES)])


@cache
def _script() -> str:
    return "\n(() => {\n" + '"use strict";\n' + "\n".join(map(read_part, SCRIPTS)) + "})();\n"


@cache
def read_part(name: str, package: str = "inlayer.trace") -> str:
    """Read a file of a package's page/ folder."""
    return files(package).joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """Hash a script or style sheet as content security policies write it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
