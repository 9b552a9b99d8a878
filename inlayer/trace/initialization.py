"""The birth of a table: created once, then only looked up.

- what `nn.Embedding` draws is N(0, 1); the small numbers come from the model's own init afterwards, which overwrites
  the padding row too, so that it must be zeroed again: three moments, and the table is shown at each
- the table has the width of the model's and as many of its rows as take no time to draw
Checked against inlayer's own Table in tests/trace/test_birth.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inlayer.shapes import check_seed
from inlayer.tensors import one_thread
from inlayer.trace.facts import Birth, BirthStage
from inlayer.trace.parts import Parts

__all__ = ["give_birth"]

MAX_VALUES = 2**20
WATCHED = 4  # rows
BARS = 41


@one_thread()
@torch.no_grad()
def give_birth(parts: Parts, seed: int, dims: int) -> Birth:
    """Make a table like the model's, step by step."""
    rows, width = parts.table.shape
    rows = max(2, min(rows, MAX_VALUES // width))
    padding = parts.layer.padding_idx
    shown = None if padding is None else min(padding, rows - 1)  # of a table cut short, the last row stands for it
    generator = torch.Generator().manual_seed(check_seed(seed))
    std = parts.init_std
    ids = sorted({*range(WATCHED), *([] if shown is None else [shown])})[-WATCHED - 1 :]
    ids = [token_id for token_id in ids if token_id < rows]

    # What nn.Embedding does at its own birth, with a generator of our own: torch's global one belongs to the caller.
    table = nn.Embedding(rows, width, padding_idx=shown, _weight=torch.empty(rows, width))
    nn.init.normal_(table.weight, generator=generator)
    if shown is not None:
        table.weight[shown].zero_()
    stages = [
        _look(
            table.weight,
            ids,
            dims,
            "drawn",
            "nn.Embedding draws every value from N(0, 1)" + ("" if shown is None else "; its padding row is zero"),
            f"table = nn.Embedding({rows}, {width}{'' if shown is None else f', padding_idx={shown}'})",
        )
    ]
    nn.init.normal_(table.weight, std=std, generator=generator)
    stages.append(
        _look(
            table.weight,
            ids,
            dims,
            "initialized",
            f"the model draws again from N(0, {std:g})" + ("" if shown is None else ", over the padding row too"),
            f"nn.init.normal_(table.weight, std={std:g})",
        )
    )
    if shown is not None:
        table.weight[shown].zero_()
        stages.append(
            _look(
                table.weight,
                ids,
                dims,
                "padding row zeroed",
                "so it is zeroed again; from here on the table is only looked up, until training changes it",
                "with torch.no_grad(): table.weight[table.padding_idx].zero_()",
            )
        )
    return Birth(
        vocab_size=rows,
        width=width,
        padding_idx=shown,
        seed=seed,
        init_std=std,
        dims=min(dims, width),
        ids=ids,
        stages=stages,
    )


def _look(weight_VD: Tensor, ids: list[int], dims: int, title: str, note: str, code: str) -> BirthStage:
    """The table at this moment: its spread, over a range that holds nearly all values, and some rows."""
    mean, std = float(weight_VD.mean()), float(weight_VD.std())
    edge = 4 * std if std > 0 else 1.0
    counts = torch.histc(weight_VD, BARS, -edge, edge)
    return BirthStage(
        title=title,
        note=note,
        code=code,
        mean=mean,
        std=std,
        counts=[int(count) for count in counts.tolist()],
        edges=torch.linspace(-edge, edge, BARS + 1).tolist(),
        rows=weight_VD[ids, :dims].tolist(),
    )
