"""Cross entropy in chunks: hidden states -> loss, without materializing the logits of a whole batch.

hidden states -> [head -> loss]
- torch's chunked linear_cross_entropy, where the installed torch has it and supports the case
- our own chunks for everything else: a soft cap, a z-loss, sharded rows, half precision under autocast
- see also: the choice between the two, and which targets are included (head.py)
Tested against linear + cross_entropy in tests/test_head.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from inlayer import sharding
from inlayer.errors import IdRangeError
from inlayer.tensors import is_jit_tracing

IGNORE_INDEX = -100  # torch's default for ignored targets

# Limits on the rows of logits per chunk; see chunk_rows.
MIN_CHUNK_ROWS = 256
MAX_CHUNK_ROWS = 1024


def chunk_rows(tokens: int, n_embd: int) -> int:
    """Return the rows of logits per chunk: D, so a chunk is as large as the gradient of the rows.

    The backward pass briefly needs that gradient twice anyway, so chunks of this size do not increase peak memory.
    Smaller ones take more time (docs/decisions.md). Chunks above the maximum are not faster; those below the minimum
    are much slower.
    """
    return min(tokens, max(MIN_CHUNK_ROWS, min(n_embd, MAX_CHUNK_ROWS)))


def check_targets(targets: Tensor, counted: Tensor, rows: int, ignore_index: int) -> None:
    """Raise IdRangeError for the first target that is neither ignored nor a row."""
    outside = counted & ((targets < 0) | (targets >= rows))
    if bool(outside.any()):
        index = outside.nonzero()[0].tolist()
        raise IdRangeError(
            f"target {int(targets[tuple(index)])} at {index} is outside 0..{rows - 1}; "
            f"to ignore a target, set it to ignore_index ({ignore_index})"
        )


def torch_chunked_loss(
    hidden_ND: Tensor, targets_N: Tensor, weight_VD: Tensor, bias_V: Tensor | None, reduction: str
) -> Tensor:
    """Return the loss of torch's chunked linear_cross_entropy."""
    return functional.linear_cross_entropy(
        hidden_ND,
        weight_VD,
        targets_N,
        linear_bias=bias_V,
        reduction=reduction,
        ignore_index=IGNORE_INDEX,
        options=nn.LinearCrossEntropyOptions(
            chunking_method=None,
            batch_chunk_size=chunk_rows(len(targets_N), hidden_ND.shape[1]),
            allow_retain_graph=torch.compiler.is_compiling(),  # required when compiling
        ),
    )


def chunked_losses(
    compute_logits: Callable[[Tensor], Tensor],
    hidden_ND: Tensor,
    targets_N: Tensor,
    local: sharding.LocalRows | None,
    z_loss: float,
) -> Tensor:
    """Compute one loss per target, in chunks that are recomputed in the backward pass.

    The losses are at least float32 after `compute_logits`.
    """

    def one_chunk(hidden_CD: Tensor, targets_C: Tensor) -> Tensor:
        logits_CV = compute_logits(hidden_CD)
        logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
        if local is not None:
            losses_C, log_sums_C = sharding.cross_entropy(logits_CV, targets_C, local, IGNORE_INDEX)
        else:
            losses_C = functional.cross_entropy(logits_CV, targets_C, ignore_index=IGNORE_INDEX, reduction="none")
            log_sums_C = None
        if z_loss == 0:
            return losses_C
        log_sums_C = logits_CV.logsumexp(-1) if log_sums_C is None else log_sums_C
        return losses_C + z_loss * log_sums_C.square().masked_fill(targets_C == IGNORE_INDEX, 0.0)

    if is_jit_tracing():  # sizes are unknown while tracing
        return one_chunk(hidden_ND, targets_N)
    rows = chunk_rows(len(targets_N), hidden_ND.shape[1])
    chunks = zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
    return torch.cat([checkpoint(one_chunk, hidden, targets, use_reentrant=False) for hidden, targets in chunks])
