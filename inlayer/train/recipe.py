"""The recipe of a tied table: what keeps it stable.

- rows are born small, N(0, 1 / D), so that as a head they give logits of a modest spread; as an input they are
  multiplied by sqrt(D), so that they are as large as what the blocks add to them (as Gemma has it)
- why this and not something else: docs/tying.md
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["tied_recipe"]


def tied_recipe(n_embd: int) -> dict[str, Any]:
    """Fields of DecoderConfig for a tied decoder of this width."""
    return {"init": "scaled", "input_scale": math.sqrt(n_embd)}
