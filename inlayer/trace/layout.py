"""Layout of terminal output: column widths, and the kinds of lines that the steps consist of.

- a step adds its lines to `Layout.lines`, one after the other
- tokens and numbers are in the same columns in every step, so a token can be followed down the screen
- content that does not fit is omitted and counted; no line wraps
- see also: formatting characters (inlayer/render/glyphs.py), the steps (trace/terminal.py)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from inlayer.render.glyphs import LEFT_TO_RIGHT, NUMBER, glyphs_for, largest, number, with_spaces
from inlayer.render.numbers import pluralize
from inlayer.trace.facts import StepFacts, TextTrace, TokenTrace, Trace, Vector

NamedVectors = Sequence[tuple[str, Vector]]

INDENT = 3
MAX_TEXTS = 4
MAX_TOKENS = 12  # limit per text; the rest is counted, not printed
MAX_BATCH_TOKENS = 8  # limit per text of a batch
MAX_PADDING = 2  # per text; if there are more, only the first is shown, because their rows are equal
MAX_BANDS = 3  # bands of characters above bytes, per text; one in a batch
MAX_LABEL_WIDTH = 16
MIN_STRIP_WIDTH = 8
CODE_PARTS = (
    r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\s'"])+\s*""",  # words; a string is part of its word
    r"\\(?:x..|u.{4}|U.{8}|.)|[\w.]+|.",  # escape codes, names and numbers, everything else
    r".",  # characters of a long word in a string
)
MAX_NOTE = 12  # lines in a step's note, enough for the complete note at 40 columns
SMALL = 0.01  # below this scale, numbers are written as powers of ten


class Grid(NamedTuple):
    """The columns of a table of vectors."""

    head: int  # columns before the numbers
    numbers: int  # columns of numbers
    more: str  # ellipsis after the numbers, if there are more
    strip: int
    scale: float  # the value with full intensity in a heat strip

    def number(self, value: float) -> str:
        """Format a value; in a grid of small values, as a power of ten, so they can be compared."""
        return number(value, power=self.scale < SMALL)


