"""An inspection as one self-contained HTML page: facts, row norms, findings with their tokens, and the map.

report, map -> [page] -> browser
- `inlayer inspect --html FILE` embeds its data; `inlayer serve` sends the same page without data; it calls the API
- the map is drawn by geometry/page/map_canvas.js; rows have the color of their finding
Tested in tests/inspection/test_page.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from inlayer.checkpoint.model import Model
from inlayer.geometry.map_page import MAP_SCRIPTS, embedded_map, map_files
from inlayer.inspection.findings import shorten
from inlayer.inspection.report import Report
from inlayer.inspection.terminal import report_facts
from inlayer.render import Page, read_files, settings_script, style_sheet


def inspect_facts(report: Report) -> dict[str, Any]:
    """Return a report as JSON values, with the facts and the verdict as text, a histogram of the norms, and all ids."""
    rows = report.rows
    edges: list[float] = []
    if rows.histogram_min is not None and rows.histogram_max is not None:
        edges = np.linspace(rows.histogram_min, rows.histogram_max, len(rows.norm_histogram) + 1).tolist()
    norms = {"counts": list(rows.norm_histogram), "edges": edges}
    ids = {code: list(report.ids(code)) for code in dict.fromkeys(finding.code for finding in report.findings)}
    facts: list[tuple[str, list[str]]] = []  # the lines of each fact
    for label, line in report_facts(report):
        if label:
            facts.append((label, []))
        facts[-1][1].append(shorten(line, 1200))
    shown = [(label.capitalize(), lines) for label, lines in facts if label != "norms"]  # the page draws the norms
    return report.to_dict() | {"facts": shown, "verdict": report.verdict, "norms": norms, "ids": ids}


def inspect_page(report: Report | None = None, model: Model | None = None) -> str:
    """Return the whole document, with a report's data and its model's map, or without them for a served page."""
    data = None
    if report is not None and model is not None:
        _, map_data = embedded_map(model.table, lambda: model.vocabulary, remote=model.store.remote)
        data = {"report": inspect_facts(report), "map": map_data}
    return _page().document("Inspect" if report is None else f"Inspect {report.source}", data)


@cache
def inspect_policy() -> str:
    """Return the content security policy of the served page."""
    return _page().policy("connect-src 'self'", "frame-ancestors 'none'")


@cache
def _page() -> Page:
    template, style, script = (
        read_files("inlayer.inspection", f"page/inspect.{kind}") for kind in ("html", "css", "js")
    )
    style = style_sheet() + map_files("map_canvas.css") + style
    return Page(template, style, '"use strict";\n' + map_files(*MAP_SCRIPTS) + settings_script() + script)
