"""Step 8 of a walk: backwards, from a loss to the rows of the table.

text -> ids -> [rows] <- (positions) <- hidden states <- head <- loss
- the loss is that of guessing every next token by the head straight from the hidden states, with no body between; a
  model without a head, or with one too large to run here, takes the sum of its hidden states instead
- torch's own autograd does it, in float32, on the rows in use: what the lookup brings to a row is summed over its
  places, and nothing reaches the padding row
- a tied head brings a second share, to every row of the table: it is told for the rows in use
- the table is never held whole: the head runs block by block, once forward and once back
Checked against autograd on the whole table in tests/trace/test_backward.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.layer import Embeddings
from inlayer.trace.facts import Backward, RowGradient
from inlayer.trace.parts import Parts, Used

__all__ = ["go_back"]

MOST_HEAD_VALUES = 2**28  # of a head that is run twice for this step
MOST_LOGITS = 2**25  # held at once; of a longer text only the first tokens are guessed


class Shares(NamedTuple):
    """Gradients of the rows in use (U, D), and the loss they come from."""

    loss: Tensor
    lookup_UD: Tensor
    unguarded_UD: Tensor  # of the lookup, if no row were protected
    head_UD: Tensor | None


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
    used_U, places_BT = used.ids_U, used.places_BT
    ids_BT = used_U[places_BT]
    order = _by_first_place(places_BT, len(used_U))
    padding = layer.padding_idx
    head = parts.head
    uncounted = {one for one in (padding, None if head is None else head.padding_idx) if one is not None}
    pairs = _next_tokens(ids_BT, mask_BT, uncounted, MOST_LOGITS // parts.table.shape[0])
    fits = head is not None and head.n_embd == layer.n_embd and parts.values() <= MOST_HEAD_VALUES
    by_head = fits and len(pairs.targets_N) > 0
    shares = _shares(parts, layer, used, position_ids, pairs if by_head else None)
    head_UD = shares.head_UD
    guarded_UD = None if head_UD is None else head_UD * used_U.ne(-1 if padding is None else padding)[:, None]
    total_UD = shares.lookup_UD if guarded_UD is None else shares.lookup_UD + guarded_UD

    rows = []
    for place in order[:most]:
        token_id = int(used_U[place])
        where = (places_BT == place).nonzero().tolist()
        rows.append(
            RowGradient(
                id=token_id,
                label=labels[token_id],
                places=[(b, t) for b, t in where[:most]],
                count=len(where),
                lookup=shares.lookup_UD[place, :dims].tolist(),
                head=None if guarded_UD is None else guarded_UD[place, :dims].tolist(),
                total=total_UD[place, :dims].tolist(),
                norm=float(total_UD[place].norm()),
                is_padding=token_id == padding,
            )
        )
    without = None
    if padding is not None and padding in labels and bool((used_U == padding).any()):
        place = int((used_U == padding).nonzero()[0])
        unguarded_D = shares.unguarded_UD[place] if head_UD is None else shares.unguarded_UD[place] + head_UD[place]
        without = unguarded_D[:dims].tolist()
    tied = by_head and head_UD is not None
    everywhere = parts.table.shape[0] - (padding is not None)
    touched = everywhere if tied else int(total_UD.ne(0).any(dim=1).sum())
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


def _by_first_place(places_BT: Tensor, used: int) -> list[int]:
    flat = places_BT.flatten()
    first = torch.full((used,), flat.numel()).scatter_reduce_(0, flat, torch.arange(flat.numel()), "amin")
    return [int(place) for place in first.argsort()]


def _shares(
    parts: Parts,
    layer: Embeddings,
    used: Used,
    position_ids: Tensor | None,
    pairs: Pairs | None,
) -> Shares:
    padding = layer.padding_idx
    at = (used.ids_U == padding).nonzero().flatten().tolist() if padding is not None else []
    with torch.enable_grad():
        rows_UD = used.rows_UD.float().clone().requires_grad_()
        gathered_BTD = functional.embedding(used.places_BT, rows_UD, padding_idx=at[0] if at else None)
        gathered_BTD.retain_grad()
        hidden_BTD = layer(inputs_embeds=gathered_BTD * layer.scale, position_ids=position_ids)
        head_UD = None
        if pairs is None:
            loss = hidden_BTD.sum()
            torch.autograd.backward(loss)
        else:
            hidden_ND = hidden_BTD.flatten(0, 1)[pairs.places_N]
            loss, back_ND, head_UD = _through_head(parts, hidden_ND.detach(), pairs.targets_N, used)
            _send_back(hidden_ND, back_ND)
    assert rows_UD.grad is not None
    assert gathered_BTD.grad is not None
    unguarded_UD = torch.zeros_like(rows_UD).index_add_(0, used.places_BT.flatten(), gathered_BTD.grad.flatten(0, 1))
    return Shares(loss.detach(), rows_UD.grad, unguarded_UD.detach(), head_UD)


def _through_head(
    parts: Parts, hidden_ND: Tensor, targets_N: Tensor, used: Used
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss, the gradient of the hidden states, and that of the head's rows in use where they are the table's."""
    head = parts.head
    assert head is not None
    bias_V = None if head.bias is None else head.bias.detach().float()

    def bias(rows: slice | Tensor) -> Tensor | None:
        return None if bias_V is None else bias_V[rows]

    with torch.no_grad():
        logits_NV = torch.cat(
            [
                head.project(hidden_ND, block, bias(slice(start, start + len(block))))
                for start, block in parts.head_blocks()
            ],
            dim=1,
        )
    logits_NV.requires_grad_()
    loss = functional.cross_entropy(logits_NV, targets_N)
    (back_NV,) = torch.autograd.grad(loss, logits_NV)
    hidden_ND = hidden_ND.clone().requires_grad_()
    for start, block in parts.head_blocks():
        past = start + len(block)
        _send_back(head.project(hidden_ND, block, bias(slice(start, past))), back_NV[:, start:past])
    assert hidden_ND.grad is not None
    if not head.tied:
        return loss, hidden_ND.grad, None
    rows_UD = used.rows_UD.float().clone().requires_grad_()
    _send_back(head.project(hidden_ND.detach(), rows_UD, bias(used.ids_U)), back_NV[:, used.ids_U])
    return loss, hidden_ND.grad, rows_UD.grad


def _send_back(result: Tensor, gradient: Tensor) -> None:
    """A gradient into the graph of a result. Handed to `backward` itself, it would make torch import its symbolic
    shapes: half a second.
    """
    torch.autograd.backward((result * gradient).sum())


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
