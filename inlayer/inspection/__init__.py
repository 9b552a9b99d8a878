"""Inspection: is the embedding layer of a checkpoint healthy? Facts and findings, from the files alone.

source -> Model -> facts -> findings -> Report
- inspect.py collects facts and findings; the check_*.py modules decide what is a finding
- report.py contains the facts, findings.py the codes and the advice; terminal.py and html.py show both
- numpy only: torch is never imported
"""

from inlayer.inspection.findings import Example, Finding
from inlayer.inspection.inspect import inspect
from inlayer.inspection.report import Report

__all__ = ["Example", "Finding", "Report", "inspect"]