class Layout:
    """The layout of one trace at a given width."""

    def __init__(
        self, trace: Trace, columns: int, encoding: str, *, color: bool, max_tokens: int | None = None
    ) -> None:
        self.trace, self.columns, self.glyphs = trace, columns, glyphs_for(encoding, color=color)
        self.texts, self.is_batch = trace.texts[:MAX_TEXTS], len(trace.texts) > 1
        self.max_tokens = max_tokens or (MAX_BATCH_TOKENS if self.is_batch else MAX_TOKENS)
        self.shown_tokens = [token for text in self.texts for token in self.tokens(text)]
        self.widest_label = min(MAX_LABEL_WIDTH, columns // 5)
        self.label_width = max([len("token"), *(cell_len(self.label(token).plain) for token in self.shown_tokens)])
        last = max((len(self.tokens(text)) - 1 for text in trace.texts), default=0)
        self.index_width = len(str(trace.first_token + max(0, last)))
        self.label_start = INDENT + self.index_width + 2
        self.head_width = self.label_start + self.label_width
        self.lines: list[Text] = []

    # ---- lines of text

    def add(self, line: Text) -> None:
        self.lines.append(line)

    def heading(self, step: StepFacts) -> None:
        """Add a step's title, with its line of PyTorch on the right if it fits, and its note."""
        rule, title, code = self.glyphs.rule, self.words(step.title), self.glyphs.escape(step.code)
        line = Text.assemble((f"{rule}{rule} ", "bright_black"), (str(step.number), "bold cyan"), f"  {title} ")
        line.stylize("bold", 3)
        spare = self.columns - cell_len(line.plain)
        beside = 0 < cell_len(code) <= spare - 6
        line.append(rule * (spare - cell_len(code) - 4 if beside else max(0, spare)), style="bright_black")
        if beside:
            line.append(f" {code} ", style="cyan dim")
            line.append(rule * 2, style="bright_black")
        self.add(line)
        self.note(step.note, style="", max_lines=MAX_NOTE)
        if code and not beside:
            for statement in step.code.split("; "):
                self.code(statement)

    def note(self, text: str, *, style: str = "dim", indent: int = INDENT, max_lines: int = 4) -> None:
        """Add text wrapped to the width, at most `max_lines` lines."""
        words, width = self.words(text).removesuffix(LEFT_TO_RIGHT), max(10, self.columns - indent)
        more = f" {self.glyphs.more}"
        for line in wrap(words, width, break_on_hyphens=False, max_lines=max_lines, placeholder=more):
            self.add(Text(" " * indent + self.glyphs.escape(line), style=style))

    def code(self, line: str, indent: int = INDENT) -> None:
        """Add a line of Python; a long one continues after a backslash or becomes several comment lines."""
        width = max(20, self.columns - indent)
        if line.startswith("#"):
            lines = [f"# {part}" for part in wrap(self.glyphs.escape(line[2:]), width - 2)]
        else:
            lines = [""]
            for part in _breakable(self.glyphs.escape(line), width):
                if cell_len(lines[-1] + part) >= width:
                    lines[-1] += "\\"
                    lines.append("")
                lines[-1] += part
        self.lines += [Text(" " * indent + part, style="cyan dim") for part in lines]

    def words(self, text: str) -> str:
        """Escape text, and use the terminal's arrow."""
        return self.glyphs.escape(text).replace("->", self.glyphs.arrow)

    def more(self, amount: int, noun: str) -> None:
        """Add a line that counts what was omitted, if anything."""
        if amount > 0:
            self.add(Text(f"{' ' * INDENT}{self.glyphs.more} and {pluralize(amount, f'more {noun}')}", style="dim"))

    def table_title(self, title: str, about: str) -> None:
        """Add the title of another table below a blank line, and a note about it."""
        self.add(Text())
        self.note(title, style="bold")
        self.note(about)

    # ---- texts and tokens

    def tokens(self, text: TextTrace) -> list[TokenTrace]:
        """Return the tokens of a text to show, and one or two padding tokens."""
        padding = text.n_padding if text.n_padding <= MAX_PADDING else 1
        return text.tokens[: min(self.max_tokens, self.real_tokens(text) + padding)]

    def real_tokens(self, text: TextTrace) -> int:
        """Count the tokens from the start of the recorded range to the end of the text, without padding."""
        return max(0, text.n_tokens - self.trace.first_token)

    def each_text(self) -> Iterator[TextTrace]:
        """Yield each text, after adding its heading if there are several; then count the omitted texts."""
        for index, text in enumerate(self.texts):
            if self.is_batch:
                line = Text(f"{' ' * INDENT}text {index + 1} of {self.trace.shape[0]}", style="bold")
                shown = self.glyphs.truncate(text.text or "", self.columns - cell_len(line.plain) - 4, blank=" ")
                self.add(line if text.text is None else line.append(f"  {shown}", style="not bold dim"))
            yield text
        self.more(self.trace.shape[0] - len(self.texts), "text")

    def each_token(self, limit: int | None = None) -> Iterator[tuple[int, int, TokenTrace]]:
        """Yield each token with the indices of its text and the token; after each text, count the omitted tokens."""
        for text_index, text in enumerate(self.each_text()):
            shown = self.tokens(text)[:limit]
            for index, token in enumerate(shown):
                yield text_index, index, token
            self.omitted_tokens(text, len(shown))

    def omitted_tokens(self, text: TextTrace, shown: int) -> None:
        """Count the tokens of a text that are not shown."""
        if not text.n_tokens + text.n_padding:
            self.add(Text(f"{' ' * INDENT}(no tokens)", style="dim"))
        real, first = self.real_tokens(text), self.trace.first_token
        if first and text.n_tokens:
            window = f"tokens {first} to {first + min(shown, real) - 1} of {text.n_tokens:,}"
            self.note(window if real else f"the text ends after {pluralize(text.n_tokens, 'token')}")
        else:
            self.more(text.n_tokens - min(shown, real), "token")
        hidden_padding = text.n_padding - max(0, first - text.n_tokens) - max(0, shown - real)
        if shown >= real:
            self.more(hidden_padding, "padding token")
        elif hidden_padding:
            self.note(f"followed by {pluralize(hidden_padding, 'padding token')}")

    def label(self, token: TokenTrace) -> Text:
        """Return a token's label: its text, its bytes if they are not whole characters, or a special token's name."""
        data = bytes.fromhex(token.bytes)
        if not token.special and data.decode(errors="ignore").encode() != data:
            return Text(self.glyphs.truncate_bytes(token.bytes, self.widest_label), style="yellow")
        text = with_spaces(token.label)
        if not text.startswith(" ") and with_spaces(token.token or "").startswith(" "):
            text = f" {text}"  # the tokenizer put a space before the text, so this is " king", not "king"
        shown = self.glyphs.truncate(text, self.widest_label, blank=" " if token.id is None else None)
        return Text(shown, style=("magenta" if token.special else "") + ("" if token.mask else " dim"))

    def head(self, index: int | None, token: TokenTrace | None = None) -> Text:
        """Return the start of a token's line: its index in the text and its label."""
        number = "" if index is None else str(self.trace.first_token + index)
        line = Text(" " * INDENT).append(number.rjust(self.index_width), style="dim").append("  ")
        return line if token is None else padded(line.append_text(self.label(token)), self.head_width)

    # ---- vectors

    def columns_of(self, vectors: Sequence[Vector], channels: int, head: int = 0) -> Grid:
        """Return columns for vectors that share a scale."""
        recorded = max(map(len, vectors), default=0)
        before = head or self.head_width
        available = self.columns - before - 2 - len(f" {self.glyphs.more}")
        strip = min(recorded, max(MIN_STRIP_WIDTH, self.columns // 5))
        numbers = max(0, min(recorded, max(1, (available - strip) // (NUMBER + 1)), available // (NUMBER + 1)))
        strip = max(0, min(strip, available - numbers * (NUMBER + 1)))
        more = f" {self.glyphs.more}" if numbers < channels else ""
        return Grid(head=before, numbers=numbers, more=more, strip=strip, scale=largest(vectors))

    def grid(
        self, vectors: Sequence[Vector], channels: int, *, head: int = 0, heading: str = "", unit: str = ""
    ) -> Grid:
        """Add column headings: channel numbers, and the scale of the heat strips. Return the columns."""
        grid = self.columns_of(vectors, channels, head)
        heading = heading or " " * self.label_start + "token"
        line = padded(Text(heading[: grid.head], style="dim"), grid.head)
        first = 0 if unit else self.trace.first_channel
        for channel in range(grid.numbers):
            line.append(f"{unit if channel == 0 else ''}{first + channel}".rjust(NUMBER + 1))
        scale = f"{' ' * len(grid.more)}  {self.glyphs.plus_minus}{grid.number(grid.scale)}"
        fits = cell_len(line.plain) + len(scale) <= self.columns
        self.add(line.append(scale if fits and grid.strip and not math.isnan(grid.scale) else ""))
        return grid

    def vector(self, head: Text, values: Vector, grid: Grid, *, style: str = "") -> None:
        """Add a line with a vector: its first values as numbers, and more of them as a heat strip."""
        line = padded(head, grid.head)
        for value in values[: grid.numbers]:
            line.append(f" {grid.number(value):>{NUMBER}}", style=style or number_style(value))
        line.append(" " * (NUMBER + 1) * (grid.numbers - len(values)))
        line.append(f"{grid.more}  ", style="dim")
        self.add(line.append_text(self.glyphs.heat(values[: grid.strip], grid.scale)))

    def legend(self) -> None:
        """Add the meaning of the heat strips, on two lines if the terminal is narrow."""
        names = {"negative": -1.0, "zero": 0.0, "positive": 1.0}
        vectors = [vector for token in self.shown_tokens for vector in (token.row, token.hidden)]
        if any(map(math.isnan, chain.from_iterable(vectors))):
            names["not a number"] = math.nan
        parts = [self.glyphs.heat([value], 1.0).append(f" {name}  ", style="dim") for name, value in names.items()]
        if not math.isnan(largest(vectors)):
            parts.append(Text(f"{self.glyphs.plus_minus} largest absolute value", style="dim"))
        line = Text().append("heat strips: ", style="dim")
        for part in parts:
            if len(line) + len(part.plain.rstrip()) > self.columns:
                self.add(line)
                line = Text("  ")
            line.append_text(part)
        self.add(line)

    def named_grid(self, tokens: Sequence[NamedVectors], channels: int) -> Grid:
        """Add headings for several named vectors per token, and return the columns."""
        first = max((self.label_width + 2 + len(vectors[0][0]) for vectors in tokens), default=0)
        names = max((len(name) for vectors in tokens for name, _ in vectors[1:]), default=0)
        head = self.label_start + max(first, names + 1)  # two spaces before a negative number, as after a label
        return self.grid([vector for vectors in tokens for _, vector in vectors], channels, head=head)

    def named_vectors(self, index: int | None, label: Text, vectors: NamedVectors, grid: Grid) -> None:
        """Add one line per named vector of a token; the first also has the token's label."""
        start = self.head(index).append_text(label).append("  ")
        for name, values in vectors:
            self.vector(start.append(name, style="dim"), values, grid)
            start = self.head(None)

    # ---- bands

    def bands(self, units: Sequence[tuple[str, str, str]], bar: str, total: int, noun: str) -> None:
        """Add units (text, bytes, style of the bytes) side by side, bytes below text, and count those omitted."""
        bands: list[tuple[Text, Text]] = []
        shown = 0
        for text, data, style in units:
            size = max(cell_len(text), len(data))
            if not bands or len(bands[-1][1]) + 1 + size + 1 >= self.columns:  # a bar at each end
                if len(bands) == (1 if self.is_batch else MAX_BANDS):
                    break
                bands.append((Text(" " * INDENT), Text(" " * INDENT)))
            for line, content in zip(bands[-1], (Text(text), Text(data, style=style)), strict=True):
                line.append(bar, style="bright_black").append_text(padded(content, size))
            shown += 1
        self.lines += [line.append(bar, style="bright_black") for band in bands for line in band]
        self.more(total - shown, noun)


def _breakable(code: str, width: int, patterns: Sequence[str] = CODE_PARTS) -> Iterator[str]:
    """Split code where a backslash can continue it: into words or, if these are too wide, tokens or characters."""
    pattern, *finer = patterns
    for part in re.findall(pattern, code):
        yield from _breakable(part, width, finer) if finer and cell_len(part) >= width else (part,)


def padded(line: Text, columns: int) -> Text:
    """Pad a line with spaces that, unlike in rich's method, have no style."""
    line.append(" " * (columns - cell_len(line.plain)))
    return line


def number_style(value: float) -> str:
    if value == 0:
        return "dim"
    return "" if abs(value) < float("inf") else "bold magenta"  # neither infinite nor NaN
