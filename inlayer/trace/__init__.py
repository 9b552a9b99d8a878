"""Trace: run texts through a model's embedding layer and record every step."""

from inlayer.trace.facts import Change, Trace, plain
from inlayer.trace.pipeline import Pipeline, walk

__all__ = ["Change", "Pipeline", "Trace", "plain", "walk"]
