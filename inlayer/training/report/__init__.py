"""The report of a run: what was trained, how the loss fell, what the table learned; on a terminal, as JSON, as a page.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- facts.py: the report and its JSON; words.py: what terminal and page both say; terminal.py, page.py: the two
- tokens, prompts and names come from strangers: on the terminal nothing in them acts, on the page nothing in them runs
- a number that is none (of a diverged run) is null in the JSON and a dash elsewhere
- not here: what was learned (training/analysis.py), the picture (training/plot.py)
Checked at three widths and in Chromium in tests/training/test_report.py.
"""

from inlayer.training.report.facts import Continuation, Losses, Report, to_json
from inlayer.training.report.page import to_html
from inlayer.training.report.terminal import show

__all__ = ["Continuation", "Losses", "Report", "show", "to_html", "to_json"]
