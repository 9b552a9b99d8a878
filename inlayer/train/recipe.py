"""The recipe of a table: how its rows are born and how they enter the model, tied or not.

- rows are born small, N(0, 0.02): as a head they begin with even odds, and Adam's steps soon change them
- they are multiplied by 1 / 0.02 on their way in, so that they enter as large as what the blocks add to them. Without
  that a tied table has to grow before its rows are heard, and at high rates it grows past all use
- of all that was tried for tied tables this alone makes every learning rate of the study work: docs/tying.md
- a saved model has the factor multiplied in (save.py)
"""

from __future__ import annotations

from typing import Any

__all__ = ["recipe"]

INIT_STD = 0.02


def recipe() -> dict[str, Any]:
    """Fields of DecoderConfig."""
    return {"init": "normal", "init_std": INIT_STD, "input_scale": 1 / INIT_STD}
