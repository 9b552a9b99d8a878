"""Rendering shared by the terminal and HTML outputs: glyphs for terminals, one style sheet for pages.

facts -> [render] -> terminal, HTML
- render/base.css holds the colors, type and spacing of every page; each page adds its own layout
- elsewhere: what a page shows (trace/html.py, learn/html.py, training/report/)
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["style_sheet"]


@cache
def style_sheet() -> str:
    """Read the style sheet that every HTML page starts with."""
    return files("inlayer.render").joinpath("base.css").read_text(encoding="utf-8")
