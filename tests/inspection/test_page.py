"""The page of an inspection: its data equal the report, and it loads nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import inlayer
from inlayer.inspection.html import inspect_facts, inspect_page


def test_page_contains_report_and_map(tmp_path: Path) -> None:
    model = inlayer.load("default")
    report = inlayer.inspect(model)
    page = inspect_page(report, model)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["report"] == json.loads(json.dumps(inspect_facts(report)))
    assert data["report"]["ids"]["undertrained-tokens"] == list(report.ids("undertrained-tokens"))
    assert data["map"]["method"] == "tsne"
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "connect-src" not in page.partition("</head>")[0]
    assert '<script type="application/json" id="data">null</script>' in inspect_page()
