"""How a table is initialized, step by step.

- nn.Embedding draws from N(0, 1). The model's own initialization then draws again with a small std, which overwrites
  the padding row too, so that row has to be zeroed again. The table is shown after each of these steps
- the table has the model's width, and as many rows as can be drawn without a delay
Tested in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from inlayer.shapes import check_seed
from inlayer.tensors import one_thread
from inlayer.trace.facts import InitializationFacts, InitializationStep

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

__all__ = ["initialize"]

MAX_VALUES = 2**20
SHOWN_ROWS = 4
BINS = 41


@one_thread()
@torch.no_grad()
def initialize(pipeline: Pipeline, seed: int, dims: int) -> InitializationFacts:
    """Initialize a table like the model's and record every step."""
    rows, width = pipeline.table.shape
    rows = max(2, min(rows, MAX_VALUES // width))
    padding = pipeline.layer.padding_idx
    if padding is not None:
        padding = min(padding, rows - 1)  # in a shortened table, the last row stands for the padding row
    generator = torch.Generator().manual_seed(check_seed(seed))
    std = pipeline.init_std
    ids = sorted({*range(SHOWN_ROWS), *([] if padding is None else [padding])})[-SHOWN_ROWS - 1 :]
    ids = [token_id for token_id in ids if token_id < rows]
    steps: list[InitializationStep] = []

    # The same draw as nn.Embedding's own, but with a separate generator: torch's global one belongs to the caller.
    table = nn.Embedding(rows, width, padding_idx=padding, _weight=torch.empty(rows, width))

    def record(title: str, note: str, code: str) -> None:
        steps.append(_step(table.weight, ids, dims, title=title, note=note, code=code))

    nn.init.normal_(table.weight, generator=generator)
    if padding is not None:
        table.weight[padding].zero_()
    record(
        "drawn from N(0, 1)",
        "nn.Embedding draws every value from N(0, 1)" + ("" if padding is None else " and zeroes the padding row"),
        f"table = nn.Embedding({rows}, {width}{'' if padding is None else f', padding_idx={padding}'})",
    )
    nn.init.normal_(table.weight, std=std, generator=generator)
    record(
        "initialized by the model",
        f"the model draws again with std {std:g}" + ("" if padding is None else ", which overwrites the padding row"),
        f"nn.init.normal_(table.weight, std={std:g})",
    )
    if padding is not None:
        table.weight[padding].zero_()
        record(
            "padding row zeroed",
            "the padding row is zeroed again; from here on, rows are only looked up until training updates them",
            "with torch.no_grad(): table.weight[table.padding_idx].zero_()",
        )
    return InitializationFacts(
        vocab_size=rows,
        width=width,
        padding_idx=padding,
        seed=seed,
        init_std=std,
        dims=min(dims, width),
        ids=ids,
        steps=steps,
    )


def _step(weight_VD: Tensor, ids: list[int], dims: int, *, title: str, note: str, code: str) -> InitializationStep:
    """Record the table: a histogram over a range that covers nearly all values, and some rows."""
    mean, std = float(weight_VD.mean()), float(weight_VD.std())
    edge = 4 * std if std > 0 else 1.0
    counts = torch.histc(weight_VD, BINS, -edge, edge)
    return InitializationStep(
        title=title,
        note=note,
        code=code,
        mean=mean,
        std=std,
        counts=[int(count) for count in counts.tolist()],
        edges=torch.linspace(-edge, edge, BINS + 1).tolist(),
        rows=weight_VD[ids, :dims].tolist(),
    )
