"""positions: how the order of the tokens enters. None, learned, sinusoidal, rotary (+ scaling)."""

from inlayer.positions.learned import LearnedPositions
from inlayer.positions.position_ids import PositionIdRule
from inlayer.positions.rotary import Angles, RotaryPositions, apply_rotary
from inlayer.positions.scaling import DynamicNTK, Linear, Llama3, LongRope, Scaling, Yarn
from inlayer.positions.sinusoidal import SinusoidalPositions, sinusoidal_encoding

__all__ = [
    "Angles",
    "DynamicNTK",
    "LearnedPositions",
    "Linear",
    "Llama3",
    "LongRope",
    "PositionIdRule",
    "RotaryPositions",
    "Scaling",
    "SinusoidalPositions",
    "Yarn",
    "apply_rotary",
    "sinusoidal_encoding",
]
