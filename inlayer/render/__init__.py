"""Rendering shared by the terminal and HTML outputs: glyphs for terminals, one style sheet and one way to fill pages.

facts -> [render] -> terminal, HTML
- render/base.css holds the colors, type and spacing of every page; each page adds its own layout
- elsewhere: what a page shows (trace/html.py, learn/html.py, training/report.py)
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["embed_json", "fill_page", "hash_of", "style_sheet"]


@cache
def style_sheet() -> str:
    """Read the style sheet that every HTML page starts with."""
    return files("inlayer.render").joinpath("base.css").read_text(encoding="utf-8")


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """Replace each {{name}} of a page in a single pass, so that a text containing a placeholder is left as it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def embed_json(data: Any) -> str:
    """Encode data as JSON that cannot end its script element: brackets and non-ASCII characters are escaped."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_of(text: str) -> str:
    """Hash a script or style sheet as content security policies write it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
