"""Positions: how the layer represents the order of the tokens. Learned, sinusoidal, rotary, or relative.

text -> ids -> rows -> [positions] -> hidden states -> head
- `position_ids.py` numbers the tokens; `absolute.py`, `rotary.py`, and `relative.py` are the schemes; `build.py` makes
  the one that a layer needs
Tested in tests/positions/ and tests/test_embeddings.py, against transformers in tests/families/.
"""

from inlayer.families.rope_scaling_settings import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeScaling,
    YarnScaling,
)
from inlayer.families.spec import PositionIdRule, PositionScheme, RopeParameters
from inlayer.positions.absolute import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from inlayer.positions.build import SCHEMES, Positions, build_positions, positions_from_spec
from inlayer.positions.position_ids import make_position_ids, position_ids_from_mask
from inlayer.positions.relative import alibi_from_spec, relative_rows
from inlayer.positions.rotary import RotaryPositions, apply_rotary

__all__ = [
    "SCHEMES", "DynamicNTKScaling", "LearnedPositions", "LinearScaling", "Llama3Scaling", "LongRopeScaling",
    "PositionIdRule", "PositionScheme", "Positions", "RopeParameters", "RopeScaling", "RotaryPositions",
    "SinusoidalPositions", "YarnScaling", "alibi_from_spec", "apply_rotary", "build_positions", "make_position_ids",
    "position_ids_from_mask", "positions_from_spec", "relative_rows", "sinusoidal_encoding",
]  # fmt: skip
