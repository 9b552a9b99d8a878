"""One token id: its text, its row, and its nearest neighbors in the table.

Tested in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from inlayer.errors import IdRangeError, InputError
from inlayer.neighbors import nearest
from inlayer.tensors import one_thread
from inlayer.trace.facts import NeighborFacts, TokenFacts
from inlayer.trace.run import stored_hex, values_of

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

__all__ = ["describe_token"]

MAX_CHANNELS = 512
MAX_SEARCHED = 2**31  # values of a table that is searched for neighbors
MAX_NEIGHBORS = 100


@one_thread()
@torch.no_grad()
def describe_token(pipeline: Pipeline, token_id: int, k: int) -> TokenFacts:
    """Describe one id and the k rows nearest to its own."""
    rows, width = pipeline.table.shape
    if not isinstance(token_id, int) or not 0 <= token_id < rows:
        raise IdRangeError(f"id {token_id!r} is outside 0..{rows - 1}, the rows of the table")
    if not isinstance(k, int) or not 0 <= k <= MAX_NEIGHBORS:
        raise InputError(f"k is {k!r}; it must be in 0..{MAX_NEIGHBORS}")
    row_D = pipeline.layer.token_embedding(torch.tensor([token_id]))[0]
    note = ""
    if pipeline.table.remote:
        note = "the table is remote; finding neighbors would download all of it"
    elif pipeline.values() > MAX_SEARCHED:
        note = "the table is too large to search for neighbors"
    elif not bool(row_D.float().any()):
        note = "a row of zeros has no direction, so it has no neighbors"
    found = [] if note else nearest(row_D, pipeline.blocks(), k, exclude=token_id)
    name = pipeline.spelling(token_id)
    return TokenFacts(
        id=token_id,
        token=name,
        label=name,
        bytes=_bytes(pipeline, token_id),
        special=pipeline.tokenizer is None or token_id in pipeline.tokenizer.special_ids,
        offset=pipeline.offset_of(token_id),
        stored_hex=stored_hex(pipeline.raw_rows([token_id])[0], pipeline.table.itemsize, 8),
        row=values_of(row_D, MAX_CHANNELS),
        width=width,
        norm=float(row_D.float().norm()),
        neighbors=[NeighborFacts(id=one, label=pipeline.spelling(one), cosine=cosine) for one, cosine in found],
        note=note,
    )


def _bytes(pipeline: Pipeline, token_id: int) -> str:
    try:
        return "" if pipeline.tokenizer is None else pipeline.tokenizer.token_bytes(token_id).hex()
    except IdRangeError:  # a row beyond the vocabulary
        return ""
