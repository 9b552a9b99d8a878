"""A layer's position module, from the arguments of `Embeddings` or from a spec.

LayerSpec, or arguments -> [positions] -> Embeddings
Tested in tests/test_embeddings.py, against transformers in tests/families/.
"""

from __future__ import annotations

from typing import Any, get_args

import torch

from inlayer.errors import InputError, type_name
from inlayer.families.spec import LayerSpec, PositionScheme, RopeParameters
from inlayer.positions.absolute import LearnedPositions, SinusoidalPositions
from inlayer.positions.rotary import RotaryPositions

Positions = LearnedPositions | SinusoidalPositions | RotaryPositions
SCHEMES: tuple[PositionScheme, ...] = get_args(PositionScheme)
MAX_PRECOMPUTED = 2**22  # limit on values of sinusoidal positions, even if a config has more; CTRL has 0.3 million


def build_positions(
    positions: PositionScheme | Positions | None,
    width: int,
    block_size: int | None,
    *,
    theta: float,
    head_dim: int | None,
    learned_kwargs: dict[str, Any],
) -> Positions | None:
    """Return the position module for rows of `width`; `learned_kwargs` are the other arguments of LearnedPositions."""
    if positions is None:
        positions = "none" if block_size is None else "learned"
    if isinstance(positions, str) and positions not in SCHEMES:
        raise InputError(f"positions is {positions!r}; it must be one of {', '.join(SCHEMES)}")
    if not isinstance(positions, (str, LearnedPositions, SinusoidalPositions, RotaryPositions)):
        raise InputError(
            f"positions is {type_name(positions)}; pass one of {', '.join(SCHEMES)}, or a module from inlayer.positions"
        )
    if head_dim is not None and positions != "rotary":
        raise InputError('head_dim applies only to positions="rotary"; a RotaryPositions module already sets it')
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
        return LearnedPositions(block_size, width, **learned_kwargs)
    if positions == "sinusoidal":
        return SinusoidalPositions(width, block_size, theta=theta, device=learned_kwargs["device"])
    if block_size is not None:
        raise InputError(
            f'block_size {block_size} is for learned and sinusoidal positions; positions="{positions}" has no limit'
        )
    if positions == "none":
        return None
    return RotaryPositions(width if head_dim is None else head_dim, RopeParameters(theta=theta))


def positions_from_spec(spec: LayerSpec, device: torch.device | str | None) -> PositionScheme | Positions:
    """Return a spec's positions as `build_positions` expects them: a scheme, or a module for rotary and CTRL."""
    if spec.rotary:
        return RotaryPositions(**vars(spec.rotary)).to(device)
    if spec.positions != "sinusoidal":
        return spec.positions
    precomputed = min(spec.block_size or 0, MAX_PRECOMPUTED // spec.n_embd)  # later positions are computed when used
    positions = SinusoidalPositions(spec.n_embd, precomputed, layout="half_fp32")  # CTRL
    # The encodings are computed, so they have values even if the layer is on the meta device.
    return positions if torch.device(device or "cpu").type == "meta" else positions.to(device)
