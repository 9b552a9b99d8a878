"""Rendering shared by the terminal and HTML outputs: glyphs for terminals, one style sheet, and one way to fill pages.

facts -> [render] -> terminal, HTML
- render/base.css holds the colors, type, and spacing of every page; each page adds its own layout. render/theme.js and
  render/motion.js implement the switches in the page headers
- a `Page` is one self-contained document (no external requests); all pages share the head in render/head.html
- see also: the content of pages (trace/html.py, web/course.py, training/run_report.py)
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any


@cache
def read_files(package: str, *names: str) -> str:
    return "\n".join(files(package).joinpath(*name.split("/")).read_text(encoding="utf-8") for name in names)


def style_sheet() -> str:
    """Read the style sheet that every HTML page starts with."""
    return read_files("inlayer.render", "base.css")


def settings_script() -> str:
    """Read the scripts behind the switches for theme and motion."""
    return read_files("inlayer.render", "theme.js", "motion.js")


@dataclass(frozen=True)
class Page:
    """One self-contained HTML document: a template, a style sheet, and a script.

    The content security policy allows the style sheet and script by hash, so no text, token, or model name can run as
    code, and nothing can be fetched from elsewhere.
    """

    template: str
    style: str
    script: str

    def policy(self, *served: str) -> str:
        """Build the policy; `served` are rules for a page with a server, whose policy is a header."""
        own = f"script-src '{hash_of(self.script)}'", f"style-src '{hash_of(self.style)}'", "img-src data:"
        return "; ".join(("default-src 'none'", *own, "base-uri 'none'", "form-action 'none'", *served))

    def document(self, title: str, data: Any = None, **parts: str) -> str:
        """Build the document. One with `data` works from disk, so it contains its policy."""
        policy = "" if data is None else f'<meta http-equiv="Content-Security-Policy" content="{self.policy()}">'
        shown = escape(title.encode(errors="replace").decode())
        head = {"policy": policy, "title": shown, "style": self.style}
        parts |= {"head": fill_page(read_files("inlayer.render", "head.html"), head), "title": shown}
        return fill_page(self.template, parts | {"script": self.script, "data": embed_json(data)})


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """Replace each {{name}} of a page in a single pass, so text that contains a placeholder is not changed."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def embed_json(data: Any) -> str:
    """Encode data as JSON that cannot close the script element around it: it escapes brackets and non-ASCII."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_of(text: str) -> str:
    """Hash a script or style sheet for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
