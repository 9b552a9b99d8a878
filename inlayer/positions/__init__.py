"""positions: how the order of the tokens enters. None, learned, sinusoidal, rotary (+ scaling)."""

from inlayer.positions.learned import Learned
from inlayer.positions.position_ids import Numbering
from inlayer.positions.rotary import Angles, Rotary, apply_rotary
from inlayer.positions.scaling import DynamicNTK, Linear, Llama3, LongRope, Scaling, Yarn
from inlayer.positions.sinusoidal import Sinusoidal, sinusoids

__all__ = [
    "Angles",
    "DynamicNTK",
    "Learned",
    "Linear",
    "Llama3",
    "LongRope",
    "Numbering",
    "Rotary",
    "Scaling",
    "Sinusoidal",
    "Yarn",
    "apply_rotary",
    "sinusoids",
]
