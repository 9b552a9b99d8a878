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
from inlayer.head import Head, scale_logits
from inlayer.render.numbers import count
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
    targets_N: Tensor  # those tokens
    why_sum: str  # why the loss is the sum of the hidden states; empty if it is the cross-entropy of the targets

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

    @property
    def padding_index(self) -> int | None:
        """The index of the padding row among the unique rows."""
        padding, ids = self.layer.padding_idx, self.unique.ids_U.tolist()
        return ids.index(padding) if padding in ids else None

    def gather(self, rows_UD: Tensor) -> Tensor:
        """Look up the rows of the batch; the padding row gets no gradient."""
        return functional.embedding(self.unique.inverse_BT, rows_UD, padding_idx=self.padding_index)

    def hidden(self, gathered_BTD: Tensor) -> Tensor:
        """Compute the hidden states of the batch from its rows."""
        rows_BTD, result = gathered_BTD * self.layer.scale, self.result
        if self.layer.adds_ngrams:
            assert result.ids_BT is not None
            rows_BTD = self.layer.add_ngrams(rows_BTD, result.ids_BT, result.history)
        hidden_BTD: Tensor = self.layer(inputs_embeds=rows_BTD, position_ids=result.position_BT)
        return hidden_BTD

    def predicting(self, hidden_BTD: Tensor) -> Tensor:
        """Select the hidden states whose next token is predicted."""
        return hidden_BTD.flatten(0, 1)[self.index_N]


class Gradients(NamedTuple):
    """The gradients of the loss, and what the gradient of a tied head's rows is computed from."""

    loss: Tensor
    unique_UD: Tensor  # of the unique rows, through the lookup
    gathered_BTD: Tensor  # of the looked-up rows, padding included
    products_NV: Tensor  # of the products of hidden states and the head's rows; empty if the loss is a sum
    hidden_ND: Tensor  # the hidden states in these products

    def of_head(self, ids: Tensor | slice) -> Tensor:
        """Compute the gradients of some of the head's rows: those of a matrix product."""
        return self.products_NV[:, ids].T @ self.hidden_ND


def choose_loss(result: Forward) -> LossInputs:
    pipeline, unique, head = result.pipeline, result.unique, result.pipeline.head
    assert unique is not None
    layer = pipeline.float32_layer(result.change.positions, result.change.theta)
    index_N, targets_N = _targets(result, layer)
    why_sum = ""
    if head is None:
        why_sum = "the model's head is not available"
    elif len(index_N) == 0:
        why_sum = "no token has a next token to predict"
    elif head.n_embd != layer.n_embd:
        why_sum = "the head expects vectors of a different width, which only the decoder produces"
    elif pipeline.values() > MAX_HEAD_VALUES:
        why_sum = "the head is too large to run here"
    return LossInputs(result, unique, layer, index_N, targets_N, why_sum)


def backward(result: Forward) -> Backward:
    """Compute the gradients of the rows in use."""
    inputs, max_tokens = choose_loss(result), result.recorded.tokens
    unique, padding, padding_index = inputs.unique, inputs.layer.padding_idx, inputs.padding_index
    gradients = differentiate(inputs)
    lookup_UD = total_UD = gradients.unique_UD
    head_UD = unmasked_D = None
    reached_V = torch.zeros(result.pipeline.table.shape[0], dtype=torch.bool)  # rows that receive a gradient
    if padding_index is not None:
        unmasked_D = gradients.gathered_BTD[unique.inverse_BT == padding_index].sum(dim=0)
    if not inputs.why_sum and inputs.head.tied:
        head_UD = gradients.of_head(unique.ids_U)
        if padding_index is not None:
            unmasked_D = unmasked_D + head_UD[padding_index]
            head_UD[padding_index] = 0
        total_UD = lookup_UD + head_UD
        reached_V = gradients.products_NV.abs().amax(dim=0).ne(0)  # .ne(0).any(dim=0) takes eight times as long
        if padding is not None:
            reached_V[padding] = False
    reached_V[unique.ids_U] = total_UD.ne(0).any(dim=1)
    shown = result.recorded.channels
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
            is_padding=index == padding_index,
        )
        for index, positions in list(occurrences.items())[:max_tokens]
    ]
    return Backward(
        loss_kind="sum" if inputs.why_sum else "next token",
        loss=float(gradients.loss),
        uniform_loss=None if inputs.why_sum else math.log(result.pipeline.table.shape[0]),
        note=backward_note(inputs),
        tied=head_UD is not None,
        n_rows_with_gradient=int(reached_V.sum()),
        rows=rows,
        n_unique_ids=len(ids),
        unmasked_padding_gradient=None if unmasked_D is None else unmasked_D[shown].tolist(),
    )


