"""The scene of a walk: heat strips of all tokens and channels, cosines between tokens, and a sample of the table.

rows, hidden states -> [scene] -> canvas
- strips are only colors: one signed byte per value, round(127 * value / scale), clipped; -128 marks NaN and infinity.
  A walk has the exact digits
- the scale is a high quantile of the absolute values, so a few outlier channels do not make all others pale
- cosines are computed for the rows, and for the hidden states, where positions have been added
- see also: the recorded values (trace/record.py), a step of learning (trace/gradient_step.py), the map
  (geometry/map_page.py)
Tested against the layer elementwise in tests/trace/test_scene.py.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from inlayer.facts_base import Facts
from inlayer.tensors import one_thread
from inlayer.trace.facts import Change, RotaryFacts
from inlayer.trace.forward import ForwardPass, RecordedRange

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

SCENE_VALUES = 2**23  # values of the hidden states shown, in all texts together
MAX_COMPARED = 48  # tokens of the first text whose cosines are computed
MAX_ROWS, MAX_CHANNELS = 256, 192  # size of the sample of the table
QUANTILE = 0.995
DECIMALS = 5


class Strip(Facts):
    """Vectors as colors."""

    width: int
    scale: float  # the value with full intensity
    values: str  # base64 of signed bytes, in the order of the vectors


class SceneStrips(Facts):
    """The strips of all tokens, in the order (text, token, channel)."""

    row: Strip
    position: Strip | None  # the vectors that positions add; None if they add nothing
    hidden: Strip


class SceneSimilarity(Facts):
    """Cosines between tokens in the first text, or None where a vector is zero or not finite."""

    tokens: list[int]  # indices into the text
    row: list[list[float | None]]
    hidden: list[list[float | None]]


class SceneFacts(Facts):
    """The tokens of a batch as heat strips, up to a limit."""

    shape: tuple[int, int, int]  # shape of the hidden states: batch, tokens, width
    tokens: int  # tokens shown per text, padding included
    width: int  # width of the hidden states
    strips: SceneStrips
    similarity: SceneSimilarity
    rotary: list[RotaryFacts]  # all channel pairs, one entry per layer type; empty unless the positions are rotary


class TableScene(Facts):
    """A sample of the table: the values at evenly spaced rows and channels."""

    shape: tuple[int, int]
    rows: list[int]
    channels: list[int]
    scale: float
    values: str  # base64 of signed bytes, in the order (row, channel)


@one_thread()
@torch.no_grad()
def describe_scene(
    pipeline: Pipeline,
    texts: Sequence[str],
    *,
    max_tokens: int = SCENE_VALUES,
    first_token: int = 0,
    change: Change | None = None,
) -> SceneFacts:
    """Run texts and record up to `max_tokens` tokens of each as strips, with cosines starting at `first_token`."""
    change = change or Change()
    recorded = RecordedRange(min(max_tokens, max(1, SCENE_VALUES // (max(1, len(texts)) * pipeline.layer.n_embd))), 1)
    result = ForwardPass(pipeline, change, recorded).run_texts(texts)
    row_BTD, hidden_BTD = result.stages[0].output, result.stages[-1].output
    added = [stage.added.expand_as(stage.output) for stage in result.stages if stage.name == "position"]  # type: ignore[union-attr]
    compared = list(range(max(0, first_token), min(len(result.tokens[0]), result.n_shown)))[:MAX_COMPARED]
    rotary = pipeline.rotations(change.positions, change.theta, range(0), result.n_tokens, result.width)
    position = _strip(added[0]) if added else None
    row_cosines, hidden_cosines = _cosines(row_BTD[0, compared]), _cosines(hidden_BTD[0, compared])
    return SceneFacts(
        shape=(len(texts), result.n_tokens, result.width),
        tokens=result.n_shown,
        width=result.width,
        strips=SceneStrips(row=_strip(row_BTD), position=position, hidden=_strip(hidden_BTD)),
        similarity=SceneSimilarity(tokens=compared, row=row_cosines, hidden=hidden_cosines),
        rotary=[facts for facts, _ in rotary],
    )


@one_thread()
@torch.no_grad()
def sample_table(pipeline: Pipeline) -> TableScene:
    """Sample the table; the first and last row and channel are always included."""
    rows, channels = (
        np.linspace(0, size - 1, min(size, shown)).round().astype(int).tolist()
        for size, shown in zip(pipeline.table.shape, (MAX_ROWS, MAX_CHANNELS), strict=True)
    )
    strip = _strip(pipeline.layer.token_embedding(torch.tensor(rows))[:, channels])
    return TableScene(shape=pipeline.table.shape, rows=rows, channels=channels, scale=strip.scale, values=strip.values)


def _strip(vectors: Tensor) -> Strip:
    values = vectors.float().numpy()
    finite = np.isfinite(values)
    sizes = np.abs(values[finite])
    scale = float(np.quantile(sizes, QUANTILE) or sizes.max() or 1.0) if sizes.size else 1.0
    with np.errstate(all="ignore"):
        quantized = np.clip(np.rint(127 * (values / np.float32(scale))), -127, 127)
    quantized[~finite] = -128
    return Strip(
        width=values.shape[-1], scale=scale, values=base64.b64encode(quantized.astype(np.int8).tobytes()).decode()
    )


def _cosines(vectors_ND: Tensor) -> list[list[float | None]]:
    vectors_ND = vectors_ND.double()
    unit_ND = vectors_ND / vectors_ND.norm(dim=1, keepdim=True)  # NaN for a vector that is zero or not finite
    return [
        [None if math.isnan(cosine) else round(cosine, DECIMALS) for cosine in row]
        for row in (unit_ND @ unit_ND.T).tolist()
    ]
