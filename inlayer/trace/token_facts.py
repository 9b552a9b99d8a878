"""Facts about a model outside a walk: one token with its neighbors, and how a table like the model's is initialized.

- nn.Embedding draws from N(0, 1). The model's initialization then redraws all values with a small std. That overwrites
  the padding row too, so the row has to be zeroed again. The table is shown after each of these steps
- the table has the model's width, and as many rows as can be drawn without a noticeable delay
Tested in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from inlayer.checks import check_seed
from inlayer.errors import IdRangeError, InputError
from inlayer.facts_base import Facts
from inlayer.geometry.nearest import nearest_to_row
from inlayer.tensors import one_thread
from inlayer.tokenizers.base import token_bytes
from inlayer.trace.facts import NeighborFacts, TokenFacts
from inlayer.trace.record import values_of

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

MAX_CHANNELS = 512
MAX_SEARCHED = 2**31  # largest table, in values, that is searched for neighbors
MAX_NEIGHBORS = 100
MAX_INITIALIZED_VALUES = 2**20  # largest table that is initialized
SHOWN_ROWS = 4
BINS = 41


class InitializationStep(Facts):
    """The table after one step of its initialization."""

    title: str
    note: str
    code: str  # the line of PyTorch that performs it
    mean: float
    std: float
    counts: list[int]  # histogram of all values between the edges
    edges: list[float]  # one more than counts
    rows: list[list[float]]  # the rows of `InitializationFacts.ids`, first `dims` channels


class InitializationFacts(Facts):
    """Initialization of a table of the model's width: drawn, redrawn with the model's std, padding row zeroed."""

    vocab_size: int  # rows of the table shown, fewer than in a very large model
    width: int
    padding_idx: int | None
    seed: int
    init_std: float
    dims: int
    ids: list[int]  # rows shown, including the padding row
    steps: list[InitializationStep]


@one_thread()
@torch.no_grad()
def describe_token(pipeline: Pipeline, token_id: int, *, k: int = 8) -> TokenFacts:
    """Describe one token id and its k nearest neighbors."""
    rows, width = pipeline.table.shape
    if not isinstance(token_id, int) or not 0 <= token_id < rows:
        raise IdRangeError(f"id {token_id!r} is outside 0..{rows - 1}, the rows of the table")
    if not isinstance(k, int) or not 0 <= k <= MAX_NEIGHBORS:
        raise InputError(f"k is {k!r}; it must be in 0..{MAX_NEIGHBORS}")
    row_D = pipeline.layer.token_embedding(torch.tensor([token_id]))[0]
    note = ""
    if pipeline.table.remote:
        note = "the table is remote; finding neighbors would download all of it"
    elif pipeline.numel() > MAX_SEARCHED:
        note = "the table is too large to search for neighbors"
    elif not bool(row_D.float().any()):
        note = "the row is all zeros, so it has no nearest neighbors"
    elif not row_D.float().isfinite().all():
        note = "the row contains NaN or infinity, so it has no nearest neighbors"
    neighbors = [] if note else nearest_to_row(pipeline.stored_table, token_id, k)
    return TokenFacts(
        id=token_id,
        token=pipeline.token_text(token_id),
        label=pipeline.token_text(token_id),
        bytes=(token_bytes(pipeline.tokenizer, token_id) or b"").hex(),
        special=pipeline.tokenizer is None or token_id in pipeline.tokenizer.special_ids,
        offset=pipeline.table.row_offset(token_id),
        stored_hex=pipeline.stored_hex([token_id], row_D[None], slice(0, 8))[0],
        row=values_of(row_D, slice(0, MAX_CHANNELS)),
        width=width,
        norm=float(row_D.float().norm()),
        neighbors=[
            NeighborFacts(id=near, label=pipeline.token_text(near), cosine=cosine) for near, cosine in neighbors
        ],
        note=note,
    )


@one_thread()
@torch.no_grad()
def initialize(pipeline: Pipeline, *, seed: int = 0, dims: int = 8) -> InitializationFacts:
    """Initialize a table like the model's and record every step."""
    rows, width = pipeline.table.shape
    rows = max(2, min(rows, MAX_INITIALIZED_VALUES // width))
    padding, std = pipeline.layer.padding_idx, pipeline.init_std
    if padding is not None:
        padding = min(padding, rows - 1)  # the last row of a shortened table stands for the padding row
    ids = [token_id for token_id in sorted({*range(SHOWN_ROWS), padding or 0}) if token_id < rows]
    generator = torch.Generator().manual_seed(check_seed(seed))
    # The same draw as in nn.Embedding, but with a separate generator: torch's global one belongs to the caller.
    table = nn.Embedding(rows, width, padding_idx=padding, _weight=torch.empty(rows, width))
    steps: list[InitializationStep] = []

    def record(title: str, note: str, code: str) -> None:
        """Record the table: a histogram over a range that covers nearly all values, and some rows."""
        mean, spread = float(table.weight.mean()), float(table.weight.std())
        edge = 4 * spread if spread > 0 else 1.0
        counts = torch.histc(table.weight, BINS, -edge, edge).long().tolist()
        edges, shown = torch.linspace(-edge, edge, BINS + 1).tolist(), table.weight[ids, :dims].tolist()
        steps.append(
            InitializationStep(
                title=title, note=note, code=code, mean=mean, std=spread, counts=counts, edges=edges, rows=shown
            )
        )

    has_padding, argument = padding is not None, "" if padding is None else f", padding_idx={padding}"
    nn.init.normal_(table.weight, generator=generator)
    if has_padding:
        table.weight[padding].zero_()
    note = "nn.Embedding draws every value from N(0, 1)" + " and zeroes the padding row" * has_padding
    record("drawn from N(0, 1)", note, f"table = nn.Embedding({rows}, {width}{argument})")
    nn.init.normal_(table.weight, std=std, generator=generator)
    note = f"the model redraws all values with std {std:g}" + ", which overwrites the padding row" * has_padding
    record("initialized by the model", note, f"nn.init.normal_(table.weight, std={std:g})")
    if has_padding:
        table.weight[padding].zero_()
        note = "the padding row is zeroed again; from now on, rows are only looked up until training updates them"
        record("padding row zeroed", note, "with torch.no_grad(): table.weight[table.padding_idx].zero_()")
    return InitializationFacts(
        vocab_size=rows, width=width, padding_idx=padding, seed=seed, init_std=std, dims=min(dims, width), ids=ids,
        steps=steps,
    )  # fmt: skip
