"""`inlayer learn`: the course in the terminal, one module per group of commands."""

from inlayer.cli.learn.commands import learn

__all__ = ["learn"]
