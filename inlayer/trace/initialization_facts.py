"""Facts of an initialization: how a table of the model's width is drawn.

Tested against the library in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class InitializationStep:
    """The table after one step of its initialization."""

    title: str
    note: str
    code: str  # the line of PyTorch that performs it
    mean: float
    std: float
    counts: list[int]  # histogram of all values between the edges
    edges: list[float]  # one more than counts
    rows: list[list[float]]  # the rows of `InitializationFacts.ids`, first `dims` channels


@dataclass(frozen=True, kw_only=True)
class InitializationFacts:
    """How a table of the model's width is initialized: drawn, drawn again with the model's std, padding row zeroed."""

    vocab_size: int  # rows of the table shown, which has fewer rows than a very large model's
    width: int
    padding_idx: int | None
    seed: int
    init_std: float
    dims: int
    ids: list[int]  # rows shown, the padding row among them
    steps: list[InitializationStep]
