"""An inspection as one HTML page that loads nothing: facts, norms of the rows, findings with their tokens, and the map.

report, map -> [page] -> browser
- `inlayer inspect --html FILE` embeds its data; `inlayer serve` sends the same page without data, which calls the API
- the map is that of geometry/page/map_canvas.js; rows of a finding have its color
Tested in tests/inspection/test_page.py.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.geometry.map_facts import map_facts
from inlayer.geometry.map_page import MAP_SCRIPTS, map_files
from inlayer.inspection.report import Report
from inlayer.render import embed_json, fill_page, hash_of, style_sheet

MAX_MAP_ROWS = 60_000


def inspect_facts(report: Report) -> dict[str, Any]:
    """The JSON of a report, with the histogram of norms as counts and edges, and the ids of each kind of finding."""
    rows = report.rows
    edges: list[float] = []
    if rows.histogram_min is not None and rows.histogram_max is not None:
        edges = np.linspace(rows.histogram_min, rows.histogram_max, len(rows.norm_histogram) + 1).tolist()
    norms = {"counts": list(rows.norm_histogram), "edges": edges}
    ids = {code: list(report.ids(code)) for code in dict.fromkeys(finding.code for finding in report.findings)}
    return report.to_dict() | {"norms": norms, "ids": ids}


def inspect_page(report: Report | None = None, model: Model | None = None) -> str:
    """The whole document, with the data of a report and the map of its model, or without for a served page."""
    data = None
    if report is not None and model is not None:
        data = {"report": inspect_facts(report), "map": _map(model)}
    title = "Inspect" if report is None else f"Inspect {report.source}"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{inspect_policy(served=False)}">'
    parts = {
        "policy": "" if data is None else policy, "title": escape(title.encode(errors="replace").decode()),
        "style": _style(), "script": _script(), "data": embed_json(data),
    }  # fmt: skip
    return fill_page(_part("inspect.html"), parts)


@cache
def inspect_policy(*, served: bool) -> str:
    """The content security policy: a header for a served page, a meta element in a file."""
    rules = [
        "default-src 'none'", f"script-src '{hash_of(_script())}'", f"style-src '{hash_of(_style())}'",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    return "; ".join([*rules, "connect-src 'self'", "frame-ancestors 'none'"] if served else rules)


def _map(model: Model) -> dict[str, Any]:
    """The map of the table, or a note that says why there is none."""
    rows = model.table.num_embeddings
    if model.store.remote or rows > MAX_MAP_ROWS:
        why = "remote" if model.store.remote else f"too large for this file ({rows:,} rows)"
        return {"note": f"The table is {why}, so its map is not shown."}
    try:
        return asdict(map_facts(model.table, model.vocabulary, model.project("best")))
    except InlayerError as error:  # fewer than three rows with a direction, or a damaged tokenizer
        return {"note": f"There is no map: {error}."}


@cache
def _style() -> str:
    return style_sheet() + map_files("map_canvas.css") + _part("inspect.css")


@cache
def _script() -> str:
    return '"use strict";\n' + map_files(*MAP_SCRIPTS) + _part("inspect.js")


def _part(name: str) -> str:
    return (files("inlayer.inspection") / "page" / name).read_text("utf-8")
