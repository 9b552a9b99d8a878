"""Trace: run texts through a model's embedding layer and record every step."""

from inlayer.facts_base import plain
from inlayer.trace.facts import Change, Trace
from inlayer.trace.gradient_step import take_gradient_step
from inlayer.trace.pipeline import Pipeline, walk
from inlayer.trace.scene import describe_scene

__all__ = ["Change", "Pipeline", "Trace", "describe_scene", "plain", "take_gradient_step", "walk"]
