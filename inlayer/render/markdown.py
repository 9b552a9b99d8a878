"""Markdown as a small tree, with renderers for the terminal, the web page, and notebooks.

Markdown text -> [parse] -> MarkdownNode tree -> elements (page), rich renderables (terminal), cells (notebook)
- markdown-it parses each text once (CommonMark and tables); raw HTML stays text
- a quote that starts with `**Common misconception: ...**` is a callout: between rules in the terminal, an <aside>
  on the page, and a quote in a notebook
- the page gets nested lists, ["p", {}, ["text"]], and creates each element itself, so no text can become a script
- see also: the targets of links and pictures (learn/links.py), which are passed in as functions
Tested with malicious texts in tests/learn/test_links.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.lexers.python import PythonLexer
from pygments.token import Token
from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

Element: TypeAlias = Any  # a string, or [tag, attributes, children]
LinkCommand: TypeAlias = Callable[[str], "str | None"]  # the command for an address
LinkAttributes: TypeAlias = Callable[[str], "dict[str, Any] | None"]

PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
CALLOUT = re.compile(r"Common misconception: (.*)", re.DOTALL)
FENCES = {"python": "python", "text": "output", "formula": "formula"}
TAGS = {
    "paragraph": "p", "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "blockquote": "blockquote",
    "table": "table", "thead": "thead", "tbody": "tbody", "tr": "tr", "th": "th", "td": "td", "em": "em",
    "strong": "strong", "hr": "hr", "hardbreak": "br",
}  # fmt: skip
BLOCKS = {"paragraph", "bullet_list", "ordered_list", "fence", "blockquote", "callout", "table"}
INLINE_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class MarkdownNode:
    """One element of a document: a block, or a part of a line."""

    kind: str  # markdown-it's name, or "fence" with `info`, or "callout" with `text` as its title
    children: tuple[MarkdownNode, ...] = ()
    text: str = ""
    info: str = ""  # language of a fence, address of a link or picture, alignment of a table cell
    level: int = 0  # level of a heading
    lines: tuple[int, int] = (0, 0)  # first and last line in the source

    @property
    def plain(self) -> str:
        """The text of this node and everything inside it."""
        if self.kind in {"softbreak", "hardbreak"}:
            return " "
        return self.text + "".join(child.plain for child in self.children)

    @property
    def links(self) -> list[tuple[str, str]]:
        """The addresses of all links in this node, each with the words of the link."""
        own = [(self.info, " ".join(self.plain.split()))] if self.kind == "link" else []
        return own + [link for child in self.children for link in child.links]


@lru_cache(maxsize=1_024)
def parse(text: str) -> tuple[MarkdownNode, ...]:
    return _convert_children(SyntaxTreeNode(PARSER.parse(text)))


def _convert_children(node: SyntaxTreeNode) -> tuple[MarkdownNode, ...]:
    nodes: list[MarkdownNode] = []
    for child in node.children:
        if child.type == "text" and not child.content:
            continue
        if child.type == "inline" or (child.type == "paragraph" and child.hidden):  # a tight list hides paragraphs
            nodes += _convert_children(child)
            continue
        converted = _convert(child)
        after_python = nodes and (nodes[-1].kind, nodes[-1].info) == ("fence", "python")
        if (converted.kind, converted.info) == ("fence", "output") and not after_python:
            converted = replace(converted, info="plain")  # a text fence that is not printed output
        nodes.append(converted)
    return tuple(nodes)


def _convert(node: SyntaxTreeNode) -> MarkdownNode:
    kind, children = node.type, _convert_children(node)
    lines = (node.map[0], node.map[1]) if node.map else (0, 0)
    if kind == "blockquote" and children and children[0].kind == "paragraph" and children[0].children:
        first, *rest = children[0].children
        if first.kind == "strong" and (title := CALLOUT.fullmatch(first.plain)):
            while rest and rest[0].kind == "softbreak":
                del rest[0]
            intro = (replace(children[0], children=tuple(rest)),) if rest else ()
            return MarkdownNode(kind="callout", text=title[1], children=(*intro, *children[1:]), lines=lines)
    if kind in {"fence", "code_block"}:
        info = FENCES.get(node.info.strip(), "plain") if kind == "fence" else "plain"
        return MarkdownNode(kind="fence", info=info, text=node.content, lines=lines)
    info = str(node.attrs.get({"link": "href", "image": "src", "th": "style", "td": "style"}.get(kind, ""), ""))
    text, level = "" if children else node.content, int(node.tag[1:]) if kind == "heading" else 0
    return MarkdownNode(kind=kind, children=children, text=text, info=info, level=level, lines=lines)


# ---- for the web page


def to_elements(
    nodes: tuple[MarkdownNode, ...], link: LinkAttributes, picture: Callable[[str], str | None]
) -> list[Element]:
    """Convert nodes; `link` returns the attributes of an <a>, `picture` a data: address; None shows only the text."""
    return [element for node in nodes for element in _elements(node, link, picture)]


def _elements(node: MarkdownNode, link: LinkAttributes, picture: Callable[[str], str | None]) -> list[Element]:
    inside = to_elements(node.children, link, picture)
    if node.kind == "softbreak":
        return ["\n"]
    if node.kind == "heading":  # the page has its own h1
        anchor = re.sub(r"[^a-z0-9_]+", "-", node.plain.lower()).strip("-")
        return [[f"h{min(4, max(2, node.level))}", {"anchor": anchor}, inside]]
    if node.kind == "code_inline":
        return [["code", {}, [node.text]]]
    if node.kind == "fence":
        return [["pre", {"kind": node.info}, _highlight(node.text) if node.info == "python" else [node.text]]]
    if node.kind == "callout":
        return [["aside", {}, [["p", {}, [["strong", {}, [f"Common misconception: {node.text}"]]]], *inside]]]
    if node.kind == "link":
        attributes = link(node.info)
        return [["span", {}, inside] if attributes is None else ["a", attributes, inside]]
    if node.kind == "image":
        source, alt = picture(node.info), node.plain
        return [["span", {"word": "missing"}, [alt]] if source is None else ["img", {"src": source, "alt": alt}, []]]
    if node.kind in TAGS:
        return [[TAGS[node.kind], {"align": "right"} if "right" in node.info else {}, inside]]
    return [node.text] if node.text else inside


def _highlight(text: str) -> list[Element]:
    """Color Python by four kinds of word; everything else stays plain text."""
    kinds = {
        Token.Comment: "comment", Token.String: "string", Token.Number: "number", Token.Keyword: "keyword",
        Token.Operator.Word: "keyword",  # and, or, not, in, is
    }  # fmt: skip
    tokens = PythonLexer(stripnl=False, ensurenl=False).get_tokens(text)
    words = groupby(tokens, lambda token: next((name for kind, name in kinds.items() if token[0] in kind), None))
    joined = [(word, "".join(value for _, value in group)) for word, group in words]
    return [value if word is None else ["span", {"word": word}, [value]] for word, value in joined]


# ---- for the terminal


def print_markdown(console: Console, nodes: tuple[MarkdownNode, ...], command: LinkCommand) -> None:
    """Print nodes and, at the end of each section, the commands for its links, each on a separate line.

    A comment after a command repeats the link's words, so it is clear which link the command belongs to.
    """
    before = ""
    for node, commands in _with_commands(nodes, command):
        if node.kind == "fence":
            print_fence(console, node)
        elif node.kind == "callout":  # between rules, because a panel would wrap its code
            if before != "callout":
                console.print(Rule(style="yellow"))
            console.print(Text(f"Common misconception: {' '.join(node.text.split())}\n", style="bold"))
            print_markdown(console, node.children, lambda _: None)  # the commands for its links come after it
            console.print(Rule(style="yellow"))
        else:
            console.print(_renderable(node))
        before = node.kind
        own = {command(address) for address, _ in node.links}
        if commands and (node.kind == "fence" or not commands.keys() <= own):
            console.print()
        widest = max(map(len, commands), default=0)
        for typed, words in commands.items():
            line = Text(f"  {typed}", style="cyan")
            if words not in typed:
                line.append(f"{' ' * (widest - len(typed))}  # {words}", style="dim")
                line.truncate(max(console.width, widest + 2), overflow="ellipsis")
            console.print(line, soft_wrap=True)
        console.print()


def _with_commands(
    nodes: tuple[MarkdownNode, ...], command: LinkCommand
) -> Iterator[tuple[MarkdownNode, dict[str, str]]]:
    """Yield each node with the commands to show after it: at the end of a section, each command once per text."""
    commands: dict[str, str] = {}  # command -> words of its link
    n_shown = 0
    for node, after in zip(nodes, (*nodes[1:], None), strict=True):
        for address, words in node.links:
            if typed := command(address):
                commands.setdefault(typed, words)
        is_end = after is None or after.kind == "heading"
        yield node, dict(islice(commands.items(), n_shown, None)) if is_end else {}
        n_shown = len(commands) if is_end else n_shown


def print_fence(console: Console, node: MarkdownNode) -> None:
    """Print code without wrapping its lines, so they can be copied."""
    for line in _fence_text(node).split("\n", allow_blank=True):
        console.print(line if not line.plain.strip() else Text("    ").append_text(line), soft_wrap=True)


def _fence_text(node: MarkdownNode) -> Text:
    """Return code as one text, in color if it is Python."""
    if node.info != "python":
        return Text(node.text.rstrip("\n"), style="bold" if node.info == "formula" else "dim")
    highlighted = Syntax("", "python", theme="ansi_dark", word_wrap=True).highlight(node.text)  # not cut in a box
    highlighted.rstrip()
    return highlighted


def inline_text(nodes: tuple[MarkdownNode, ...], style: str = "") -> Text:
    """Return the inline content of a paragraph as one styled text."""
    styles = {"strong": "bold", "em": "italic", "code_inline": "bold cyan", "link": "underline"}
    result = Text(style=style)
    for node in nodes:
        if node.kind in {"softbreak", "hardbreak"}:
            result.append(" " if node.kind == "softbreak" else "\n")
        elif node.children:
            result.append_text(inline_text(node.children, styles.get(node.kind, "")))
        else:
            result.append(node.text, style=styles.get(node.kind, ""))
    return result


def _renderable(node: MarkdownNode, style: str = "") -> RenderableType:
    if node.kind == "image" or [child.kind for child in node.children] == ["image"]:
        return Panel(Text(" ".join(node.plain.split())), title="picture", title_align="left", border_style="dim")
    if node.kind == "fence":
        return Padding(_fence_text(node), (0, 0, 0, 2), expand=False)
    if node.kind == "blockquote":
        return Padding(Group(*(_renderable(child, "dim") for child in node.children)), (0, 0, 0, 2))
    if node.kind in {"bullet_list", "ordered_list"}:
        grid = Table.grid(padding=(0, 1))
        for number, item in enumerate(node.children, start=1):  # lines of text, then nested blocks
            line = tuple(child for child in item.children if child.kind not in BLOCKS)
            blocks = [_renderable(child) for child in item.children if child.kind in BLOCKS]
            content = Group(*([inline_text(line)] if line else []), *blocks)
            grid.add_row(" •" if node.kind == "bullet_list" else f" {number}.", content)
        return grid
    if node.kind == "table":
        return _table(node)
    if node.kind == "hr":
        return Text("─" * 20, style="dim")
    return inline_text(node.children, "bold" if node.kind == "heading" else style)


def _table(node: MarkdownNode) -> RenderableType:
    table = Table(box=SIMPLE, pad_edge=False, header_style="bold", show_edge=False)
    head, *rows = [row.children for section in node.children for row in section.children]
    for cell in head:
        table.add_column(inline_text(cell.children), justify="right" if "right" in cell.info else "left")
    for row in rows:
        table.add_row(*(inline_text(cell.children) for cell in row))
    return table


# ---- for notebooks


@dataclass(frozen=True, kw_only=True)
class NotebookPart:
    """Part of a document: Markdown text, or Python code with its output."""

    kind: str  # "text" or "python"
    text: str
    output: str | None = None


def to_notebook(
    text: str, rewrite: Callable[[bool, str, str], str], command: Callable[[str], str | None], *, split: bool = True
) -> Iterator[NotebookPart]:
    """Split a document at its Python fences.

    `rewrite(is_picture, text, address)` replaces each link and picture; `command(address)` is printed below the text.
    """
    source, pending = text.splitlines(), list[str]()
    nodes = parse(text)
    end = 0
    for index, (node, commands) in enumerate(_with_commands(nodes, command)):
        if split and node.kind == "fence" and node.info == "python":
            if pending:
                yield NotebookPart(kind="text", text="\n\n".join(pending))
            output = next((after.text for after in nodes[index + 1 : index + 2] if after.info == "output"), None)
            yield NotebookPart(kind="python", text=node.text.rstrip("\n"), output=output)
            pending = []
        elif not (split and node.info == "output"):
            lines = "\n".join(source[max(end, node.lines[0]) : node.lines[1]]).rstrip("\n")
            if node.kind == "fence":
                pending.append(lines.replace("```formula", "```text", 1))
            else:
                pending.append(INLINE_LINK.sub(lambda match: rewrite(match[1] == "!", match[2], match[3]), lines))
        pending += [f"`{typed}`" for typed in commands]
        end = node.lines[1]
    if pending:
        yield NotebookPart(kind="text", text="\n\n".join(pending))
