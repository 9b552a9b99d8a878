"""build_positions: the positions argument of `Embeddings`, a name or a module -> the module, or None.

Tested in tests/test_embeddings.py.
"""

from __future__ import annotations

from typing import Any

from inlayer.errors import ConfigError
from inlayer.families.spec import Angles
from inlayer.positions.learned import LearnedPositions
from inlayer.positions.rotary import RotaryPositions
from inlayer.positions.sinusoidal import SinusoidalPositions

__all__ = ["SCHEMES", "Positions", "build_positions"]

Positions = LearnedPositions | SinusoidalPositions | RotaryPositions
SCHEMES = ("none", "learned", "sinusoidal", "rotary")


def build_positions(
    positions: str | Positions | None,
    width: int,
    block_size: int | None,
    *,
    theta: float,
    head_dim: int | None,
    learned: dict[str, Any],
) -> Positions | None:
    """The position module for rows of `width`; `learned` are further arguments of LearnedPositions."""
    if positions is None:
        positions = "none" if block_size is None else "learned"
    if isinstance(positions, str) and positions not in SCHEMES:
        raise ConfigError(f"unknown positions {positions!r}; choose one of {', '.join(SCHEMES)}")
    if not isinstance(positions, (str, LearnedPositions, SinusoidalPositions, RotaryPositions)):
        raise ConfigError(
            f"positions is a {type(positions).__name__}; give one of {', '.join(SCHEMES)}, or a module from "
            "inlayer.positions"
        )
    if head_dim is not None and positions != "rotary":
        raise ConfigError(f'head_dim {head_dim} is for positions="rotary"; a RotaryPositions module has its own')
    if isinstance(positions, RotaryPositions):
        return positions
    if not isinstance(positions, str):
        given = positions.embedding_dim if isinstance(positions, LearnedPositions) else positions.n_embd
        if given != width:
            raise ConfigError(f"positions of width {given} cannot be added to rows of width {width}")
        return positions
    if positions == "learned":
        if block_size is None:
            raise ConfigError('positions="learned" needs block_size, the number of positions to learn')
        return LearnedPositions(block_size, width, **learned)
    if positions == "sinusoidal":
        return SinusoidalPositions(width, block_size, theta=theta, device=learned["device"])
    if block_size is not None:
        raise ConfigError(
            f'block_size {block_size} is for learned and sinusoidal positions; positions="{positions}" has no limit'
        )
    if positions == "none":
        return None
    return RotaryPositions(width if head_dim is None else head_dim, Angles(theta=theta))
