"""trace: one trace of the whole line for your own text, and its renderings."""

from inlayer.trace.facts import Change, Trace, plain
from inlayer.trace.line import Pipeline, random_pipeline, walk

__all__ = ["Change", "Pipeline", "Trace", "plain", "random_pipeline", "walk"]
