"""The page of a terminal: how wide things are, and the few forms all steps are made of.

- a heading, a note, a table of vectors (numbers, then a strip), bands of things with their bytes beneath
- the same columns for tokens and numbers in every step, so that the eye can follow a token down
- what does not fit is left out and counted; nothing wraps by itself
- not here: what a character looks like (inlayer/render/glyphs.py), what a step says (tokens.py, vectors.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

from inlayer.render.glyphs import NUMBER, glyphs_for, largest, number
from inlayer.trace.facts import Cell, Step, TextTrace, Trace, Vector

__all__ = ["INDENT", "Grid", "Page", "count"]

Parts = Sequence[tuple[str, Vector]]  # by name

INDENT = 3
MAX_TEXTS = 4
MAX_TOKENS = 12  # of a text; the rest is counted, not printed
MAX_TOKENS_OF_MANY = 8  # of a text among others
MAX_PADDING = 2
MAX_NOTE = 4  # lines of a note
WIDEST_LABEL = 16
SMALLEST_STRIP = 8
SMALL = 0.01


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The columns of a table of vectors."""

    head: int  # columns before the numbers
    numbers: int  # how many fit
    more: str  # behind them, where there are more
    strip: int
    scale: float  # the value a strip shows at full height

    def number(self, value: float) -> str:
        """In powers of ten where all values are small, so that they stay comparable."""
        return number(value, power=self.scale < SMALL)


