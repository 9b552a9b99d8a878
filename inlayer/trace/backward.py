"""Step 8 of a walk: the backward pass, from a loss to the gradients of the table's rows.

text -> ids -> [rows] <- (positions) <- hidden states <- head <- loss
- the loss is the cross-entropy of the next token, predicted by the head directly from the hidden states, without the
  decoder. A model without a head, or with a very large one, uses the sum of its hidden states instead
- computed by torch autograd in float32 on the rows in use: a row's gradient is summed over its lookups, and the
  padding row receives none
- a tied head sends a second gradient to every row of the table; it is computed for the rows in use, because a dense
  gradient would be as large as the table
Tested against autograd on the whole table in tests/trace/test_backward.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.head import Head, compute_logits, scale_logits
from inlayer.trace.facts import Backward, RowGradient
from inlayer.trace.family_facts import TokenIndex
from inlayer.trace.forward import Forward, UniqueRows

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

MAX_HEAD_VALUES = 2**27  # largest head run in this step: 512 MB in float32
MAX_LOGITS = 2**23  # logits held at once; in a longer text, only the first tokens are predicted


class LossInputs(NamedTuple):
    """The inputs of the loss: a forward pass in float32, and the tokens to predict."""

    result: Forward
    unique: UniqueRows
    layer: Embeddings  # a copy in float32
    index_N: Tensor  # indices into the flattened batch whose next token is predicted
    targets: Tensor | None  # those tokens; None if the loss is the sum of the hidden states

    @property
    def pipeline(self) -> Pipeline:
        return self.result.pipeline

    @property
    def head(self) -> Head:
        head = self.result.pipeline.head
        assert head is not None
        return head

    @property
    def bias(self) -> Tensor | None:
        return None if self.head.bias is None else self.head.bias.detach().float()

    def gather(self, rows_UD: Tensor) -> Tensor:
        """Look up the rows of the batch; the padding row gets no gradient."""
        padding, ids = self.layer.padding_idx, self.unique.ids_U.tolist()
        index = ids.index(padding) if padding in ids else None
        return functional.embedding(self.unique.inverse_BT, rows_UD, padding_idx=index)

    def hidden(self, rows_UD: Tensor) -> Tensor:
        """Compute the hidden states of the batch from its unique rows."""
        return self.run_layer(self.gather(rows_UD))

    def run_layer(self, gathered_BTD: Tensor) -> Tensor:
        rows_BTD, result = gathered_BTD * self.layer.scale, self.result
        if self.layer.adds_ngrams:
            rows_BTD = self.layer.add_ngrams(rows_BTD, self.unique.ids_U[self.unique.inverse_BT], result.history)
        hidden_BTD: Tensor = self.layer(inputs_embeds=rows_BTD, position_ids=result.layer_position_ids)
        return hidden_BTD

    def logits(self, hidden: Tensor, weight_VD: Tensor) -> Tensor:
        return compute_logits(self.head, hidden, weight_VD, self.bias)

    def loss(self, hidden_BTD: Tensor, weight_VD: Tensor) -> Tensor:
        """Return the cross-entropy of the next tokens."""
        assert self.targets is not None
        return functional.cross_entropy(self.logits(hidden_BTD.flatten(0, 1)[self.index_N], weight_VD), self.targets)


def choose_loss(result: Forward) -> LossInputs:
    """Choose the loss of a forward pass."""
    pipeline, unique = result.pipeline, result.unique
    assert unique is not None
    layer, head = pipeline.float32_layer(result.change.positions, result.change.theta), pipeline.head
    index_N, targets_N = _targets(result, unique, layer)
    fits = head is not None and head.n_embd == layer.n_embd and pipeline.values() <= MAX_HEAD_VALUES
    return LossInputs(result, unique, layer, index_N, targets_N if fits and len(index_N) > 0 else None)


def backward(result: Forward) -> Backward:
    """Compute the gradients of the rows in use."""
    inputs = choose_loss(result)
    pipeline, unique, shown, max_tokens = (
        result.pipeline,
        inputs.unique,
        result.recorded.channels,
        result.recorded.tokens,
    )
    by_head, padding = inputs.targets is not None, inputs.layer.padding_idx
    loss, lookup_UD, head_UD, unmasked_D, n_other_rows = _gradients(inputs)
    total_UD = lookup_UD if head_UD is None else lookup_UD + head_UD
    lookup, total = lookup_UD[:, shown].tolist(), total_UD[:, shown].tolist()
    through_head = None if head_UD is None else head_UD[:, shown].tolist()
    ids, norms = unique.ids_U.tolist(), total_UD.norm(dim=1).tolist()
    occurrences: dict[int, list[TokenIndex]] = {}  # by index into ids_U, in order of first occurrence
    for b, indices in enumerate(unique.inverse_BT.tolist()):
        for t, index in enumerate(indices):
            occurrences.setdefault(index, []).append((b, t))
    rows = [
        RowGradient(
            id=ids[index],
            label=result.label(*positions[0], ids[index]),
            occurrences=positions[:max_tokens],
            count=len(positions),
            lookup=lookup[index],
            head=None if through_head is None else through_head[index],
            total=total[index],
            norm=norms[index],
            is_padding=ids[index] == padding,
        )
        for index, positions in list(occurrences.items())[:max_tokens]
    ]
    return Backward(
        loss_kind="next token" if by_head else "sum",
        loss=float(loss),
        uniform_loss=math.log(pipeline.table.shape[0]) if by_head else None,
        note=backward_note(inputs),
        tied=head_UD is not None,
        n_rows_with_gradient=int(total_UD.ne(0).any(dim=1).sum()) + n_other_rows,
        rows=rows,
        n_unique_ids=len(ids),
        unmasked_padding_gradient=None if unmasked_D is None else unmasked_D[shown].tolist(),
    )


def _targets(result: Forward, unique: UniqueRows, layer: Embeddings) -> tuple[Tensor, Tensor]:
    """Return the indices into the flattened batch whose next token is predicted, and those tokens.

    As in `Head.loss`, padding ids are never a target, even if written in a text.
    """
    head, ids, mask = result.pipeline.head, unique.ids_U[unique.inverse_BT].tolist(), result.mask_BT.tolist()
    padding = {layer.padding_idx, None if head is None else head.padding_idx}
    found = [
        (b * len(row) + t, following)
        for b, row in enumerate(ids)
        for t, following in enumerate(row[1:])
        if mask[b][t] and mask[b][t + 1] and following not in padding
    ]
    index_2N = torch.tensor(found[: MAX_LOGITS // result.pipeline.table.shape[0]], dtype=torch.int64).view(-1, 2).T
    return index_2N[0], index_2N[1]


def _gradients(inputs: LossInputs) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]:
    """Compute the loss and the gradients.

    Returns the loss, the gradients of the unique rows (U, D) through the lookup and through a tied head, the gradient
    of the padding row without padding_idx, and how many other rows receive a gradient from a tied head.
    """
    unique, padding, mask_BT = inputs.unique, inputs.layer.padding_idx, inputs.result.mask_BT
    head_UD, n_other_rows = None, 0
    with torch.enable_grad():
        rows_UD = unique.rows_UD.float().clone().requires_grad_()
        gathered_BTD = inputs.gather(rows_UD)
        hidden_BTD = inputs.run_layer(gathered_BTD)
        if inputs.targets is None:
            # Without a padding_idx, padding is an ordinary token: only the mask keeps it out of the sum.
            loss = (hidden_BTD if padding is not None else hidden_BTD * mask_BT[:, :, None]).sum()
            lookup_UD, upstream_BTD = torch.autograd.grad(loss, (rows_UD, gathered_BTD))
        else:
            head, hidden_ND = inputs.head, hidden_BTD.flatten(0, 1)[inputs.index_N] * inputs.head.hidden_scale
            products_NV = functional.linear(hidden_ND, inputs.pipeline.head_rows(), inputs.bias)
            loss = functional.cross_entropy(scale_logits(head, products_NV), inputs.targets)
            lookup_UD, upstream_BTD, upstream_NV = torch.autograd.grad(loss, (rows_UD, gathered_BTD, products_NV))
            if head.tied:
                # What a tied head sends to the rows in use: the gradient of a matrix product.
                head_UD = upstream_NV[:, unique.ids_U].T @ hidden_ND.detach()
                reached_V = upstream_NV.abs().amax(dim=0).ne(0)  # .ne(0).any(dim=0) takes eight times as long
                reached_V[unique.ids_U] = False
                if padding is not None:
                    reached_V[padding] = False
                n_other_rows = int(reached_V.sum())
    unmasked_D = None
    if (is_padding_U := unique.ids_U.eq(-1 if padding is None else padding)).any():
        unmasked_UD = torch.zeros_like(lookup_UD).index_add_(0, unique.inverse_BT.flatten(), upstream_BTD.flatten(0, 1))
        unmasked_UD = unmasked_UD if head_UD is None else unmasked_UD + head_UD
        unmasked_D = unmasked_UD[is_padding_U][0]
        head_UD = None if head_UD is None else head_UD * ~is_padding_U[:, None]
    return loss.detach(), lookup_UD, head_UD, unmasked_D, n_other_rows


def backward_note(inputs: LossInputs) -> str:
    """Describe what the loss is computed from."""
    head, n_targets, part = inputs.pipeline.head, len(inputs.index_N), _part(inputs.result)
    if inputs.targets is not None:
        tokens = "1 next token" if n_targets == 1 else f"{n_targets:,} next tokens"
        if n_targets == MAX_LOGITS // inputs.pipeline.table.shape[0]:
            tokens = f"the first {tokens}"
        how = "predicted by the head directly from the hidden states, without the decoder"
        return f"cross-entropy of {tokens}{part}, {how}"
    if head is None:
        why = "the model's head is not available"
    elif n_targets == 0:
        why = "no token has a next token to predict"
    elif head.n_embd != inputs.pipeline.layer.n_embd:
        why = "the head expects vectors of a different width, which only the decoder produces"
    else:
        why = "the head is too large to run here"
    return f"sum of all hidden states{part}, because {why}"


def _part(result: Forward) -> str:
    """Name the tokens that were run, if they are only a part of the text."""
    if result.count == result.length:
        return ""
    first, end, is_batch = result.shown.start, result.shown.stop, len(result.texts) > 1
    if first:
        return f" in tokens {first:,} to {end - 1:,} of {'each text' if is_batch else f'{result.length:,}'}"
    return (
        f" in the first {end:,} tokens of each text"
        if is_batch
        else f" in the first {end:,} of {result.length:,} tokens"
    )