def _targets(result: Forward, layer: Embeddings) -> tuple[Tensor, Tensor]:
    """Return the indices into the flattened batch whose next token is predicted, and those tokens.

    As in `Head.loss`, padding ids are never a target, even if written in a text.
    """
    assert result.ids_BT is not None
    ids_BT, mask_BT = result.ids_BT, result.mask_BT
    paddings = {layer.padding_idx, getattr(result.pipeline.head, "padding_idx", None)} - {None}
    is_target_BT = mask_BT & ~torch.isin(ids_BT, torch.tensor(list(paddings), dtype=torch.int64))
    is_predicted_BT = functional.pad(mask_BT[:, :-1] & is_target_BT[:, 1:], (0, 1))  # not after the last token
    index_N = is_predicted_BT.flatten().nonzero()[: _max_targets(result), 0]
    return index_N, ids_BT.flatten()[index_N + 1]


def _max_targets(result: Forward) -> int:
    return MAX_LOGITS // result.pipeline.table.shape[0]


def differentiate(inputs: LossInputs) -> Gradients:
    with torch.enable_grad():
        rows_UD = inputs.unique.rows_UD.float().clone().requires_grad_()
        gathered_BTD = inputs.gather(rows_UD)
        hidden_BTD = inputs.hidden(gathered_BTD)
        if inputs.why_sum:
            # Without a padding_idx, padding is an ordinary token: only the mask keeps it out of the sum.
            padding, mask_BT = inputs.layer.padding_idx, inputs.result.mask_BT
            loss = (hidden_BTD if padding is not None else hidden_BTD * mask_BT[:, :, None]).sum()
            empty = loss.new_empty(0, 0)
            return Gradients(loss.detach(), *torch.autograd.grad(loss, (rows_UD, gathered_BTD)), empty, empty)
        hidden_ND = inputs.predicting(hidden_BTD) * inputs.head.hidden_scale
        products_NV = functional.linear(hidden_ND, inputs.pipeline.head_rows(), inputs.bias)
        loss = functional.cross_entropy(scale_logits(inputs.head, products_NV), inputs.targets_N)
        upstream = torch.autograd.grad(loss, (rows_UD, gathered_BTD, products_NV))
        return Gradients(loss.detach(), *upstream, hidden_ND.detach())


def backward_note(inputs: LossInputs) -> str:
    """Describe what the loss is computed from."""
    result, n_targets, part = inputs.result, len(inputs.index_N), ""
    if result.count < result.length:
        first, end, is_batch = result.shown.start, result.shown.stop, len(result.texts) > 1
        part = (
            f" in the first {end:,} tokens of each text"
            if is_batch
            else f" in the first {end:,} of {result.length:,} tokens"
        )
        if first:
            part = f" in tokens {first:,} to {end - 1:,} of {'each text' if is_batch else f'{result.length:,}'}"
    if inputs.why_sum:
        return f"sum of all hidden states{part}, because {inputs.why_sum}"
    limited = "the first " if n_targets == _max_targets(result) else ""
    how = "predicted by the head directly from the hidden states, without the decoder"
    return f"cross-entropy of {limited}{count(n_targets, 'next token')}{part}, {how}"
