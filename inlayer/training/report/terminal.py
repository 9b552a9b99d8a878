"""Training report on a terminal.

- readable without color; ASCII if the terminal supports nothing else
- no line is wider than the terminal or ends in blanks; what does not fit is left out or counted
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from inlayer.render.glyphs import Glyphs, glyphs_for
from inlayer.training import report as facts
from inlayer.training.analysis import TokenNeighbor
from inlayer.training.report import MAX_TEXT, TrainingReport

LABEL_WIDTH, MAX_TOKEN_WIDTH = 12, 18
INDENT = "   "
NARROW = 72  # columns; narrower tables leave out the share of the text
MAX_LINES = 12  # of a text sample


def show(report: TrainingReport, console: Console) -> None:
    """Print the report."""
    glyphs = glyphs_for(console.encoding, color=console.color_system is not None and not console.no_color)
    for line in _Layout(report, glyphs, console).lines():
        if line.cell_len > console.width:
            line.truncate(console.width - len(glyphs.more))
            line.rstrip()
            line.append(glyphs.more)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=True, highlight=False)


class _Layout:
    """A report laid out for one terminal width."""

    def __init__(self, report: TrainingReport, glyphs: Glyphs, console: Console) -> None:
        self.report, self.glyphs, self.console, self.columns = report, glyphs, console, console.width

    def lines(self) -> Iterator[Text]:
        report = self.report
        yield Text(self.glyphs.fold(report.name, self.columns, blank=" "), style="bold")
        for label, text in (*facts.summary(report), *(("warning", warning) for warning in report.warnings)):
            yield from self._labeled(label, text, style="bold yellow" if label == "warning" else "bold")
        if report.table.tokens:
            yield from self._heading("nearest neighbors, before and after training")
            for one in report.table.tokens:
                times = f"  {one.count:,} {'time' if one.count == 1 else 'times'} in the text"
                yield Text(INDENT).append(self._token(one.token), style="bold").append(times, style="dim")
                yield self._neighbors("before", one.before, "dim")
                yield self._neighbors("after", one.after, "")
        yield from self._heading("change of the rows")
        yield from self._changes()
        for label, text in facts.table_notes(report):
            yield from self._labeled(label, text, style="bold red" if label == "not finite" else "bold")
        if report.sample is not None:
            yield from self._heading("generated text")
            yield from self._labeled("prompt", report.sample.prompt, most=MAX_LINES)
            yield from self._labeled("output", report.sample.text, most=MAX_LINES)

    def _heading(self, title: str) -> Iterator[Text]:
        rule = self.glyphs.rule
        yield Text()
        line = Text.assemble((f"{rule}{rule} ", "bright_black"), (f"{title} ", "bold"))
        yield line.append(rule * max(0, self.columns - len(line.plain)), style="bright_black")

    def _labeled(self, label: str, text: str, *, style: str = "bold", most: int | None = None) -> Iterator[Text]:
        """A label, and next to it an untrusted text wrapped to the remaining columns; `most` limits its lines."""
        parts = text[:MAX_TEXT].split("\n") if most else [text[:MAX_TEXT].replace("->", self.glyphs.arrow)]
        safe = Text("\n".join(map(self.glyphs.safe, parts)))
        lines = safe.wrap(self.console, max(16, self.columns - LABEL_WIDTH))
        for number, line in enumerate(lines[:most]):
            yield Text(("" if number else label).ljust(LABEL_WIDTH), style=style).append_text(line)
        if most is not None and len(lines) > most:
            yield Text(f"{' ' * LABEL_WIDTH}{self.glyphs.more} and {len(lines) - most:,} more lines", style="dim")

    def _token(self, token: str) -> str:
        return self.glyphs.fold(token, MAX_TOKEN_WIDTH) or '""'

    def _neighbors(self, name: str, neighbors: Sequence[TokenNeighbor], style: str) -> Text:
        """As many neighbors as fit on the line, nearest first."""
        line = Text(f"{INDENT}  ").append(f"{name:<8}", style="dim")
        for number, one in enumerate(neighbors):
            shown = Text("  " if number else "").append(self._token(one.token), style=style)
            shown.append(f" {one.cosine:.2f}", style="dim")
            if line.cell_len + shown.cell_len > self.columns:
                break
            line.append_text(shown)
        return line if neighbors else line.append("none (zero row)", style="dim")

    def _changes(self) -> Iterator[Text]:
        cells = [facts.change_cells(one, self.glyphs.arrow, self.glyphs.times) for one in self.report.table.groups]
        rows = [facts.COLUMNS, *cells]
        if self.columns < NARROW:
            rows = [(*row[:2], *row[3:]) for row in rows]
        first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        for number, (name, *values) in enumerate(rows):
            line = name.ljust(first) + "".join(
                cell.rjust(width + 2) for cell, width in zip(values, widths, strict=True)
            )
            yield Text(INDENT + line, style="" if number else "dim")
        note = Text(f"Means over rows. {facts.COLUMNS_NOTE}.").wrap(self.console, self.columns - len(INDENT))
        yield from (Text(INDENT + line.plain, style="dim") for line in note)
