"""Tied or not, asked three ways: the config's flag, a head in the files, and whether it equals the table bit for bit.

[checkpoint] files -> [facts -> findings]
- the head is read in blocks beside the table; the first block that differs settles it. The same pass tells what its
  rows are like
- a head of another shape is not read: whatever it claims to be, it cannot serve
- not here: what its rows should be like (doctor/head_rows.py), the logits a head gives (inlayer/head.py)
Checked with damaged copies in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inlayer.checkpoint.model import WITH_HEAD, Model
from inlayer.errors import InlayerError
from inlayer.inspection.health import Progress, RowStatistics, scan_rows
from inlayer.inspection.layer import LONGEST_NAME, text_config
from inlayer.inspection.report import Finding, HeadFacts, shorten
from inlayer.paths import quoted
from inlayer.tensors import to_tensor

__all__ = ["Comparison", "compare_head", "head_facts", "head_findings"]


class Comparison:
    """What reading the head gave: `equal` to the table or not, and what its rows are like."""

    def __init__(self) -> None:
        self.equal: bool | None = None
        self.shape: tuple[int, ...] | None = None
        self.statistics: RowStatistics | None = None
        self.failure = ""

    @property
    def bad_rows(self) -> int:
        """Rows that are not finite."""
        return 0 if self.statistics is None else int((~self.statistics.finite).sum())


def compare_head(model: Model, ids: npt.NDArray[np.int64] | None, progress: Progress | None = None) -> Comparison:
    """Read the head's rows `ids`, all where None, beside the table's: a head of another shape is not read."""
    result = Comparison()
    if model.head_name is None:
        return result
    try:
        result.shape = tuple(model.store.find(model.head_name).shape)
        if result.shape != tuple(model.table_info.shape):
            result.equal = False
            return result
        head, table = model.store.table(model.head_name), model.table
        alike = True

        def compare(place: npt.NDArray[np.int64], rows: Tensor) -> None:
            nonlocal alike
            alike = alike and _equal(rows, to_tensor(table.rows(place)))

        result.statistics = scan_rows(head, ids, None, progress, compare)
        result.equal = alike
    except InlayerError as error:
        result.failure = shorten(str(error), 300)
    return result


def _equal(ours: Tensor, theirs: Tensor) -> bool:
    """Bit for bit; where the two are stored in different dtypes, value for value."""
    if ours.dtype == theirs.dtype:
        return torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    return torch.equal(ours.double(), theirs.double())


def head_facts(model: Model, comparison: Comparison) -> HeadFacts:
    config = text_config(model.config)
    classes = config.get("architectures")
    named = [str(name) for name in classes] if isinstance(classes, list) else []
    return HeadFacts(
        flag=model.spec.head.tied if model.spec is not None else None,
        flag_written=isinstance(config.get("tie_word_embeddings"), bool),
        tensor=shorten(model.head_name, LONGEST_NAME) if model.head_name is not None else None,
        shape=comparison.shape,
        equal=comparison.equal,
        expected=any(WITH_HEAD.search(name) for name in named) if named else None,
    )


def head_findings(model: Model, facts: HeadFacts, comparison: Comparison) -> Iterator[Finding]:
    """Where flag, tensor and bits contradict each other."""
    if facts.tensor is None:
        if facts.flag is False and facts.expected:
            yield Finding(
                severity="error",
                code="head-missing",
                meaning="the config says that head and table are two, and its class has a head; there is none in the "
                "files",
                advice="set tie_word_embeddings to true if the model is tied; else the files are not complete",
            )
        return
    if comparison.failure:
        yield Finding(
            severity="warning",
            code="head-unreadable",
            meaning=f"the head {facts.tensor} cannot be read: {comparison.failure}",
            advice="fetch the file that holds it",
        )
        return
    if facts.shape != tuple(model.table_info.shape):
        yield Finding(
            severity="error",
            code="head-shape-differs",
            meaning=f"the head {facts.tensor} has shape {quoted(facts.shape)}, the table {model.table_info.shape}",
            advice="was one of the two resized without the other? Resize both to the same number of rows",
        )
    elif facts.flag and facts.equal is False:
        yield Finding(
            severity="error" if facts.flag_written else "warning",
            code="tied-head-differs",
            meaning="the config ties head and table, but the head in the files has other values: a loader that ties "
            "them drops it",
            advice="set tie_word_embeddings to false if the head was trained apart; else delete it from the files",
        )
    elif facts.flag is False and facts.equal:
        yield Finding(
            severity="note",
            code="head-equals-table",
            meaning="head and table are said to be two, and equal each other bit for bit",
            advice="tie them to save the bytes of one, unless they are to be trained apart",
        )
    elif facts.flag and facts.equal:
        yield Finding(
            severity="note",
            code="head-stored-twice",
            meaning="head and table are tied, and stored twice",
            advice="the head can be left out of the files",
        )
    if comparison.bad_rows:
        yield Finding(
            severity="error",
            code="head-not-finite",
            meaning=f"{comparison.bad_rows:,} rows of the head {facts.tensor} hold NaN or infinity: so does every loss",
            advice="fetch the file again; if it is a fresh training result, the run diverged",
            count=comparison.bad_rows,
        )
