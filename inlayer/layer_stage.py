"""The layer's stages, kept for tracing: rows, scale, positions, norm, and so on."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

StageName = Literal["row", "scale", "n-grams", "multiplier", "projection", "token type", "position", "norm", "mask"]


class LayerStage(NamedTuple):
    """The vectors after one stage of the layer and, if the stage adds something to them, what it added."""

    name: StageName
    added: Tensor | None
    output: Tensor


def record_stage(
    stages: list[LayerStage] | None, single: bool, name: StageName, hidden: Tensor, added: Tensor | None = None
) -> Tensor:
    """Return hidden, and append it to the recorded stages, if any; a single text is recorded without a batch axis."""
    if stages is not None:
        stages.append(LayerStage(name, added, hidden[0] if single else hidden))
    return hidden
