"""Training report as a single HTML file that loads and runs nothing.

- no scripts; the content security policy allows one style sheet, by its hash, and images embedded in the file
- untrusted text is shown with the terminal's glyphs for blanks and control characters, then escaped
- colors are those of the walk page, light or dark like the reader's system
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from inlayer.render import style_sheet
from inlayer.render.glyphs import glyphs_for
from inlayer.render.numbers import short
from inlayer.training.analysis import TokenComparison, TokenNeighbor
from inlayer.training.report import facts
from inlayer.training.report.facts import MAX_TEXT, TextSample, TrainingReport

__all__ = ["to_html"]

GLYPHS = glyphs_for("utf-8", color=True)
MAX_NAME_WIDTH = 120
MAX_TOKEN_WIDTH = 40
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
PLOT_DESCRIPTION = "Four plots over training steps: loss, row norms, mean-vector ratio, gradient share by side."
MARK = (
    '<svg class="mark" viewBox="0 0 16 16" aria-hidden="true"><rect class="mark-cold" width="7" height="7"/>'
    '<rect class="mark-rest" x="9" width="7" height="7"/><rect class="mark-rest" y="9" width="7" height="7"/>'
    '<rect class="mark-hot" x="9" y="9" width="7" height="7"/></svg>'
)


def to_html(report: TrainingReport, metrics: Sequence[Mapping[str, Any]], png: bytes | None) -> str:
    """The whole document; `png` is the plot of the run, if there is one."""
    name = escape(GLYPHS.fold(report.name, MAX_NAME_WIDTH, blank=" "))
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{name}: training report</title>\n<style>{_style()}</style>\n</head>\n<body>",
            f'<header class="bar"><p class="brand">{MARK} inlayer</p><p class="muted">training report</p></header>',
            f"<main>\n<h1><bdi>{name}</bdi></h1>",
            *_summary(report),
            *_plot(png),
            *_neighborhoods(report.table.tokens),
            *_changes(report),
            *([] if report.sample is None else _sample(report.sample)),
            *_metrics(metrics),
            *_pairs("Model", report.model),
            *_pairs("Settings", report.settings),
            "</main>\n</body>\n</html>\n",
        )
    )


# ---- sections


def _summary(report: TrainingReport) -> Iterator[str]:
    yield '<dl class="facts">'
    for name, text in facts.summary(report):
        yield f"<div><dt>{name}</dt><dd>{_safe(text)}</dd></div>"
    yield "</dl>"
    for warning in report.warnings:
        yield f'<p class="warning"><strong>warning</strong> {_safe(warning)}</p>'


def _plot(png: bytes | None) -> Iterator[str]:
    yield "<section><h2>Course of training</h2>"
    if png is None:
        yield "<p class=\"note\">No plot: it needs matplotlib, <code>pip install 'inlayer[train]'</code>.</p>"
    else:
        data = base64.b64encode(png).decode()
        yield '<div class="scroll" role="region" tabindex="0" aria-label="Plots of the run">'
        yield f'<img src="data:image/png;base64,{data}" alt="{PLOT_DESCRIPTION}"></div>'
    yield "</section>"


def _neighborhoods(tokens: Sequence[TokenComparison]) -> Iterator[str]:
    if not tokens:
        return
    yield '<section><h2>Nearest neighbors, before and after training</h2><p class="note">By cosine similarity. '
    yield 'Rows are random before training, so neighbors mean nothing there.</p><div class="words">'
    for one in tokens:
        times = "once" if one.count == 1 else f"{one.count:,} times"
        yield f'<article><h3>{_token(one.token)} <span class="muted">{times} in the text</span></h3>'
        for name, neighbors in (("before", one.before), ("after", one.after)):
            yield f'<div class="{name}"><h4>{name}</h4>'
            yield "<ol>" + "".join(map(_neighbor, neighbors)) + "</ol>" if neighbors else "<p>none (zero row)</p>"
            yield "</div>"
        yield "</article>"
    yield "</div></section>"


def _neighbor(one: TokenNeighbor) -> str:
    return f'<li>{_token(one.token)}{_bar(one.cosine)}<span class="number">{one.cosine:.2f}</span></li>'


def _changes(report: TrainingReport) -> Iterator[str]:
    table = report.table
    yield '<section><h2>Change of the rows</h2><p class="note">Means over rows, by how often their token occurs in '
    yield f"the text. {facts.COLUMNS_NOTE}.</p>"
    yield from _table(
        facts.COLUMNS, (facts.change_cells(one, "→", "×") for one in table.groups), name="Change by frequency"
    )
    yield f'<p class="note">Mean vector: {_safe(facts.mean_vector_text(table))}.</p>'
    if table.nonfinite_rows:
        text = f"{table.nonfinite_rows:,} rows contain NaN or infinity"
        yield f'<p class="warning"><strong>not finite</strong> {text}</p>'
    yield "</section>"


def _sample(sample: TextSample) -> Iterator[str]:
    yield "<section><h2>Generated text</h2>"
    yield f'<pre><span class="prompt">{_lines(sample.prompt)}</span>{_lines(sample.text)}</pre></section>'


def _metrics(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few evenly spaced lines of the metrics including the last, preferably of steps that measured the table."""
    full = [line for line in metrics if "row_norm_mean" in line] or list(metrics)
    if not full:
        return
    chosen = sorted({round(number * (len(full) - 1) / (MAX_ROWS - 1)) for number in range(MAX_ROWS)})
    lines = [full[number] for number in chosen]
    names = [name for name in METRICS if any(name in line for line in lines)]
    yield "<section><h2>Metrics</h2>"
    yield from _table(
        [METRICS[name] for name in names],
        ([_value(line.get(name)) for name in names] for line in lines),
        name="Metrics of selected steps",
    )
    yield "</section>"


def _pairs(title: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield f'<details><summary>{title}</summary><dl class="pairs">'
        for name, value in values.items():
            yield f"<div><dt>{_safe(str(name))}</dt><dd>{_safe(_value(value))}</dd></div>"
        yield "</dl></details>"


# ---- elements


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, name: str) -> Iterator[str]:
    """A table that scrolls in its own box if it is wider than the page."""
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{name}"><table><thead><tr>'
    yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads) + "</tr></thead><tbody>"
    for first, *cells in rows:
        rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{escape(first)}</th>{rest}</tr>'
    yield "</tbody></table></div>"


def _bar(share: float) -> str:
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return (
        '<svg class="bar-box" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bar-full" width="{width}" height="6"/></svg>'
    )


def _token(token: str) -> str:
    shown = GLYPHS.fold(token, MAX_TOKEN_WIDTH) or '""'
    return f'<bdi class="token">{escape(shown)}</bdi>'


def _safe(text: str) -> str:
    return escape(GLYPHS.safe(text[:MAX_TEXT]).replace("->", GLYPHS.arrow))


def _lines(text: str) -> str:
    return "\n".join(escape(GLYPHS.safe(line)) for line in text[:MAX_TEXT].split("\n"))


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


# ---- style


@cache
def _style() -> str:
    own = files("inlayer.training.report").joinpath("report.css").read_text(encoding="utf-8")
    return f"\n{style_sheet()}\n{own}"


@cache
def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
