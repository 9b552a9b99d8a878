"""walk: one trace of the whole line for your own text, and its renderings."""

from inlayer.walk.terminal import show
from inlayer.walk.trace import Trace, trace_texts

__all__ = ["Trace", "show", "trace_texts"]