class Page:
    """A trace on paper of a certain width."""

    def __init__(self, trace: Trace, columns: int, encoding: str, *, color: bool, tokens: int | None = None) -> None:
        self.trace, self.columns, self.signs = trace, columns, glyphs_for(encoding, color=color)
        self.most_tokens = tokens or (MAX_TOKENS if len(trace.texts) <= 1 else MAX_TOKENS_OF_MANY)
        cells = [cell for _, text in self._shown_texts() for cell in self.cells(text)]
        self.widest_label = min(WIDEST_LABEL, columns // 5)
        self.label_width = max((cell_len(self.label(cell).plain) for cell in cells), default=5)
        self.label_width = max(self.label_width, len("token"))
        self.place_width = max((len(str(max(0, len(self.cells(text)) - 1))) for text in trace.texts), default=1)

    # ---- lines of words

    def heading(self, step: Step) -> Iterator[Text]:
        """The step's title across the page, its line of PyTorch at the right end where there is room, and its note."""
        rule, title, code = self.signs.rule, self.words(step.title), self.words(step.code)
        line = Text.assemble((f"{rule}{rule} ", "bright_black"), (str(step.number), "bold cyan"), f"  {title} ")
        line.stylize("bold", 3)
        spare = self.columns - cell_len(line.plain)
        beside = 0 < cell_len(code) <= spare - 6
        line.append(rule * (spare - cell_len(code) - 4 if beside else max(0, spare)), style="bright_black")
        if beside:
            line.append(f" {code} ", style="cyan dim")
            line.append(rule * 2, style="bright_black")
        yield line
        yield from self.note(step.note, style="")
        if code and not beside:
            yield from self.note(step.code, style="cyan dim", most=2)

    def note(self, text: str, *, style: str = "dim", indent: int = INDENT, most: int = MAX_NOTE) -> Iterator[Text]:
        """Words on as many lines as they need, but not more than `most`."""
        lines = wrap(self.words(text), max(10, self.columns - indent), break_on_hyphens=False)
        for place, line in enumerate(lines[:most], start=1):
            shown = self.signs.fold(line, self.columns - indent, blank=" ")
            if place == most and len(lines) > most:
                shown = self.signs.fold(f"{line} ", self.columns - indent - len(self.signs.more), blank=" ")
                shown += self.signs.more
            yield Text(" " * indent + shown, style=style)

    def words(self, text: str) -> str:
        """A note's words: safe, and with the arrow the terminal has."""
        return self.signs.safe(text).replace("->", self.signs.arrow)

    def cut(self, line: Text) -> None:
        """On a page too narrow for a line, its end is left out."""
        if cell_len(line.plain) > self.columns:
            line.truncate(self.columns - len(self.signs.more))
            line.rstrip()
            line.append(self.signs.more)

    def more(self, amount: int, thing: str) -> Iterator[Text]:
        if amount > 0:
            yield Text(f"{' ' * INDENT}{self.signs.more} and {count(amount, f'more {thing}')}", style="dim")

    # ---- texts and tokens

    def texts(self) -> Iterator[tuple[int, TextTrace, list[Text]]]:
        """The texts to show, each with the lines to put before it."""
        many = len(self.trace.texts) > 1
        for place, text in self._shown_texts():
            yield place, text, [self.text_heading(place, text)] if many else []

    def text_heading(self, place: int, text: TextTrace) -> Text:
        line = Text(f"{' ' * INDENT}text {place + 1} of {self.trace.shape[0]}", style="bold")
        if text.text is not None:
            shown = self.signs.fold(text.text, self.columns - cell_len(line.plain) - 4, blank=" ")
            line.append(f"  {shown}", style="not bold dim")
        return line

    def texts_left_out(self) -> Iterator[Text]:
        yield from self.more(self.trace.shape[0] - min(MAX_TEXTS, len(self.trace.texts)), "text")

    def _shown_texts(self) -> list[tuple[int, TextTrace]]:
        return list(enumerate(self.trace.texts[:MAX_TEXTS]))

    def cells(self, text: TextTrace) -> list[Cell]:
        """The first tokens of a text, and of its padding enough to see it."""
        return text.cells[: min(self.most_tokens, text.n_tokens + MAX_PADDING)]

    def tokens_left_out(self, text: TextTrace, shown: int) -> Iterator[Text]:
        if not text.n_tokens + text.n_padding:
            yield Text(f"{' ' * INDENT}(no tokens)", style="dim")
        yield from self.more(text.n_tokens - min(shown, text.n_tokens), "token")
        hidden_padding = text.n_padding - max(0, shown - text.n_tokens)
        if shown >= text.n_tokens:
            yield from self.more(hidden_padding, "of padding")
        elif hidden_padding:
            yield from self.note(f"behind them {hidden_padding:,} of padding")

    def label(self, cell: Cell) -> Text:
        """A token's name: its text, its bytes where they are no whole characters, its own name where it is special."""
        if cell.id is None:
            return Text(self.signs.fold(cell.label, self.widest_label, blank=" "))
        if cell.special:
            style = "magenta" if cell.mask else "magenta dim"
            return Text(self.signs.fold(cell.label, self.widest_label), style=style)
        if not is_text(cell.bytes):
            return Text(self.signs.escaped(cell.bytes, self.widest_label), style="yellow")
        return Text(self.signs.fold(cell.label, self.widest_label), style="" if cell.mask else "dim")

    def head(self, place: int | None, cell: Cell | None = None) -> Text:
        """The start of a token's line: its place and its name."""
        line = Text(" " * INDENT).append(("" if place is None else str(place)).rjust(self.place_width), style="dim")
        line.append("  ")
        return line if cell is None else padded(line.append_text(self.label(cell)), self.head_width)

    @property
    def head_width(self) -> int:
        return INDENT + self.place_width + 2 + self.label_width

    # ---- vectors

    def grid(self, vectors: Sequence[Vector], channels: int, *, head: int | None = None) -> Grid:
        """Columns for vectors that stand together and share a scale."""
        held = max((len(vector) for vector in vectors), default=0)
        before = self.head_width if head is None else head
        room = self.columns - before - 2 - len(f" {self.signs.more}")
        strip = min(held, max(SMALLEST_STRIP, self.columns // 5))
        numbers = max(0, min(held, max(1, (room - strip) // (NUMBER + 1)), room // (NUMBER + 1)))
        strip = max(0, min(strip, room - numbers * (NUMBER + 1)))
        more = f" {self.signs.more}" if numbers < channels else ""
        return Grid(head=before, numbers=numbers, more=more, strip=strip, scale=largest(vectors))

    def grid_heading(self, grid: Grid, name: str = "token", *, thing: str = "", indent: int | None = None) -> Text:
        """What the columns are: the channels' numbers, and the value a strip shows at full height."""
        before = INDENT + self.place_width + 2 if indent is None else indent
        line = padded(Text(" " * before + name[: max(0, grid.head - before)], style="dim"), grid.head)
        for channel in range(grid.numbers):
            line.append(f"{thing if channel == 0 else ''}{channel}".rjust(NUMBER + 1))
        scale = f"{' ' * len(grid.more)}  {self.signs.plus_minus}{grid.number(grid.scale)}"
        return line.append(scale if cell_len(line.plain) + len(scale) <= self.columns and grid.strip else "")

    def vector(self, head: Text, values: Vector, grid: Grid, *, style: str = "") -> Text:
        """A vector on a line: its first values as numbers, and more of them as a strip."""
        line = padded(head, grid.head)
        for value in values[: grid.numbers]:
            line.append(f" {grid.number(value):>{NUMBER}}", style=style or number_style(value))
        line.append(" " * (NUMBER + 1) * (grid.numbers - len(values)))
        line.append(f"{grid.more}  ", style="dim")
        return line.append_text(self.signs.heat(values[: grid.strip], grid.scale))

    def parts_grid(self, tokens: Sequence[Parts], channels: int) -> Grid:
        """Columns for vectors that come about in parts, each part by its name."""
        first = max((self.label_width + 2 + len(parts[0][0]) for parts in tokens), default=0)
        names = max((len(name) for parts in tokens for name, _ in parts[1:]), default=0)
        head = INDENT + self.place_width + 2 + max(first, names)
        return self.grid([vector for parts in tokens for _, vector in parts], channels, head=head)

    def parts(self, place: int | None, label: Text, parts: Parts, grid: Grid) -> Iterator[Text]:
        """A token's vector and what becomes of it, a line each; the first stands beside the token's name."""
        for place_of_part, (name, values) in enumerate(parts):
            line = self.head(None if place_of_part else place)
            if place_of_part == 0:
                line.append_text(label).append("  ")
            line.append(name, style="dim")
            yield self.vector(line, values, grid)

    def name_width(self, name: str) -> int:
        return INDENT + self.place_width + 2 + len(name)

    def named(self, name: str) -> Text:
        return self.head(None).append(name, style="dim")

    # ---- bands

    @property
    def band_width(self) -> int:
        return self.columns - INDENT - 2  # a bar at either end

    def bands(self, units: Sequence[tuple[str, str, str]], *, bars: bool, most: int) -> tuple[list[Text], int]:
        """Things in a row, each above its bytes: (what, bytes, style of the bytes). The lines, and how many fitted."""
        lines: list[Text] = []
        taken = 0
        while taken < len(units) and len(lines) < 2 * most:
            above, beneath, used = Text(" " * INDENT), Text(" " * INDENT), 0
            while taken < len(units):
                what, data, style = units[taken]
                size = max(cell_len(what), len(data))
                if used and used + 1 + size > self.band_width:
                    break
                for line, shown, its_style in ((above, what, ""), (beneath, data, style)):
                    line.append(self.signs.bar if bars else " ", style="bright_black")
                    line.append_text(padded(Text(shown, style=its_style), size))
                used += size + 1
                taken += 1
            if bars:
                above.append(self.signs.bar, style="bright_black")
                beneath.append(self.signs.bar, style="bright_black")
            lines += [above, beneath]
        return lines, taken


def padded(line: Text, columns: int) -> Text:
    """The line filled up with blanks; unlike rich's own, these carry no style."""
    line.append(" " * (columns - cell_len(line.plain)))
    return line


def is_text(data: str) -> bool:
    try:
        bytes.fromhex(data).decode()
    except UnicodeDecodeError:
        return False
    return True


def number_style(value: float) -> str:
    if value == 0:
        return "dim"
    return "" if abs(value) < float("inf") else "bold magenta"  # neither infinite nor NaN


def count(amount: int, thing: str) -> str:
    return f"{amount:,} {thing}" + ("" if amount == 1 or thing.endswith("padding") else "s")
