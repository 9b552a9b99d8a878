"""A trace as lines for the terminal: eight steps, aligned numbers and strips, whatever is long folded.

text -> bytes -> pieces -> ids -> rows -> (+ positions) -> hidden states, and backwards
- color only where the terminal has it, and no step needs it; ASCII where it has no more than that
- no line is longer than the terminal is wide, none ends in blanks; nothing in a text acts on the terminal
- page.py: the forms; tokens.py, vectors.py: the steps
- not here: any computing: what is shown is what the trace holds; what a character, a number, a strip looks like
  (inlayer/render/glyphs.py)
Checked at three widths, against stored snapshots and over hostile texts, in tests/trace/test_terminal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from inlayer.errors import InputError
from inlayer.trace.facts import Trace
from inlayer.trace.terminal.page import Page
from inlayer.trace.terminal.tokens import bytes_step, ids_step, places_step, splits_step
from inlayer.trace.terminal.vectors import backward_step, hidden_step, positions_step, rows_step

__all__ = ["show"]

STEPS: list[Callable[[Page], Iterator[Text]]] = [
    bytes_step,
    splits_step,
    ids_step,
    places_step,
    rows_step,
    positions_step,
    hidden_step,
    backward_step,
]
FIRST_WITH_STRIPS = 5


def show(trace: Trace, console: Console, *, step: int | None = None, tokens: int | None = None) -> None:
    """Print every step of the line, or one of them. `tokens` of a text are shown; unsaid, as many as do not flood."""
    if step is not None and not 1 <= step <= len(STEPS):
        raise InputError(f"step is {step}; there are steps 1 to {len(STEPS)}")
    color = console.color_system is not None and not console.no_color
    page = Page(trace, console.width, console.encoding, color=color, tokens=tokens)
    for line in _lines(page, step):
        page.cut(line)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _lines(page: Page, wanted: int | None) -> Iterator[Text]:
    yield from _model(page)
    if wanted is None or wanted >= FIRST_WITH_STRIPS:
        yield _legend(page)
    for step in page.trace.steps:
        if wanted in (None, step.number):
            yield Text()
            yield from page.heading(step)
            yield from STEPS[step.number - 1](page)


def _model(page: Page) -> Iterator[Text]:
    """Whose numbers these are, and what was changed on purpose."""
    trace = page.trace
    said = f"{trace.source} ({trace.note})" if trace.note else trace.source
    yield from page.note(said, style="bold", indent=0)
    change = trace.change
    changes = [
        f"positions {change.positions}" if change.positions else "",
        f"theta {change.theta:,.10g}" if change.theta is not None else "",
        f"tokens {change.swap[0]} and {change.swap[1]} swapped" if change.swap else "",
        f"padding {change.pad} longer" if change.pad else "",
    ]
    if any(changes):
        yield from page.note(f"changed: {', '.join(filter(None, changes))}", style="yellow", indent=0)


def _legend(page: Page) -> Text:
    legend = Text().append("strips: ", style="dim")
    for value, name in ((-1.0, "negative"), (0.0, "zero"), (1.0, "positive")):
        legend.append_text(page.signs.heat([value], 1.0)).append(f" {name}  ", style="dim")
    return legend
