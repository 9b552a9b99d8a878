"""The report on a terminal.

- everything can be read without color; ASCII where the terminal has no more than that
- no line is longer than the terminal is wide, none ends in blanks; of what does not fit the rest is left out or counted
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from inlayer.render.glyphs import Glyphs, glyphs_for
from inlayer.training.analysis import Neighbor
from inlayer.training.report.facts import Report
from inlayer.training.report.words import COLUMNS, DRIFT, LONGEST, drift_cells, facts, mean_row

__all__ = ["show"]

LABEL = 12  # columns of what stands on the left
INDENT = 3
WIDEST_TOKEN = 18
NARROW = 72  # columns; below, the table leaves out the share of the text
MAX_LINES = 12  # of a continuation


def show(report: Report, console: Console) -> None:
    """Print the report."""
    signs = glyphs_for(console.encoding, color=console.color_system is not None and not console.no_color)
    for line in _Page(report, signs, console).lines():
        if line.cell_len > console.width:
            line.truncate(console.width - len(signs.more))
            line.rstrip()
            line.append(signs.more)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=True, highlight=False)


class _Page:
    """A report on a terminal of a certain width."""

    def __init__(self, report: Report, signs: Glyphs, console: Console) -> None:
        self.report, self.signs, self.console = report, signs, console
        self.columns = console.width

    def lines(self) -> Iterator[Text]:
        report = self.report
        yield Text(self.signs.fold(report.name, self.columns, blank=" "), style="bold")
        for label, words in facts(report):
            yield from self._beside(label, Text(self._words(words)))
        for warning in report.warnings:
            yield from self._beside("warning", Text(self._words(warning)), style="bold yellow")
        if report.learned.words:
            yield from self._heading("nearest rows, before and after")
            for word in report.learned.words:
                times = f"  {word.count:,} {'time' if word.count == 1 else 'times'} in the text"
                yield Text(" " * INDENT).append(self._token(word.label), style="bold").append(times, style="dim")
                yield self._neighbors("before", word.before, "dim")
                yield self._neighbors("after", word.after, "")
        yield from self._heading("how far the rows went")
        yield from self._drift()
        if report.continuation is not None:
            yield from self._heading("a continuation")
            yield from self._quote("given", report.continuation.prompt, style="dim")
            yield from self._quote("goes on", report.continuation.text)

    def _words(self, text: str) -> str:
        return self.signs.safe(text[:LONGEST]).replace("->", self.signs.arrow)

    def _heading(self, title: str) -> Iterator[Text]:
        rule = self.signs.rule
        yield Text()
        line = Text.assemble((f"{rule}{rule} ", "bright_black"), (f"{title} ", "bold"))
        yield line.append(rule * max(0, self.columns - len(line.plain)), style="bright_black")

    def _beside(self, label: str, text: Text, *, style: str = "bold", most: int | None = None) -> Iterator[Text]:
        """A label, and beside it a text wrapped to the columns that are left."""
        lines = text.wrap(self.console, max(16, self.columns - LABEL))
        for place, line in enumerate(lines[:most]):
            line.rstrip()
            yield Text(" " * LABEL if place else label.ljust(LABEL), style="" if place else style).append_text(line)
        if most is not None and len(lines) > most:
            yield Text(f"{' ' * LABEL}{self.signs.more} and {len(lines) - most:,} more lines", style="dim")

    def _quote(self, label: str, text: str, *, style: str = "") -> Iterator[Text]:
        lines = [self.signs.safe(line) for line in text[:LONGEST].split("\n")]
        yield from self._beside(label, Text("\n".join(lines), style=style), most=MAX_LINES)

    def _token(self, label: str) -> str:
        return self.signs.fold(label, WIDEST_TOKEN) or '""'

    def _neighbors(self, name: str, neighbors: Sequence[Neighbor], style: str) -> Text:
        """As many as fit on the line, the nearest first."""
        line = Text(" " * (INDENT + 2)).append(f"{name:<8}", style="dim")
        for place, one in enumerate(neighbors):
            shown = Text(" " * 2 if place else "").append(self._token(one.label), style=style)
            shown.append(f" {one.cosine:.2f}", style="dim")
            if line.cell_len + shown.cell_len > self.columns:
                break
            line.append_text(shown)
        return line if neighbors else line.append("none: the row points nowhere", style="dim")

    def _drift(self) -> Iterator[Text]:
        learned, narrow = self.report.learned, self.columns < NARROW
        rows = [drift_cells(one, self.signs.arrow, self.signs.times) for one in learned.drift]
        columns = [place for place in range(len(COLUMNS)) if not (narrow and COLUMNS[place] == "of the text")]
        widths = {place: max(len(row[place]) for row in (COLUMNS, *rows)) for place in columns}
        for number, row in enumerate((COLUMNS, *rows)):
            cells = [
                row[place].ljust(widths[place]) if not place else row[place].rjust(widths[place] + 2)
                for place in columns
            ]
            yield Text(" " * INDENT + "".join(cells), style="dim" if number == 0 else "")
        note = Text(f"means over rows. {DRIFT}").wrap(self.console, self.columns - INDENT)
        yield from (Text(" " * INDENT + line.plain.rstrip(), style="dim") for line in note)
        yield from self._beside("mean row", Text(self._words(mean_row(learned))))
        if learned.broken:
            yield from self._beside("broken", Text(f"{learned.broken:,} rows hold NaN or infinity"), style="bold red")
