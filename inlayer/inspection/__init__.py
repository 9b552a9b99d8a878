"""Inspection: is the embedding layer of a checkpoint healthy? Facts and findings, from the files alone.

source -> Model -> facts -> findings -> Report
- the checks: check_layer.py (table, positions, other tensors), check_tokens.py, check_rows.py, check_head.py,
  check_tables.py (every other table)
- inspect.py has `inspect`, report.py the facts, findings.py the codes and advice; terminal.py prints both
- all rows are read once, in blocks (scan.py); `quick` reads headers and a sample, and may miss defects in between
- numpy only: torch is never imported
Tested on real models, which must pass, in tests/inspection/test_report.py, and with one damaged checkpoint per fault in
tests/inspection/test_faults.py.
"""

from inlayer.inspection.findings import Example, Finding
from inlayer.inspection.inspect import inspect
from inlayer.inspection.report import Report

__all__ = ["Example", "Finding", "Report", "inspect"]
