"""One token by itself: what it stands for, its row, and the rows nearest to it.

Checked in tests/trace/test_line.py.
"""

from __future__ import annotations

import torch

from inlayer.errors import IdRangeError, InputError
from inlayer.neighbors import nearest
from inlayer.tensors import one_thread
from inlayer.trace.facts import Neighbor, TokenFacts
from inlayer.trace.parts import Parts
from inlayer.trace.run import bits_of, numbers

__all__ = ["look_at"]

MAX_CHANNELS = 512
MAX_SEARCHED = 2**31  # values of a table that is searched for neighbors
MAX_NEIGHBORS = 100


@one_thread()
@torch.no_grad()
def look_at(parts: Parts, token_id: int, k: int) -> TokenFacts:
    """The facts of one id, with the k nearest rows."""
    rows, width = parts.table.shape
    if not isinstance(token_id, int) or not 0 <= token_id < rows:
        raise IdRangeError(f"id {token_id!r} is outside 0..{rows - 1}, the rows of the table")
    if not isinstance(k, int) or not 0 <= k <= MAX_NEIGHBORS:
        raise InputError(f"k is {k!r}; so many neighbors cannot be asked for, only 0..{MAX_NEIGHBORS}")
    row_D = parts.layer.token_embedding(torch.tensor([token_id]))[0]
    why_none = ""
    if parts.table.remote:
        why_none = "the table is not on this machine: finding neighbors would fetch all of it"
    elif parts.values() > MAX_SEARCHED:
        why_none = "the table is too large to be searched for neighbors here"
    elif not bool(row_D.float().any()):
        why_none = "a row of zeros points nowhere: it has no neighbors"
    found = [] if why_none else nearest(row_D, parts.blocks(), k, but=token_id)
    special = parts.tokenizer is None or token_id in parts.tokenizer.special_ids
    return TokenFacts(
        id=token_id,
        token=parts.spelled(token_id),
        label=parts.spelled(token_id),
        bytes=_bytes(parts, token_id),
        special=special,
        offset=parts.offset_of(token_id),
        bits=bits_of(parts.raw_rows([token_id])[0], parts.table.itemsize, 8),
        row=numbers(row_D, MAX_CHANNELS),
        width=width,
        norm=float(row_D.float().norm()),
        neighbors=[Neighbor(id=other, label=parts.spelled(other), cosine=cosine) for other, cosine in found],
        note=why_none,
    )


def _bytes(parts: Parts, token_id: int) -> str:
    try:
        return "" if parts.tokenizer is None else parts.tokenizer.token_bytes(token_id).hex()
    except IdRangeError:  # a row past the vocabulary
        return ""
