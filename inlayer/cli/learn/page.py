"""How the course looks in a terminal: lessons, checks, questions.

- Markdown as rich shows it; code and formulas stand apart, a picture is its words in a frame, a link the command
- what the learner's code printed and raised is shown line by line, with nothing in it that acts on the terminal
- a terminal that has no ✓ gets "ok", one that has no → gets "->", and so on; color only where there is some
- not here: what is shown (the verbs beside, inlayer/learn/)
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from inlayer.cli.app import console
from inlayer.learn.messages import answered_words
from inlayer.learn.questions import Asked, ChoiceQuestion, FreeTextQuestion

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from inlayer.learn.comparison import Beside
    from inlayer.learn.grader import Verdict

__all__ = ["Page", "command_of", "page"]

WIDEST = 100  # columns; longer lines are hard to read
PRINTED_LINES = 20  # of what the learner's code printed
INSTEAD = {
    "✓": "ok", "✗": "x", "·": "-", "•": "*", "…": "...", "→": "->", "←": "<-", "×": "x", "≠": "!=", "≤": "<=",
    "≥": ">=", "≈": "~", "−": "-", "±": "+-", "∙": "*", "⋅": "*", "∑": "sum", "Σ": "sum", "√": "sqrt", "θ": "theta",
    "π": "pi", "σ": "sigma", "∂": "d", "∈": "in", "½": "1/2", "²": "^2", "³": "^3", "ᵀ": "^T", "₀": "_0", "₁": "_1",
    "₂": "_2", "ᵢ": "_i", "ⱼ": "_j", "▌": "|", "─": "-", "━": "-", "│": "|", "█": "#", "░": ".", "‘": "'", "’": "'",
    "“": '"', "”": '"', "–": "-", "␣": "_", "⟨": "<", "⟩": ">",
}  # fmt: skip
MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "not run": ("·", "dim")}
LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?:(walk|task|lesson):|(misconceptions)\.md#)([^()\s]+)\)")
PICTURE = re.compile(r"^!\[(.*?)\]\([^()\s]*\)\s*$", re.DOTALL | re.MULTILINE)
BLANKS = re.compile(r" +$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


class Translated:
    """A stream that takes any character, and writes another where its encoding has none; no line ends in blanks."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.table = str.maketrans({one: other for one, other in INSTEAD.items() if not _can(stream, one)})

    def write(self, text: str) -> int:
        return int(self.stream.write(BLANKS.sub("", text.translate(self.table))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _can(stream: Any, character: str) -> bool:
    try:
        character.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def page() -> Page:
    """Where a verb of the course prints."""
    from rich.theme import Theme

    theme = Theme({"markdown.code": "bold cyan", "markdown.h2": "bold"})  # seen on black and on white
    return Page(console(WIDEST, file=Translated(sys.stdout), theme=theme))


def command_of(kind: str, rest: str) -> str:
    """What to type to go where a link of the course leads."""
    if kind == "walk":
        step, _, query = rest.partition("?")
        texts = "".join(f" {shlex.quote(text)}" for text in parse_qs(query).get("text", []))
        return f"inlayer walk{texts} --step {step}"
    if kind == "misconceptions":
        return f"inlayer learn errata {rest}"
    return f"inlayer learn {'read' if kind == 'lesson' else 'next'} {rest}"


class Page:
    """A console, and the forms of the course on it."""

    def __init__(self, console: Console) -> None:
        from inlayer.render.glyphs import glyphs_for

        self.console = console
        self.signs = glyphs_for(console.encoding, color=False)

    def line(self, text: str = "", style: str = "", indent: int = 0, *, whole: bool = False) -> None:
        """A line of ours or of a stranger's: what is in it is no markup. It wraps at the edge, with its indent.

        `whole`: it is not broken, so that a path in it can be copied.
        """
        from rich.padding import Padding
        from rich.text import Text

        said = Text(text, style=style)
        if whole:
            self.console.print(said, soft_wrap=True)
            return
        self.console.print(Padding(said, (0, 0, 0, indent), expand=False) if indent and text else said)

    def command(self, text: str, indent: int = 2) -> None:
        """Something to type: never broken, so that it can be copied."""
        from rich.text import Text

        self.console.print(Text(" " * indent + text, style="cyan"), soft_wrap=True)

    def heading(self, text: str) -> None:
        self.line(text, style="bold")

    def strangers(self, text: str, *, indent: int = 4, most: int = PRINTED_LINES, style: str = "dim") -> None:
        """Lines that somebody else wrote, the first of them."""
        lines = text.splitlines()
        for one in lines[:most]:
            self.line(self.signs.safe(one.expandtabs(4)), style=style, indent=indent)
        if len(lines) > most:
            self.line(f"{self.signs.more} and {len(lines) - most:,} more lines", style=style, indent=indent)

    def markdown(self, text: str) -> None:
        """A text of the course."""
        from rich.markdown import Markdown
        from rich.panel import Panel
        from rich.text import Text

        for kind, part in pieces(text):
            if kind == "text":
                self._trimmed(Markdown(part, hyperlinks=False))
            elif kind == "picture":
                self.console.print(Panel(Text(part), title="picture", title_align="left", border_style="dim"))
            elif kind == "python":
                self.code(part)
            else:
                self._unbroken(Text(part, style="dim" if kind == "output" else "bold"))
            self.console.print()

    def _trimmed(self, made: Any) -> None:
        """Without the empty lines that rich puts before a heading or around a table, at either end."""
        from rich.segment import Segment, Segments

        lines = self.console.render_lines(made, pad=False)
        full = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
        for line in lines[full[0] : full[-1] + 1] if full else []:
            self.console.print(Segments([*line, Segment.line()]), end="")

    def code(self, source: str) -> None:
        """Python, in color where there is some."""
        from rich.syntax import Syntax
        from rich.text import Text

        if self.console.color_system is None:
            self._unbroken(Text(source.rstrip("\n")))
        else:
            colored = Syntax("", "python", theme="ansi_dark").highlight(source)
            colored.rstrip()
            self._unbroken(colored)

    def _unbroken(self, text: Text) -> None:
        """Lines that stay lines, however long, so that they can be copied; a terminal breaks them as it likes."""
        from rich.text import Text

        for line in text.split("\n", allow_blank=True):
            self.console.print(line if not line.plain.strip() else Text("    ").append_text(line), soft_wrap=True)

    def checks(self, verdict: Verdict) -> None:
        """Each check in order: held, failed with its rule and message, or not run."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for result in verdict.results:
            mark, style = MARKS[result.state]
            what = result.what if result.state != "not run" else f"{result.what} (not run)"
            quiet = "dim" if result.state == "not run" else ""
            table.add_row(Text(f"  {mark}", style=style), Text(result.name, style=quiet), Text(what, style=quiet))
        self.console.print(table)
        if verdict.failure is not None:
            self.line()
            self.strangers(verdict.failure.message, most=60, style="", indent=2)
            self.line(f"rule: {verdict.failure.rule}", style="dim", indent=2)
        if verdict.printed.strip():
            self.line()
            self.line("your code printed:", style="dim", indent=2)
            self.strangers(verdict.printed.rstrip("\n"))

    def beside(self, own: Any, found: Beside) -> None:
        """The step of the walk, and the learner's own numbers below it."""
        from inlayer.render.glyphs import number
        from inlayer.trace.terminal import show

        show(found.trace, self.console, step=found.step)
        self.line()
        self.line(f"Yours: {tuple(own.shape)}, {str(own.dtype).removeprefix('torch.')}", style="bold", indent=3)
        rows = own.detach().cpu().reshape(-1, own.shape[-1] if own.dim() else 1) if own.numel() else own.new_empty(0, 0)
        for row in rows[:4]:
            values = [str(int(value)) if not value.is_floating_point() else number(float(value)) for value in row[:7]]
            more = f" {self.signs.more}" if len(row) > 7 else ""
            self.line(" ".join(f"{value:>7}" for value in values) + more, indent=3)
        if len(rows) > 4:
            self.line(f"{self.signs.more} and {len(rows) - 4:,} more rows", indent=3, style="dim")
        self.line(found.says, indent=3)

    def asked(self, asked: Asked) -> None:
        """A question, and its options by letter."""
        self.markdown(asked.text)
        if isinstance(asked, ChoiceQuestion):
            for number, option in enumerate(asked.options):
                self.option(number, option.text)
        else:
            self.line(answered_words(asked), style="dim")

    def option(self, number: int, text: str, mark: str = "") -> None:
        from rich.markdown import Markdown
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column()
        letter = Text(f"  {chr(ord('a') + number)}", style="bold")
        table.add_row(Text.assemble(letter, f" {mark}" if mark else ""), Markdown(linked(text), hyperlinks=False))
        self.console.print(table)

    def reasons(self, choice: ChoiceQuestion) -> None:
        """Every option with its reason, once the question is answered."""
        for number, option in enumerate(choice.options):
            self.option(number, f"{option.text}", "✓" if option.correct else "✗")
            self.markdown_below(option.reason)

    def markdown_below(self, text: str, indent: int = 6) -> None:
        from rich.markdown import Markdown
        from rich.padding import Padding

        self.console.print(Padding(Markdown(linked(text), hyperlinks=False, style="dim"), (0, 0, 0, indent)))

    def model_answer(self, free: FreeTextQuestion) -> None:
        self.heading("A model answer")
        self.markdown(free.model_answer)


def linked(text: str) -> str:
    """Links of the course as the commands that lead there."""
    return LINK.sub(_as_command, text)


def _as_command(link: re.Match[str]) -> str:
    return f"{link[1]} (`{command_of(link[2] or link[3], link[4])}`)"


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """A text cut into what is shown in different ways: "text", "picture", "python", "formula", "output"."""
    end = 0
    for fence in FENCE.finditer(text):
        yield from _prose(text[end : fence.start()])
        kind = {"python": "python", "formula": "formula"}.get(fence[1], "output")
        yield kind, fence[2].rstrip("\n")
        end = fence.end()
    yield from _prose(text[end:])


def _prose(text: str) -> Iterator[tuple[str, str]]:
    end = 0
    for picture in PICTURE.finditer(text):
        if before := text[end : picture.start()].strip():
            yield "text", linked(before)
        yield "picture", " ".join(picture[1].split())
        end = picture.end()
    if rest := text[end:].strip():
        yield "text", linked(rest)
