"""Step 8 of a walk: the backward pass, from a loss to the gradients of the table's rows.

text -> ids -> [rows] <- (positions) <- hidden states <- head <- loss
- the loss is the cross-entropy of the next token, predicted by the head directly from the hidden states, without the
  decoder. A model without a head, or with a very large one, uses the sum of its hidden states instead
- computed by torch autograd in float32 on the rows in use: a row's gradient is summed over its lookups, and the
  padding row receives none
- a tied head sends a second gradient to every row of the table. Only the rows in use are computed, because a dense
  gradient would be as large as the table
Tested against autograd on the whole table in tests/trace/test_backward.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.head import Head, scale_logits
from inlayer.render.numbers import pluralize
from inlayer.tables.padding_row import zero_row
from inlayer.trace.facts import Backward, RowGradient
from inlayer.trace.family_facts import TokenIndex
from inlayer.trace.forward import ForwardPass

MAX_HEAD_VALUES = 2**27  # largest head that this step runs: 512 MB in float32
MAX_LOGITS = 2**23  # logits held at once; in a longer text, only the first tokens are predicted


class Gradients(NamedTuple):
    """The gradients of the loss, and the matrices that give the gradient of a tied head's rows."""

    loss: Tensor
    unique_UD: Tensor  # gradients of the unique rows, through the lookup
    gathered_BTD: Tensor  # gradients of the looked-up rows, padding included
    products_NV: Tensor  # gradients of hidden states times the head's rows; empty if the loss is a sum
    hidden_ND: Tensor  # the hidden states in these products

    def of_head(self, ids: Tensor | slice) -> Tensor:
        """Compute the gradients of these head rows, as a single matrix product."""
        return self.products_NV[:, ids].T @ self.hidden_ND


