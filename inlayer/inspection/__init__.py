"""Inspection: is a checkpoint's embedding layer healthy? Facts and findings, from the files alone.

source -> Model -> facts -> findings -> Report
- inspect.py collects facts and findings; the check_*.py modules decide what is a finding
- report.py defines the facts, and findings.py the codes and the advice; terminal.py and html.py show both
- numpy only: torch is never imported
"""

from inlayer.inspection.findings import Example, Finding
from inlayer.inspection.inspect import inspect
from inlayer.inspection.report import Report

__all__ = ["Example", "Finding", "Report", "inspect"]
