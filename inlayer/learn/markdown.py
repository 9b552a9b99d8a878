"""A text of the course as elements: what the page shows of Markdown.

lesson.md, task.md, quiz.md, exercises.py -> [rendering] -> page
- a tree, not HTML: ["p", {}, ["see ", ["a", {"walk": 5}, ["step 5"]]]]. The page makes each element by hand
  from a list of known ones, so that no text of the course, whoever wrote it, can become a script
- raw HTML stays text; a link leads to a step of the walk, a task, a lesson, a misconception or an https address
- pictures are taken along as data: images, which the policy of the page allows and which load nothing
- Python in a fence is colored by four kinds of word, no more
Checked, with hostile texts, in tests/learn/test_markdown.py.
"""

from __future__ import annotations

import base64
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.lexers.python import PythonLexer
from pygments.token import Token

from inlayer.learn.course import CONTENT

__all__ = ["Node", "render", "render_line"]

Node: TypeAlias = Any  # a string, or [tag, attributes, children]; JSON has no better word for it

PLAIN = {
    "paragraph": "p", "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "blockquote": "blockquote",
    "table": "table", "thead": "thead", "tbody": "tbody", "tr": "tr", "th": "th", "td": "td", "em": "em",
    "strong": "strong", "hr": "hr", "hardbreak": "br",
}  # fmt: skip
FENCES = {"python": "python", "text": "output", "formula": "formula"}
WORDS = ((Token.Comment, "comment"), (Token.String, "string"), (Token.Number, "number"), (Token.Keyword, "keyword"))
WORD = Token.Operator.Word  # and, or, not, in, is
STEPS = 8


@lru_cache(maxsize=1_024)
def render(text: str) -> list[Node]:
    """Markdown as elements; kept, so not to be changed."""
    return _children(SyntaxTreeNode(_parser().parse(text)))


def render_line(text: str) -> list[Node]:
    """One line of Markdown, such as an option of a question, without a paragraph around it."""
    nodes = render(text)
    if len(nodes) == 1 and nodes[0][0] == "p":
        inside: list[Node] = nodes[0][2]
        return inside
    return nodes


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _children(node: SyntaxTreeNode) -> list[Node]:
    made: list[Node] = []
    for child in node.children:
        for one in _nodes(child):
            if one[:2] == ["pre", {"kind": "output"}] and not (made and made[-1][:2] == ["pre", {"kind": "python"}]):
                one[1]["kind"] = "plain"  # a text that nothing printed
            made.append(one)
    return made


def _nodes(node: SyntaxTreeNode) -> list[Node]:
    kind = node.type
    if kind == "text":
        return [node.content] if node.content else []
    if kind == "softbreak":
        return ["\n"]
    if kind == "inline":
        return _children(node)
    if kind == "paragraph" and node.hidden:  # of a list that is tight
        return _children(node)
    if kind == "heading":
        level = min(4, max(2, int(node.tag[1:])))  # the page has its h1
        return [[f"h{level}", {"anchor": _anchor(node)}, _children(node)]]
    if kind == "code_inline":
        return [["code", {}, [node.content]]]
    if kind in {"fence", "code_block"}:
        return [_fence(node.info.strip() if kind == "fence" else "", node.content)]
    if kind == "link":
        return [_link(str(node.attrs.get("href", "")), _children(node))]
    if kind == "image":
        return [_image(str(node.attrs.get("src", "")), _words(node))]
    if kind in PLAIN:
        right = {"align": "right"} if "right" in str(node.attrs.get("style", "")) else {}
        return [[PLAIN[kind], right, _children(node)]]
    return [node.content] if node.content else _children(node)


def _fence(word: str, text: str) -> Node:
    kind = FENCES.get(word, "plain")
    body: list[Node] = _colored(text) if kind == "python" else [text]
    return ["pre", {"kind": kind}, body]


def _colored(text: str) -> list[Node]:
    made: list[Node] = []
    for token, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        word = "keyword" if token is WORD else next((name for kind, name in WORDS if token in kind), None)
        if word is not None and made and made[-1][:2] == ["span", {"word": word}]:
            made[-1][2][0] += value
        elif word is not None:
            made.append(["span", {"word": word}, [value]])
        elif made and isinstance(made[-1], str):
            made[-1] += value
        else:
            made.append(value)
    return made


def _link(address: str, inside: list[Node]) -> Node:
    """Where it leads, in words the page knows; an address it does not know is left out, its text stays."""
    scheme, _, rest = address.partition(":")
    if scheme == "walk" and (found := re.fullmatch(r"(\d)(?:\?(.*))?", rest)) and 1 <= int(found[1]) <= STEPS:
        texts = parse_qs(found[2] or "").get("text", [])
        return ["a", {"walk": int(found[1]), "texts": texts}, inside]
    if found := re.fullmatch(r"misconceptions\.md#([a-z0-9_]+)", address):
        return ["a", {"errata": found[1]}, inside]
    if scheme in {"task", "lesson"} and re.fullmatch(r"[a-z0-9_]+", rest):
        return ["a", {scheme: rest}, inside]
    if scheme == "https" and urlsplit(address).netloc:
        return ["a", {"outside": address}, inside]
    return ["span", {}, inside]


def _image(source: str, alt: str) -> Node:
    found = re.fullmatch(r"pictures/([a-z0-9_]+\.svg)", source)
    picture = _picture(CONTENT / "pictures" / found[1]) if found else None
    return ["span", {"word": "missing"}, [alt]] if picture is None else ["img", {"src": picture, "alt": alt}, []]


@cache
def _picture(path: Path) -> str | None:
    """The picture as an address of its own; scripts do not run in an image."""
    if not path.is_file():
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _anchor(node: SyntaxTreeNode) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", _words(node).lower()).strip("-")


def _words(node: SyntaxTreeNode) -> str:
    return "".join(one.content for one in node.walk() if one.type in {"text", "code_inline"})