class Loss:
    """The loss of a forward pass in float32: the cross-entropy of the next tokens or, if that is not possible, a sum.

    Attributes:
        padding_index: Index of the padding row among the unique rows.
        index_N: Indices into the flattened batch whose next token is predicted; `targets_N` are those next tokens.
        sum_reason: Why the loss is the sum of the hidden states; empty if it is the cross-entropy of the targets.
    """

    def __init__(self, result: ForwardPass) -> None:
        pipeline, head = result.pipeline, result.pipeline.head
        assert result.unique is not None
        assert result.ids_BT is not None
        self.result, self.pipeline, self.unique, self.ids_BT = result, pipeline, result.unique, result.ids_BT
        self.layer = pipeline.float32_layer(result.change.positions, result.change.theta)
        padding, ids = self.layer.padding_idx, self.unique.ids_U.tolist()
        self.padding_index = ids.index(padding) if padding in ids else None
        # As in `Head.loss`, padding ids are never targets, even if they are written in a text.
        paddings = {padding, getattr(head, "padding_idx", None)} - {None}
        is_target_BT = result.mask_BT & ~torch.isin(self.ids_BT, torch.tensor(list(paddings), dtype=torch.int64))
        is_predicted_BT = functional.pad(result.mask_BT[:, :-1] & is_target_BT[:, 1:], (0, 1))  # not the last token
        self.max_targets = MAX_LOGITS // pipeline.table.shape[0]
        self.index_N = is_predicted_BT.flatten().nonzero()[: self.max_targets, 0]
        self.targets_N = self.ids_BT.flatten()[self.index_N + 1]
        self.sum_reason = ""
        if head is None:
            self.sum_reason = "the model's head is not available"
        elif len(self.index_N) == 0:
            self.sum_reason = "no token has a next token to predict"
        elif head.n_embd != self.layer.n_embd:
            self.sum_reason = "the head expects vectors of a different width, which only the decoder produces"
        elif pipeline.numel() > MAX_HEAD_VALUES:
            self.sum_reason = "the head is too large to run here"

    @property
    def head(self) -> Head:
        head = self.pipeline.head
        assert head is not None
        return head

    @property
    def bias(self) -> Tensor | None:
        return None if self.head.bias is None else self.head.bias.detach().float()

    def gather(self, rows_UD: Tensor) -> Tensor:
        """Look up the rows of the batch; the padding row gets no gradient."""
        return functional.embedding(self.unique.inverse_BT, rows_UD, padding_idx=self.padding_index)

    def hidden(self, gathered_BTD: Tensor) -> Tensor:
        """Compute the hidden states of the batch from its rows."""
        rows_BTD = gathered_BTD * self.layer.scale
        if self.layer.adds_ngrams:
            rows_BTD = self.layer.add_ngrams(rows_BTD, self.ids_BT, self.result.history)
        return self.layer(inputs_embeds=rows_BTD, position_ids=self.result.position_BT)

    def select_predicting(self, hidden_BTD: Tensor) -> Tensor:
        """Select the hidden states whose next token is predicted."""
        return hidden_BTD.flatten(0, 1)[self.index_N]

    def gradients(self) -> Gradients:
        """Compute the loss and its gradients."""
        with torch.enable_grad():
            rows_UD = self.unique.rows_UD.float().clone().requires_grad_()
            gathered_BTD = self.gather(rows_UD)
            hidden_BTD = self.hidden(gathered_BTD)
            if self.sum_reason:
                # Without a padding_idx, padding is an ordinary token: only the mask keeps it out of the sum.
                is_masked = self.layer.padding_idx is None
                loss = (hidden_BTD * self.result.mask_BT[:, :, None] if is_masked else hidden_BTD).sum()
                of_unique, of_gathered = torch.autograd.grad(loss, (rows_UD, gathered_BTD))
                return Gradients(loss.detach(), of_unique, of_gathered, loss.new_empty(0, 0), loss.new_empty(0, 0))
            hidden_ND = self.select_predicting(hidden_BTD) * self.head.hidden_scale
            products_NV = functional.linear(hidden_ND, self.pipeline.head_rows(), self.bias)
            loss = functional.cross_entropy(scale_logits(self.head, products_NV), self.targets_N)
            of_unique, of_gathered, of_products = torch.autograd.grad(loss, (rows_UD, gathered_BTD, products_NV))
            return Gradients(loss.detach(), of_unique, of_gathered, of_products, hidden_ND.detach())

    def note(self) -> str:
        """Describe the targets, or the sum, from which the loss is computed."""
        result, n_targets, part = self.result, len(self.index_N), ""
        if result.n_shown < result.n_tokens:
            first, end, is_batch = result.shown.start, result.shown.stop, len(result.texts) > 1
            of = "each text" if is_batch else f"{result.n_tokens:,}"
            part = f" in the first {end:,} tokens of {of}" if is_batch else f" in the first {end:,} of {of} tokens"
            if first:
                part = f" in tokens {first:,} to {end - 1:,} of {of}"
        if self.sum_reason:
            return f"sum of all hidden states{part}, because {self.sum_reason}"
        limited = "the first " if n_targets == self.max_targets else ""
        how = "predicted by the head directly from the hidden states, without the decoder"
        return f"cross-entropy of {limited}{pluralize(n_targets, 'next token')}{part}, {how}"


def backward(result: ForwardPass) -> Backward:
    """Compute the gradients of the rows in use."""
    loss, max_tokens = Loss(result), result.recorded.max_tokens
    unique, gradients = loss.unique, loss.gradients()
    padding, padding_index = loss.layer.padding_idx, loss.padding_index
    lookup_UD = total_UD = gradients.unique_UD
    head_UD = unmasked_D = None
    reached_V = torch.zeros(result.pipeline.table.shape[0], dtype=torch.bool)  # rows that receive a gradient
    if not loss.sum_reason and loss.head.tied:
        head_UD = gradients.of_head(unique.ids_U)
        reached_V = gradients.products_NV.abs().amax(dim=0).ne(0)  # .ne(0).any(dim=0) takes eight times as long
        if padding is not None:
            reached_V[padding] = False
    if padding_index is not None:
        unmasked_D = gradients.gathered_BTD[unique.inverse_BT == padding_index].sum(dim=0)
        if head_UD is not None:
            unmasked_D += head_UD[padding_index]
            zero_row(head_UD, padding_index)
    if head_UD is not None:
        total_UD = lookup_UD + head_UD
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
        loss_kind="sum" if loss.sum_reason else "next token",
        loss=float(gradients.loss),
        uniform_loss=None if loss.sum_reason else math.log(result.pipeline.table.shape[0]),
        note=loss.note(),
        tied=head_UD is not None,
        n_rows_with_gradient=int(reached_V.sum()),
        rows=rows,
        n_unique_ids=len(ids),
        unmasked_padding_gradient=None if unmasked_D is None else unmasked_D[shown].tolist(),
    )
