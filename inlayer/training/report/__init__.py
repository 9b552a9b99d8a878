"""Training report: what was trained, how the loss fell, what the table learned; for terminals, as JSON, as a page.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- facts.py: the data, the JSON and the shared text; terminal.py and page.py: the layouts
- tokens, prompts and names are untrusted: they can neither control the terminal nor run in the page
- values that are not finite (a diverged run) are null in the JSON and a dash elsewhere
- elsewhere: the comparison of tables (analysis.py), the plot (plot.py)
Tested at three widths in tests/training/test_report.py, in Chromium in tests/browser/test_training.py.
"""

from inlayer.training.report.facts import LossSummary, TextSample, TrainingReport, to_json
from inlayer.training.report.page import to_html
from inlayer.training.report.terminal import show

__all__ = ["LossSummary", "TextSample", "TrainingReport", "show", "to_html", "to_json"]
