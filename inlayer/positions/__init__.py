"""Positions: how the layer represents the order of the tokens. Learned, sinusoidal, rotary or relative.

text -> ids -> rows -> [positions] -> hidden states -> head
- position ids from the caller are used unchanged, which is all that left padding and packed sequences need. By default,
  they follow the family's rule (families/spec.py, PositionIdRule)
Tested in tests/positions/test_position_ids.py and tests/test_embeddings.py, against transformers in tests/families/.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from inlayer.errors import InputError, ShapeError, type_name
from inlayer.families.scaling_rules import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Scaling,
    YarnScaling,
)
from inlayer.families.spec import Angles, LayerSpec, PositionIdRule
from inlayer.positions.absolute import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from inlayer.positions.relative import alibi_from_spec, relative_rows
from inlayer.positions.rotary import RotaryPositions, apply_rotary
from inlayer.tensors import check_dense, is_meta_or_traced, to_bool_mask

__all__ = [
    "SCHEMES", "Angles", "DynamicNTKScaling", "LearnedPositions", "LinearScaling", "Llama3Scaling", "LongRopeScaling",
    "PositionIdRule", "Positions", "RotaryPositions", "Scaling", "SinusoidalPositions", "YarnScaling",
    "alibi_from_spec", "apply_rotary", "build_positions", "make_position_ids", "position_ids_from_mask",
    "positions_from_spec", "relative_rows", "sinusoidal_encoding",
]  # fmt: skip

Positions = LearnedPositions | SinusoidalPositions | RotaryPositions
SCHEMES = ("none", "learned", "sinusoidal", "rotary")
MAX_PRECOMPUTED = 2**22  # values of sinusoidal positions, whatever a config says; CTRL has 0.3 million
LEFT_PADDED = (
    "attention_mask has padding on the left, but positions count from the first column; pass "
    "position_ids=inlayer.position_ids_from_mask(attention_mask)"
)


def position_ids_from_mask(attention_mask: object) -> Tensor:
    """Compute position ids that skip padding: the first real token of each text is at position 0.

    Pass them whenever a batch is padded on the left and positions are absolute or rotary.

    Args:
        attention_mask: (B, T), true or 1 for real tokens, false or 0 for padding.

    Returns:
        Position ids (B, T) int64; padding tokens get position 0.

    Raises:
        DtypeError: If the mask is not a dense tensor.
        ShapeError: If the mask does not have two axes.
        InputError: If the mask has values other than 0 and 1.

    Example:
        >>> position_ids_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    mask = check_dense(attention_mask, "attention_mask")
    if mask.dim() != 2:
        raise ShapeError(f"attention_mask has shape {tuple(mask.shape)}; expected (batch, tokens)")
    return (to_bool_mask(mask, "attention_mask").cumsum(dim=1) - 1).clamp(min=0)


def make_position_ids(
    rule: PositionIdRule, shape: tuple[int, int], device: torch.device, ids: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Make position ids (B, T), or (1, T) if they are the same for all texts."""
    real: Tensor | None = None
    if rule.by == "ids" and ids is not None and rule.padding_idx is not None:
        real = ids.ne(rule.padding_idx)
    elif rule.by == "mask" and mask is not None:
        real = mask.ne(0)
    if real is None:  # also the case for inputs_embeds, where padding cannot be recognized
        if mask is not None and _is_left_padded(mask):
            warnings.warn(LEFT_PADDED, stacklevel=6)
        return torch.arange(rule.start, rule.start + shape[1], device=device)[None]
    return torch.where(real, real.cumsum(dim=1) + (rule.start - 1), rule.start - 1)


def _is_left_padded(mask: Tensor) -> bool:
    """Return whether any text is left-padded. Not checked on a GPU, because that would force a sync."""
    if mask.device.type != "cpu" or is_meta_or_traced(mask):
        return False
    real = mask == 0 if bool((mask < 0).any()) else mask != 0  # an additive mask has 0 for real tokens
    return bool((~real[:, :1] & real).any())


def build_positions(
    positions: str | Positions | None,
    width: int,
    block_size: int | None,
    *,
    theta: float,
    head_dim: int | None,
    learned: dict[str, Any],
) -> Positions | None:
    """Return the position module for rows of `width`; `learned` has the other arguments of LearnedPositions."""
    if positions is None:
        positions = "none" if block_size is None else "learned"
    if isinstance(positions, str) and positions not in SCHEMES:
        raise InputError(f"unknown positions {positions!r}; choose one of {', '.join(SCHEMES)}")
    if not isinstance(positions, (str, LearnedPositions, SinusoidalPositions, RotaryPositions)):
        raise InputError(
            f"positions is {type_name(positions)}; pass one of {', '.join(SCHEMES)}, or a module from inlayer.positions"
        )
    if head_dim is not None and positions != "rotary":
        raise InputError(f'head_dim {head_dim} is for positions="rotary"; a RotaryPositions module has its own')
    if isinstance(positions, RotaryPositions):
        return positions
    if not isinstance(positions, str):
        actual = positions.embedding_dim if isinstance(positions, LearnedPositions) else positions.n_embd
        if actual != width:
            raise InputError(f"positions of width {actual} cannot be added to rows of width {width}")
        return positions
    if positions == "learned":
        if block_size is None:
            raise InputError('positions="learned" needs block_size, the number of positions to learn')
        return LearnedPositions(block_size, width, **learned)
    if positions == "sinusoidal":
        return SinusoidalPositions(width, block_size, theta=theta, device=learned["device"])
    if block_size is not None:
        raise InputError(
            f'block_size {block_size} is for learned and sinusoidal positions; positions="{positions}" has no limit'
        )
    if positions == "none":
        return None
    return RotaryPositions(width if head_dim is None else head_dim, Angles(theta=theta))


def positions_from_spec(spec: LayerSpec, device: torch.device | str | None) -> str | Positions:
    """Return the positions of a spec as `build_positions` takes them: a scheme, or a module for rotary and CTRL."""
    if spec.rotary:
        return RotaryPositions(**vars(spec.rotary)).to(device)
    if spec.positions != "sinusoidal":
        return spec.positions
    precomputed = min(spec.block_size or 0, MAX_PRECOMPUTED // spec.n_embd)  # others are computed when used
    positions = SinusoidalPositions(spec.n_embd, precomputed, layout="half in float32")  # CTRL
    # The encodings are computed, so they have values even if the layer is on the meta device.
    return positions if torch.device(device or "cpu").type == "meta" else positions.to(device)
