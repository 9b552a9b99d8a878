"""Training report as a single HTML file that loads and runs nothing.

- the layout is page.html, a Jinja template (torch installs Jinja) that escapes every value
- no scripts; the content security policy allows one style sheet, by its hash, and images embedded in the file
- untrusted text is shown with the terminal's glyphs for blanks and control characters
- colors are those of the walk page, light or dark like the reader's system
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, Template

from inlayer.render import hash_of, read_files, style_sheet
from inlayer.render.glyphs import glyphs_for
from inlayer.render.numbers import short
from inlayer.training import report as facts
from inlayer.training.report import MAX_TEXT, TrainingReport

GLYPHS = glyphs_for("utf-8", color=True)
MAX_NAME_WIDTH, MAX_TOKEN_WIDTH = 120, 40
MAX_ROWS = 12  # of the table of metrics
METRICS = {
    "step": "step",
    "tokens": "tokens",
    "loss": "loss",
    "validation_loss": "validation",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "row_norm_mean": "mean row norm",
    "mean_vector_ratio": "mean-vector ratio",
    "output_share": "output share",
    "logit_std": "logit std",
}


def to_html(report: TrainingReport, metrics: Sequence[Mapping[str, Any]], png: bytes | None) -> str:
    """The whole document; `png` is the plot of the run, if there is one."""
    style = f"\n{style_sheet()}\n{read_files('inlayer.training.report', 'report.css')}"
    lines = _choose(metrics)
    names = [name for name in METRICS if any(name in line for line in lines)]
    return _template().render(
        report=report,
        name=GLYPHS.fold(report.name, MAX_NAME_WIDTH, blank=" "),
        style=style,
        policy=f"default-src 'none'; style-src '{hash_of(style)}'; img-src data:; base-uri 'none'; form-action 'none'",
        summary=list(facts.summary(report)),
        plot=None if png is None else base64.b64encode(png).decode(),
        columns=facts.COLUMNS,
        columns_note=facts.COLUMNS_NOTE,
        changes=[facts.change_cells(one, GLYPHS.arrow, GLYPHS.times) for one in report.table.groups],
        table_notes=[f"{label.capitalize()}: {text}" for label, text in facts.table_notes(report)],
        metric_names=[METRICS[name] for name in names],
        metrics=[[_value(line.get(name)) for name in names] for line in lines],
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters |= {
        "line": lambda text: GLYPHS.safe(str(text)[:MAX_TEXT]).replace("->", GLYPHS.arrow),
        "lines": lambda text: "\n".join(map(GLYPHS.safe, text[:MAX_TEXT].split("\n"))),
        "token": lambda text: GLYPHS.fold(text, MAX_TOKEN_WIDTH) or '""',
        "value": _value,
    }
    return environment.from_string(read_files("inlayer.training.report", "page.html"))


def _choose(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A few evenly spaced lines of the metrics including the last, preferably of steps that measured the table."""
    full = [line for line in metrics if "row_norm_mean" in line] or list(metrics)
    chosen = {round(number * (len(full) - 1) / (MAX_ROWS - 1)) for number in range(MAX_ROWS)}
    return [full[number] for number in sorted(chosen)] if full else []


def _value(value: Any) -> str:
    if value is None or value in ("", (), []) or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return short(value) if isinstance(value, float) else str(value)
