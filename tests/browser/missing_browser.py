"""A line at the end of the test run if the browser tests were skipped.

tests/conftest.py also uses the hook: with pytest-xdist, the process that writes the summary reads no other conftest.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MISSING", "pytest_terminal_summary"]

MISSING = (
    "THE BROWSER TESTS DID NOT RUN: they need Chromium (on Debian: make browser) and "
    "playwright (pip install playwright)"
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    missing = any("THE BROWSER TESTS DID NOT RUN" in str(report.longrepr) for report in skipped)
    if missing and not getattr(terminalreporter, "reported_no_browser", False):
        terminalreporter.reported_no_browser = True
        terminalreporter.write_line(MISSING, red=True, bold=True)
