"""Terminal output of a trace: eight steps with aligned numbers and heat strips.

trace -> [terminal] -> console
- color is used only if the terminal has it, and no step depends on it; the output is ASCII if the terminal requires it
- no line is wider than the terminal, none ends in spaces, and no text can control the terminal
- layout.py: columns and line types; step_lines.py: the steps
- elsewhere: all computation (trace/run.py); how a character or a number is written (inlayer/render/glyphs.py)
Tested at three widths, against snapshots and with hostile texts, in tests/trace/test_terminal.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from inlayer.errors import InputError
from inlayer.render.numbers import count
from inlayer.trace.facts import Trace
from inlayer.trace.steps import setup_code
from inlayer.trace.terminal.layout import Layout
from inlayer.trace.terminal.step_lines import STEPS

__all__ = ["show"]

FIRST_WITH_STRIPS = 5


def show(trace: Trace, console: Console, *, step: int | None = None, tokens: int | None = None) -> None:
    """Print all steps, or one of them. `tokens` limits the tokens shown per text; the default fits a screen."""
    if step is not None and not 1 <= step <= len(STEPS):
        raise InputError(f"step is {step}; it must be in 1..{len(STEPS)}")
    color = console.color_system is not None and not console.no_color
    layout = Layout(trace, console.width, console.encoding, color=color, max_tokens=tokens)
    for line in _lines(layout, step):
        layout.cut(line)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _lines(layout: Layout, wanted: int | None) -> Iterator[Text]:
    yield from _model(layout)
    for line in setup_code(layout.trace, wanted):
        yield from layout.code(line, indent=0)
    if wanted is None or wanted >= FIRST_WITH_STRIPS:
        yield _legend(layout)
    for step in layout.trace.steps:
        if wanted in (None, step.number):
            yield Text()
            yield from layout.heading(step)
            if layout.trace.input == "text" or step.number >= FIRST_WITH_STRIPS:
                yield from STEPS[step.number - 1](layout)


def _model(layout: Layout) -> Iterator[Text]:
    """The model, and the changes that were made."""
    trace = layout.trace
    name = f"{trace.source} ({trace.note})" if trace.note else trace.source
    yield from layout.note(name, style="bold", indent=0)
    change = trace.change
    changes = [
        f"positions {change.positions}" if change.positions else "",
        f"theta {change.theta:,.10g}" if change.theta is not None else "",
        f"tokens {change.swap[0]} and {change.swap[1]} swapped" if change.swap else "",
        f"{count(change.pad, 'padding token')} added" if change.pad else "",
    ]
    if any(changes):
        yield from layout.note(f"changed: {', '.join(filter(None, changes))}", style="yellow", indent=0)


def _legend(layout: Layout) -> Text:
    legend = Text().append("heat strips: ", style="dim")
    for value, name in ((-1.0, "negative"), (0.0, "zero"), (1.0, "positive")):
        legend.append_text(layout.glyphs.heat([value], 1.0)).append(f" {name}  ", style="dim")
    return legend
