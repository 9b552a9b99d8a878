"""One gradient step: the rows of the table move against their gradient, and the loss is computed again.

text -> ids -> [rows - rate * gradient] -> hidden states -> head -> loss, next tokens
- plain gradient descent on the token table alone, for several learning rates. A tied head moves with its table, so
  every row of it moves; an untied head and everything else stay as they are
- the loss comes from the backward pass, in float32 (trace/backward.py)
- the shift of a row on the map is exact for PCA, which is linear. t-SNE cannot place a new row, so the shift of the
  mean position of its nearest neighbors is shown
Tested against torch.optim.SGD on the whole table in tests/trace/test_gradient_step.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from inlayer.geometry.nearest import nearest_excluding_self
from inlayer.geometry.projection import TableProjection
from inlayer.tensors import one_thread
from inlayer.trace.backward import LossInputs, backward_note, choose_loss
from inlayer.trace.facts import Change
from inlayer.trace.forward import Forward, RecordedRange

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

RATES = (0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
MAX_VALUES = 2**26  # largest table whose dense gradient is computed: 256 MB
MAX_MOVED = 64  # rows reported
MAX_NEXT = 5
NEIGHBORS = 10


@dataclass(frozen=True, kw_only=True)
class NextToken:
    """A token that may follow, with its probability."""

    id: int
    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class UpdatedRow:
    """A row in use after the step."""

    id: int
    shift: tuple[float, float] | None  # on the map; None without a map, and for a zero or non-finite row
    cosine: float | None  # cosine with the row before the step
    norm: float


@dataclass(frozen=True, kw_only=True)
class GradientStep:
    """One step with one learning rate, from the stored rows."""

    rate: float
    loss: float
    next_tokens: list[NextToken]  # most probable first, after the last token of the first text, which has no target
    predicted_tokens: list[NextToken]  # the same after the token `GradientStepFacts.predicted_at`, which has one
    target: NextToken  # the token that actually comes next
    moved: list[UpdatedRow]  # in order of first occurrence


@dataclass(frozen=True, kw_only=True)
class GradientStepFacts:
    """Steps of gradient descent with several learning rates."""

    uniform_loss: float  # the loss if every token were equally likely: ln V
    kind: Literal["next token", "sum"]
    note: str  # what the loss is computed from, or why `steps` is empty
    predicted_at: tuple[int, int] | None  # text and index of the last token whose next token is a target
    method: str | None  # the map of the shifts
    steps: list[GradientStep]  # one per rate


@one_thread()
@torch.no_grad()
def take_gradient_step(
    pipeline: Pipeline,
    texts: Sequence[str],
    *,
    rates: Sequence[float] = RATES,
    tokens: int = 256,
    first_token: int = 0,
    change: Change | None = None,
    projection: TableProjection | None = None,
) -> GradientStepFacts:
    """Take one step from the stored rows with each learning rate. Other arguments are the same as for a walk."""
    result = Forward(pipeline, change or Change(), RecordedRange(tokens, 1, first_token)).run_texts(texts)
    inputs = choose_loss(result) if result.count else None
    uniform_loss = math.log(pipeline.table.shape[0])
    without_steps = partial(GradientStepFacts, uniform_loss=uniform_loss, predicted_at=None, method=None, steps=[])
    if inputs is None or inputs.targets is None:
        note = "the text has no tokens" if inputs is None else backward_note(inputs)
        return without_steps(kind="sum", note=note)
    if pipeline.values() > MAX_VALUES:
        note = "the table is too large to compute a training step here"
        return without_steps(kind="next token", note=note)
    gradient_VD, steps = _gradient(inputs), []
    used, known = inputs.unique.inverse_BT[result.mask_BT.bool()].tolist(), inputs.unique.ids_U.tolist()
    ids = [known[index] for index in dict.fromkeys(used) if known[index] != inputs.layer.padding_idx][
        :MAX_MOVED
    ]  # in order
    target = int(inputs.targets[-1])
    indices = torch.searchsorted(inputs.unique.ids_U, torch.tensor(ids, dtype=torch.int64))
    rows_ND, moves_ND = inputs.unique.rows_UD.float()[indices], gradient_VD[ids]
    last = min(len(result.tokens[0]), result.shown.stop) - result.shown.start - 1
    for rate in map(float, rates):
        loss, after_last_V, predicted_V = _evaluate(inputs, rate, gradient_VD, last)
        steps.append(
            GradientStep(
                rate=rate,
                loss=loss,
                next_tokens=_most_probable(pipeline, after_last_V) if last >= 0 else [],
                predicted_tokens=_most_probable(pipeline, predicted_V),
                target=_next_token(pipeline, predicted_V, target),
                moved=_moved(pipeline, ids, rows_ND.numpy(), (rows_ND - rate * moves_ND).numpy(), projection),
            )
        )
    return GradientStepFacts(
        uniform_loss=uniform_loss,
        kind="next token",
        note=backward_note(inputs),
        predicted_at=divmod(int(inputs.index_N[-1]), result.count),
        method=None if projection is None else projection.method,
        steps=steps,
    )


def _gradient(inputs: LossInputs) -> Tensor:
    """Return the gradient of the whole table (V, D): through the lookup, and through a tied head."""
    head, padding, head_VD = inputs.head, inputs.layer.padding_idx, inputs.pipeline.head_rows()
    with torch.enable_grad():
        rows_UD = inputs.unique.rows_UD.float().clone().requires_grad_()
        weight_VD = head_VD.clone().requires_grad_(head.tied)
        loss = inputs.loss(inputs.hidden(rows_UD), weight_VD)
        lookup_UD, *through_head = torch.autograd.grad(loss, (rows_UD, weight_VD) if head.tied else (rows_UD,))
    gradient_VD = through_head[0] if head.tied else torch.zeros(inputs.pipeline.table.shape)
    gradient_VD.index_add_(0, inputs.unique.ids_U, lookup_UD)
    if padding is not None:
        gradient_VD[padding] = 0
    return gradient_VD


def _evaluate(inputs: LossInputs, rate: float, gradient_VD: Tensor, last: int) -> tuple[float, Tensor, Tensor]:
    """Return the loss after a step, and the probabilities after token `last` of text 0 and after the last target."""
    unique, weight_VD = inputs.unique, inputs.pipeline.head_rows()
    hidden_BTD = inputs.hidden(unique.rows_UD.float() - rate * gradient_VD[unique.ids_U])
    if inputs.head.tied:
        weight_VD = weight_VD - rate * gradient_VD
    loss = float(inputs.loss(hidden_BTD, weight_VD))
    hidden_PD = torch.stack((hidden_BTD[0, last], hidden_BTD.flatten(0, 1)[inputs.index_N[-1]]))
    after_last_V, predicted_V = functional.softmax(inputs.logits(hidden_PD, weight_VD), dim=-1)
    return loss, after_last_V, predicted_V


def _most_probable(pipeline: Pipeline, probabilities_V: Tensor) -> list[NextToken]:
    ids = probabilities_V.topk(min(MAX_NEXT, len(probabilities_V))).indices.tolist()
    return [_next_token(pipeline, probabilities_V, token_id) for token_id in ids]


def _next_token(pipeline: Pipeline, probabilities_V: Tensor, token_id: int) -> NextToken:
    return NextToken(id=token_id, label=pipeline.spelling(token_id), probability=float(probabilities_V[token_id]))


def _moved(
    pipeline: Pipeline,
    ids: list[int],
    before: npt.NDArray[np.float32],
    after: npt.NDArray[np.float32],
    projection: TableProjection | None,
) -> list[UpdatedRow]:
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(after.astype(np.float64), axis=1)
        cosines = (
            np.vecdot(before.astype(np.float64), after) / norms / np.linalg.norm(before.astype(np.float64), axis=1)
        )
    known = np.isfinite(cosines)
    shifts = np.full((len(ids), 2), np.nan)
    if projection is not None and known.any():
        if projection.axes is not None:
            shifts[known] = (after[known] - before[known]) @ projection.axes
        else:
            own = np.array(ids)[known]
            old, new = (_neighborhood(pipeline, own, rows[known], projection) for rows in (before, after))
            shifts[known] = new - old
    return [
        UpdatedRow(
            id=token_id,
            shift=(shift[0], shift[1]) if all(map(math.isfinite, shift)) else None,
            cosine=min(cosine, 1.0) if math.isfinite(cosine) else None,
            norm=norm,
        )
        for token_id, shift, cosine, norm in zip(ids, shifts.tolist(), cosines.tolist(), norms.tolist(), strict=True)
    ]


def _neighborhood(
    pipeline: Pipeline, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.float32], projection: TableProjection
) -> npt.NDArray[np.float64]:
    """Return the mean position on the map of the rows nearest to each vector, without the row it comes from."""
    near_ids, _ = nearest_excluding_self(pipeline.stored_table, ids, rows, NEIGHBORS)
    means = np.full((len(ids), 2), np.nan)
    for index, near in enumerate(near_ids):
        if (near >= 0).any():
            means[index] = projection.points[near[near >= 0]].mean(axis=0)
    return means
