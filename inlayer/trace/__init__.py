"""trace: one trace of the whole line for your own text, and its renderings."""

from inlayer.trace.facts import Change, Trace, plain
from inlayer.trace.line import Line, newborn, walk

__all__ = ["Change", "Line", "Trace", "newborn", "plain", "walk"]
