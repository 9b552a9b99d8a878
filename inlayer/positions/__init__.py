"""Positions: how the order of the tokens enters the layer. Learned, sinusoidal or rotary (with scaling).

text -> ids -> rows -> [positions] -> hidden states -> head
"""

from inlayer.families.spec import Angles, DynamicNTK, Linear, Llama3, LongRope, PositionIdRule, Scaling, Yarn
from inlayer.positions.build import Positions, build_positions
from inlayer.positions.learned import LearnedPositions
from inlayer.positions.position_ids import make_position_ids, position_ids_from_mask
from inlayer.positions.rotary import RotaryPositions, apply_rotary
from inlayer.positions.sinusoidal import SinusoidalPositions, sinusoidal_encoding

__all__ = [
    "Angles",
    "DynamicNTK",
    "LearnedPositions",
    "Linear",
    "Llama3",
    "LongRope",
    "PositionIdRule",
    "Positions",
    "RotaryPositions",
    "Scaling",
    "SinusoidalPositions",
    "Yarn",
    "apply_rotary",
    "build_positions",
    "make_position_ids",
    "position_ids_from_mask",
    "sinusoidal_encoding",
]
