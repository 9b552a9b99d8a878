"""Step 8 of a walk: the backward pass, from a loss to the gradients of the table's rows.

text -> ids -> [rows] <- (positions) <- hidden states <- head <- loss
- the loss is the cross-entropy of the next token, predicted by the head directly from the hidden states, without the
  decoder. A model without a head, or with a very large one, uses the sum of its hidden states instead
- computed by torch autograd in float32 on the rows in use: a row's gradient is summed over its lookups, and the padding
  row receives none
- a tied head sends a second gradient to every row of the table; it is computed for the rows in use, because a dense
  gradient would be as large as the table
Tested against autograd on the whole table in tests/trace/test_backward.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.head import Head
from inlayer.trace.facts import Backward, RowGradient, Span
from inlayer.trace.forward import Forward, UniqueRows

__all__ = ["backward"]

MAX_HEAD_VALUES = 2**27  # of a head that is run in this step: 512 MB in float32
MAX_LOGITS = 2**23  # held at once; in a longer text only the first tokens are predicted


class Gradients(NamedTuple):
    """Gradients of the unique rows (U, D), and the loss they come from."""

    loss: Tensor
    lookup_UD: Tensor
    head_UD: Tensor | None
    unmasked_UD: Tensor  # the sum of both, without padding_idx
    n_other_rows: int  # rows not in use that receive a gradient from a tied head


def backward(result: Forward) -> Backward:
    """Compute the gradients of the rows in use."""
    pipeline, unique, dims, max_tokens = result.pipeline, result.unique, result.dims, result.max_tokens
    assert unique is not None
    layer = pipeline.float32_layer(result.change.positions, result.change.theta)
    padding, head = layer.padding_idx, pipeline.head
    targets = index_N, _ = _targets(result, unique, layer)
    fits = head is not None and head.n_embd == layer.n_embd and pipeline.values() <= MAX_HEAD_VALUES
    by_head = fits and len(index_N) > 0
    gradients = _gradients(result, unique, layer, targets if by_head else None)
    loss, lookup_UD, head_UD, unmasked_UD, n_other_rows = gradients
    total_UD = lookup_UD if head_UD is None else lookup_UD + head_UD
    lookup, total = lookup_UD[:, :dims].tolist(), total_UD[:, :dims].tolist()
    through_head = None if head_UD is None else head_UD[:, :dims].tolist()
    ids, norms = unique.ids_U.tolist(), total_UD.norm(dim=1).tolist()
    occurrences: dict[int, list[Span]] = {}  # by index into ids_U, in order of first occurrence
    for b, indices in enumerate(unique.inverse_BT.tolist()):
        for t, index in enumerate(indices):
            occurrences.setdefault(index, []).append((b, t))
    rows = [
        RowGradient(
            id=ids[index],
            label=result.label(*found[0], ids[index]),
            occurrences=found[:max_tokens],
            count=len(found),
            lookup=lookup[index],
            head=None if through_head is None else through_head[index],
            total=total[index],
            norm=norms[index],
            is_padding=ids[index] == padding,
        )
        for index, found in list(occurrences.items())[:max_tokens]
    ]
    return Backward(
        loss_kind="next token" if by_head else "sum",
        loss=float(loss),
        note=_note(result, by_head, len(index_N)),
        tied=head_UD is not None,
        n_rows_with_gradient=int(total_UD.ne(0).any(dim=1).sum()) + n_other_rows,
        rows=rows,
        n_unique_ids=len(ids),
        unmasked_padding_gradient=unmasked_UD[ids.index(padding), :dims].tolist() if padding in ids else None,
    )


def _targets(result: Forward, unique: UniqueRows, layer: Embeddings) -> tuple[Tensor, Tensor]:
    """Return the indices into the flattened batch whose next token is predicted, and those tokens.

    As in `Head.loss`, padding ids are never a target, even if written in a text.
    """
    head = result.pipeline.head
    ids_BT, mask_BT = unique.ids_U[unique.inverse_BT], result.mask_BT[:, : result.shown].bool()
    is_target_BT = mask_BT
    for padding in (layer.padding_idx, None if head is None else head.padding_idx):
        if padding is not None:
            is_target_BT = is_target_BT & ids_BT.ne(padding)
    has_target_BT = mask_BT & functional.pad(is_target_BT, (0, 1))[:, 1:]
    index_N = has_target_BT.flatten().nonzero().squeeze(1)[: MAX_LOGITS // result.pipeline.table.shape[0]]
    return index_N, ids_BT.flatten()[index_N + 1] if len(index_N) else index_N


def _gradients(
    result: Forward, unique: UniqueRows, layer: Embeddings, targets: tuple[Tensor, Tensor] | None
) -> Gradients:
    padding, mask_BT = layer.padding_idx, result.mask_BT[:, : result.shown]
    padding_index = [] if padding is None else (unique.ids_U == padding).nonzero().flatten().tolist()
    head_UD, n_other_rows = None, 0
    with torch.enable_grad():
        rows_UD = unique.rows_UD.float().clone().requires_grad_()
        gathered_BTD = functional.embedding(
            unique.inverse_BT, rows_UD, padding_idx=padding_index[0] if padding_index else None
        )
        hidden_BTD = layer(inputs_embeds=gathered_BTD * layer.scale, position_ids=result.layer_position_ids)
        if targets is None:
            # Without a padding_idx, padding is an ordinary token: only the mask keeps it out of the sum.
            loss = (hidden_BTD if padding is not None else hidden_BTD * mask_BT[:, :, None]).sum()
            lookup_UD, upstream_BTD = torch.autograd.grad(loss, (rows_UD, gathered_BTD))
        else:
            head = result.pipeline.head
            assert head is not None
            bias_V = None if head.bias is None else head.bias.detach().float()
            index_N, ids_N = targets
            hidden_ND = hidden_BTD.flatten(0, 1)[index_N]
            logits_NV = head.project(hidden_ND, result.pipeline.head_rows(), bias_V)
            loss = functional.cross_entropy(logits_NV, ids_N)
            lookup_UD, upstream_BTD, upstream_NV = torch.autograd.grad(loss, (rows_UD, gathered_BTD, logits_NV))
            if head.tied:
                head_UD = _head_gradient(head, hidden_ND.detach(), upstream_NV, unique, bias_V)
                reached_V = upstream_NV.ne(0).any(dim=0)
                reached_V[unique.ids_U] = False
                if padding is not None:
                    reached_V[padding] = False
                n_other_rows = int(reached_V.sum())
    unmasked_UD = torch.zeros_like(lookup_UD).index_add_(0, unique.inverse_BT.flatten(), upstream_BTD.flatten(0, 1))
    if head_UD is not None:
        unmasked_UD = unmasked_UD + head_UD
        head_UD = head_UD if padding is None else head_UD * unique.ids_U.ne(padding)[:, None]
    return Gradients(loss.detach(), lookup_UD, head_UD, unmasked_UD, n_other_rows)


def _head_gradient(
    head: Head, hidden_ND: Tensor, upstream_NV: Tensor, unique: UniqueRows, bias_V: Tensor | None
) -> Tensor:
    """Compute the gradient that a tied head sends to the rows in use, from the gradient of their logits."""
    rows_UD = unique.rows_UD.float().clone().requires_grad_()
    logits_NU = head.project(hidden_ND, rows_UD, None if bias_V is None else bias_V[unique.ids_U])
    # Passing the upstream gradient to `grad` would import torch's symbolic shapes, which takes half a second.
    (head_UD,) = torch.autograd.grad((logits_NU * upstream_NV[:, unique.ids_U]).sum(), rows_UD)
    return head_UD


def _note(result: Forward, by_head: bool, n_targets: int) -> str:
    head = result.pipeline.head
    if by_head:
        tokens = "1 next token" if n_targets == 1 else f"{n_targets:,} next tokens"
        return f"cross-entropy of {tokens}, predicted by the head directly from the hidden states, without the decoder"
    if head is None:
        why = "the model's head is not available"
    elif n_targets == 0:
        why = "no token has a next token to predict"
    elif head.n_embd != result.pipeline.layer.n_embd:
        why = "the head expects vectors of another width, which only the decoder produces"
    else:
        why = "the head is too large to run here"
    return f"sum of all hidden states, because {why}"
