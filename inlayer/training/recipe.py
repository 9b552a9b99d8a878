"""The recipe of a table: how its rows are born, enter the model and leave it.

- rows are born small, N(0, 0.02): as a head they begin with even odds, and Adam's steps soon change them
- they are multiplied by 1 / 0.02 on their way in, so that they enter as large as what the blocks add to them. Without
  that a tied table has to grow before its rows are heard, and at high rates it grows past all use
- a tied head's input is multiplied by 3: logits can differ before the rows have grown
- of all that was tried for tied tables this alone keeps every learning rate of the study well: docs/tying.md
- a saved model has both factors multiplied in (save.py)
"""

from __future__ import annotations

from typing import Any

__all__ = ["recipe"]

INIT_STD, LOUDER = 0.02, 3.0


def recipe(*, tie: bool) -> dict[str, Any]:
    """Fields of DecoderConfig."""
    fields = {"init": "normal", "init_std": INIT_STD, "input_scale": 1 / INIT_STD}
    return {**fields, "output_scale": LOUDER} if tie else fields
