"""Step 8 of a walk: backwards, from a loss to the rows of the table.

text -> ids -> [rows] <- (positions) <- hidden states <- head <- loss
- the loss is that of guessing every next token by the head straight from the hidden states, with no body between; a
  model without a head, or with one too large to run here, takes the sum of its hidden states instead
- torch's own autograd does it, in float32, on the rows in use: what the lookup brings to a row is summed over its
  places, and nothing reaches the padding row
- a tied head brings a second share, to every row of the table: it is told for the rows in use
- the table itself is no parameter: a dense gradient of a large one would be as large again
Checked against autograd on the whole table in tests/trace/test_backward.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.head import Head
from inlayer.trace.facts import Backward, RowGradient, Span
from inlayer.trace.parts import Parts, Used

__all__ = ["go_back"]

MAX_HEAD_VALUES = 2**27  # of a head that is run for this step: half a gigabyte in float32
MAX_LOGITS = 2**23  # held at once; of a longer text only the first tokens are guessed


class Shares(NamedTuple):
    """Gradients of the rows in use (U, D), and the loss they come from."""

    loss: Tensor
    lookup_UD: Tensor
    unguarded_UD: Tensor  # of the lookup, if no row were protected
    head_UD: Tensor | None
    elsewhere: int  # rows not in use that a tied head sends a gradient


def go_back(
    parts: Parts,
    layer: Embeddings,
    used: Used,
    mask_BT: Tensor,
    position_ids: Tensor | None,
    labels: dict[int, str],
    dims: int,
    most: int,
) -> Backward:
    """Run backwards over the ids in use, in which padding has mask 0. `layer` has its small parts in float32."""
    used_U = used.ids_U
    padding = layer.padding_idx
    head = parts.head
    uncounted = {one for one in (padding, None if head is None else head.padding_idx) if one is not None}
    pairs = _next_tokens(used_U[used.places_BT], mask_BT, uncounted, MAX_LOGITS // parts.table.shape[0])
    fits = head is not None and head.n_embd == layer.n_embd and parts.values() <= MAX_HEAD_VALUES
    by_head = fits and len(pairs.targets_N) > 0
    shares = _shares(parts, layer, used, mask_BT, position_ids, pairs if by_head else None)
    head_UD = shares.head_UD
    guarded_UD = None if head_UD is None else head_UD * used_U.ne(-1 if padding is None else padding)[:, None]
    total_UD = shares.lookup_UD if guarded_UD is None else shares.lookup_UD + guarded_UD

    lookup, total = shares.lookup_UD[:, :dims].tolist(), total_UD[:, :dims].tolist()
    by_tie = None if guarded_UD is None else guarded_UD[:, :dims].tolist()
    ids, norms = used_U.tolist(), total_UD.norm(dim=1).tolist()
    found: dict[int, list[Span]] = {}  # in the order of first places
    for b, row in enumerate(used.places_BT.tolist()):
        for t, place in enumerate(row):
            found.setdefault(place, []).append((b, t))
    rows = [
        RowGradient(
            id=ids[place],
            label=labels[ids[place]],
            places=where[:most],
            count=len(where),
            lookup=lookup[place],
            head=None if by_tie is None else by_tie[place],
            total=total[place],
            norm=norms[place],
            is_padding=ids[place] == padding,
        )
        for place, where in list(found.items())[:most]
    ]
    without = None
    if padding is not None and padding in ids:
        place = ids.index(padding)
        unguarded_D = shares.unguarded_UD[place] if head_UD is None else shares.unguarded_UD[place] + head_UD[place]
        without = unguarded_D[:dims].tolist()
    tied = by_head and head_UD is not None
    touched = int(total_UD.ne(0).any(dim=1).sum()) + shares.elsewhere
    return Backward(
        loss="next token" if by_head else "sum",
        value=float(shares.loss),
        note=_note(parts, by_head, len(pairs.targets_N)),
        tied=tied,
        touched=touched,
        rows=rows,
        n_rows=len(used_U),
        padding_without_guard=without,
    )


class Pairs(NamedTuple):
    """Places whose next token is to be guessed, in the flattened batch, and that token."""

    places_N: Tensor
    targets_N: Tensor


def _next_tokens(ids_BT: Tensor, mask_BT: Tensor, uncounted: set[int], most: int) -> Pairs:
    """As `Head.loss` counts: padding is nothing to guess, also where it is written in a text."""
    counts_BT = mask_BT.bool()
    for padding in uncounted:
        counts_BT = counts_BT & ids_BT.ne(padding)
    followed_BT = mask_BT.bool() & functional.pad(counts_BT, (0, 1))[:, 1:]
    places_N = followed_BT.flatten().nonzero().squeeze(1)[:most]
    return Pairs(places_N, ids_BT.flatten()[places_N + 1] if len(places_N) else places_N)


def _shares(
    parts: Parts,
    layer: Embeddings,
    used: Used,
    mask_BT: Tensor,
    position_ids: Tensor | None,
    pairs: Pairs | None,
) -> Shares:
    at = (used.ids_U == layer.padding_idx).nonzero().flatten().tolist() if layer.padding_idx is not None else []
    head_UD, elsewhere = None, 0
    with torch.enable_grad():
        rows_UD = used.rows_UD.float().clone().requires_grad_()
        gathered_BTD = functional.embedding(used.places_BT, rows_UD, padding_idx=at[0] if at else None)
        hidden_BTD = layer(inputs_embeds=gathered_BTD * layer.scale, position_ids=position_ids)
        if pairs is None:
            # Padding that is a token like others would learn: only a padding row may be summed over unseen.
            counted_BTD = hidden_BTD if layer.padding_idx is not None else hidden_BTD * mask_BT[:, :, None]
            loss = counted_BTD.sum()
            lookup_UD, back_BTD = torch.autograd.grad(loss, (rows_UD, gathered_BTD))
        else:
            head = parts.head
            assert head is not None
            bias_V = None if head.bias is None else head.bias.detach().float()
            hidden_ND = hidden_BTD.flatten(0, 1)[pairs.places_N]
            logits_NV = head.project(hidden_ND, parts.head_rows(), bias_V)
            loss = functional.cross_entropy(logits_NV, pairs.targets_N)
            lookup_UD, back_BTD, back_NV = torch.autograd.grad(loss, (rows_UD, gathered_BTD, logits_NV))
            if head.tied:
                head_UD = _head_share(head, hidden_ND.detach(), back_NV, used, bias_V)
                sent_V = back_NV.ne(0).any(dim=0)
                sent_V[used.ids_U] = False
                if layer.padding_idx is not None:
                    sent_V[layer.padding_idx] = False
                elsewhere = int(sent_V.sum())
    unguarded_UD = torch.zeros_like(lookup_UD).index_add_(0, used.places_BT.flatten(), back_BTD.flatten(0, 1))
    return Shares(loss.detach(), lookup_UD, unguarded_UD, head_UD, elsewhere)


def _head_share(head: Head, hidden_ND: Tensor, back_NV: Tensor, used: Used, bias_V: Tensor | None) -> Tensor:
    """What a tied head sends to the rows in use, by the gradient of their logits."""
    rows_UD = used.rows_UD.float().clone().requires_grad_()
    logits_NU = head.project(hidden_ND, rows_UD, None if bias_V is None else bias_V[used.ids_U])
    # Given to `grad` as an argument, the gradient would make torch import its symbolic shapes: half a second.
    (head_UD,) = torch.autograd.grad((logits_NU * back_NV[:, used.ids_U]).sum(), rows_UD)
    return head_UD


def _note(parts: Parts, by_head: bool, guesses: int) -> str:
    if by_head:
        counted = "1 next token" if guesses == 1 else f"{guesses:,} next tokens"
        return f"the loss of guessing {counted} by the head, straight from the hidden states: no body lies between"
    if parts.head is None:
        why = "the model's head is not at hand"
    elif guesses == 0:
        why = "no token has a next one to guess"
    elif parts.head.n_embd != parts.layer.n_embd:
        why = "the model's body lies between them and the narrower head"
    else:
        why = "the head is too large to run here"
    return f"the sum of all hidden states, since {why}"
