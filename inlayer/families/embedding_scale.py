"""Embedding scale: the factor by which a family multiplies its rows, or all inputs of its layer.

config.json -> [factor] -> LayerSpec
- rows only (`scale` of the spec; Gemma), or rows and inputs_embeds alike (`multiplier`; Granite)
Tested through every family in tests/families/.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from inlayer.families.config_reader import ConfigReader
from inlayer.families.family import Family


def read_embedding_scale(family: Family, fields: ConfigReader, n_embd: int) -> tuple[float, float]:
    """Return the factor on rows only, and the factor on rows and inputs_embeds alike; 1 for none."""
    if family.scale_at is None or (family.scale_flag and not fields.flag(family.scale_flag, default=False)):
        return 1.0, 1.0
    factor = fields.number(family.scale_field, default=1.0) if family.scale_field else float(n_embd**0.5)
    if family.bfloat16_scale:
        factor = float(np.float32(factor).astype(ml_dtypes.bfloat16))
    has_encoder = fields.flag("is_encoder_decoder", default=True)
    rows_only = family.scale_at == "rows" and (has_encoder or not family.scales_inputs_without_encoder)
    return (factor, 1.0) if rows_only else (1.0, factor)
