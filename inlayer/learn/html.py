"""The course page: the files of page/ and the shared parts of the walk page, assembled into one HTML document.

page/ -> [html] -> web -> browser
- colors, style sheets and matrices are shared with the walk page; the editor is CodeMirror, bundled by scripts/editor
- the content security policy lists scripts and the style sheet by hash. The editor creates <style> elements, which a
  nonce in each response allows. Only the walk page of the same server may be framed
- plain JavaScript in small files that share one scope, in the order below; only the editor has a build step
Tested in Chromium in tests/browser/test_learn.py.
"""

from __future__ import annotations

from functools import cache, partial

from inlayer.geometry.map_page import map_files
from inlayer.render import fill_page, hash_of, read_files
from inlayer.trace.html import read_part, shared_style

SHARED_SCRIPTS = ("dom.js", "format.js", "grid.js")
SCRIPTS = (
    "state.js", "server.js", "text.js", "walk_pane.js", "results.js", "task.js", "exercises.js", "quiz.js",
    "lessons.js", "main.js",
)  # fmt: skip
read_own = partial(read_part, package="inlayer.learn")


@cache
def _parts() -> dict[str, str]:
    files = [
        map_files("visible.js"),
        read_files("inlayer.render", "theme.js"),
        *map(read_part, SHARED_SCRIPTS),
        *map(read_own, SCRIPTS),
    ]
    return {
        "style": "\n".join([shared_style(), read_own("learn.css"), read_own("exercises.css")]),
        "editor": read_own("editor.js"),
        "script": "\n(() => {\n" + '"use strict";\n' + "\n".join(files) + "})();\n",
    }


def learn_page(nonce: str) -> str:
    """Return the whole document; the nonce is the one in the response's policy."""
    parts = {"nonce": nonce, **_parts()}
    return fill_page(read_own("learn.html"), parts)


def learn_policy(nonce: str) -> str:
    """Return the content security policy of the page."""
    style, editor, script = (hash_of(_parts()[name]) for name in ("style", "editor", "script"))
    return (
        f"default-src 'none'; script-src '{editor}' '{script}'; style-src '{style}' 'nonce-{nonce}'; img-src data:; "
        "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
