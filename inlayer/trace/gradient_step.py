"""One gradient step: the table rows move against their gradient, and the loss is computed again.

text -> ids -> [rows - learning_rate * gradient] -> hidden states -> head -> loss, next tokens
- plain gradient descent on the token table alone, for several learning rates. A tied head moves with its table, so
  all its rows move; an untied head and everything else do not change
- the loss comes from the backward pass, in float32 (trace/backward.py)
- the shift of a row on the map is exact for PCA, which is linear. t-SNE cannot place a new row, so the
  map shows the shift of the mean position of the row's nearest neighbors
Tested against torch.optim.SGD on the whole table in tests/trace/test_gradient_step.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from inlayer.facts_base import Facts
from inlayer.geometry.nearest import nearest_excluding_self
from inlayer.geometry.projection import TableProjection
from inlayer.head import compute_logits
from inlayer.shapes import Ids, Numbers, Vectors
from inlayer.tables.padding_row import zero_row
from inlayer.tensors import one_thread
from inlayer.trace.backward import Loss
from inlayer.trace.facts import Change
from inlayer.trace.forward import ForwardPass, RecordedRange

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

LEARNING_RATES = (0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
MAX_TABLE_VALUES = 2**26  # largest table whose dense gradient is computed: 256 MB
MAX_MOVED = 64  # rows reported
MAX_NEXT = 5
NEIGHBORS = 10


class NextToken(Facts):
    """A token that may follow, with its probability."""

    id: int
    label: str
    probability: float


class UpdatedRow(Facts):
    """A row in use after the step."""

    id: int
    shift: tuple[float, float] | None  # on the map, or None if there is no map or the row is zero or not finite
    cosine: float | None  # cosine with the row before the step
    norm: float


class GradientStep(Facts):
    """One step with one learning rate, from the stored rows."""

    learning_rate: float
    loss: float
    next_tokens: list[NextToken]  # most probable first, after the last token of the first text, which has no target
    predicted_tokens: list[NextToken]  # the same after the token `GradientStepFacts.predicted_at`, which has one
    target: NextToken  # the token that actually comes next
    moved: list[UpdatedRow]  # in order of first occurrence


class GradientStepFacts(Facts):
    """Steps of gradient descent with several learning rates."""

    uniform_loss: float  # the loss if every token were equally likely: ln V
    loss_kind: Literal["next token", "sum"]
    note: str  # what the loss is computed from, or why `steps` is empty
    predicted_at: tuple[int, int] | None  # text and index of the last token whose next token is a target
    method: str | None  # the map of the shifts
    steps: list[GradientStep]  # one per learning rate


@one_thread()
@torch.no_grad()
def take_gradient_step(
    pipeline: Pipeline,
    texts: Sequence[str],
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    max_tokens: int = 256,
    first_token: int = 0,
    change: Change | None = None,
    projection: TableProjection | None = None,
) -> GradientStepFacts:
    """Take one step from the stored rows with each learning rate. Other arguments are the same as for a walk."""
    result = ForwardPass(pipeline, change or Change(), RecordedRange(max_tokens, 1, first_token)).run_texts(texts)
    loss = Loss(result) if result.n_shown else None
    facts = GradientStepFacts(
        uniform_loss=math.log(pipeline.table.shape[0]), loss_kind="sum", note="the text has no tokens",
        predicted_at=None, method=None, steps=[],
    )  # fmt: skip
    if loss is None or loss.sum_reason:
        return facts if loss is None else replace(facts, note=loss.note())
    facts = replace(facts, loss_kind="next token", note=loss.note())
    if pipeline.numel() > MAX_TABLE_VALUES:
        return replace(facts, note="the table is too large to compute a training step here")
    padding, weight_VD, gradient_VD = loss.layer.padding_idx, pipeline.head_rows(), _table_gradient(loss)
    used = dict.fromkeys(loss.ids_BT[result.mask_BT].tolist())  # in order of first occurrence
    ids = [token_id for token_id in used if token_id != padding][:MAX_MOVED]
    indices = torch.searchsorted(loss.unique.ids_U, torch.tensor(ids, dtype=torch.int64))
    rows_UD, moves_UD = loss.unique.rows_UD.float(), gradient_VD[loss.unique.ids_U]
    last = min(len(result.tokens[0]), result.shown.stop) - result.shown.start - 1
    steps = []
    for learning_rate in map(float, learning_rates):
        moved_UD = rows_UD - learning_rate * moves_UD
        hidden_BTD = loss.hidden(loss.gather(moved_UD))
        hidden_ND = torch.cat((hidden_BTD[0, last][None], loss.select_predicting(hidden_BTD)))
        moved_VD = weight_VD - learning_rate * gradient_VD if loss.head.tied else weight_VD
        logits_NV = compute_logits(loss.head, hidden_ND, moved_VD, loss.bias)
        after_last_V, predicted_V = functional.softmax(logits_NV[[0, -1]], dim=-1)
        steps.append(
            GradientStep(
                learning_rate=learning_rate,
                loss=float(functional.cross_entropy(logits_NV[1:], loss.targets_N)),
                next_tokens=_most_probable(pipeline, after_last_V) if last >= 0 else [],
                predicted_tokens=_most_probable(pipeline, predicted_V),
                target=_next_token(pipeline, predicted_V, int(loss.targets_N[-1])),
                moved=_moved(pipeline, ids, rows_UD[indices].numpy(), moved_UD[indices].numpy(), projection),
            )
        )
    method = None if projection is None else projection.method
    return replace(facts, predicted_at=divmod(int(loss.index_N[-1]), result.n_shown), method=method, steps=steps)


def _table_gradient(loss: Loss) -> Tensor:
    """Return the gradient of the whole table (V, D): through the lookup, and through a tied head."""
    gradients = loss.gradients()
    table_VD = gradients.of_head(slice(None)) if loss.head.tied else torch.zeros(loss.pipeline.table.shape)
    table_VD.index_add_(0, loss.unique.ids_U, gradients.unique_UD)
    return zero_row(table_VD, loss.layer.padding_idx)


def _most_probable(pipeline: Pipeline, probabilities_V: Tensor) -> list[NextToken]:
    ids = probabilities_V.topk(min(MAX_NEXT, len(probabilities_V))).indices.tolist()
    return [_next_token(pipeline, probabilities_V, token_id) for token_id in ids]


def _next_token(pipeline: Pipeline, probabilities_V: Tensor, token_id: int) -> NextToken:
    return NextToken(id=token_id, label=pipeline.token_text(token_id), probability=float(probabilities_V[token_id]))


def _moved(
    pipeline: Pipeline, ids: list[int], before: Vectors, after: Vectors, projection: TableProjection | None
) -> list[UpdatedRow]:
    with np.errstate(all="ignore"):
        before_norms, norms = (np.linalg.norm(rows.astype(np.float64), axis=1) for rows in (before, after))
        cosines = np.vecdot(before.astype(np.float64), after) / norms / before_norms
    known = np.isfinite(cosines)
    shifts = np.full((len(ids), 2), np.nan)
    if projection is not None and known.any():
        if projection.axes is not None:
            shifts[known] = (after[known] - before[known]) @ projection.axes
        else:
            known_ids = np.array(ids)[known]
            old, new = (_neighborhood(pipeline, known_ids, rows[known], projection) for rows in (before, after))
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


def _neighborhood(pipeline: Pipeline, ids: Ids, rows: Vectors, projection: TableProjection) -> Numbers:
    """Return the mean map position of the rows nearest to each vector, excluding the row it comes from."""
    near_ids, _ = nearest_excluding_self(pipeline.stored_table, ids, rows, NEIGHBORS)
    is_found = (near_ids >= 0)[..., None]
    means: Numbers = projection.points[near_ids].mean(axis=1, where=is_found, dtype=np.float64)
    return means
