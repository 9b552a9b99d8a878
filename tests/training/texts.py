"""A small deterministic text to train on."""

from __future__ import annotations

import random
from pathlib import Path

TEXT = "the quick brown fox jumps over a lazy dog while seven old books lie on my table and nobody reads them"


def write_text(path: Path, lines: int = 600, seed: int = 0) -> Path:
    words, choose = TEXT.split(), random.Random(seed)
    path.write_text("".join(" ".join(choose.choices(words, k=12)) + ".\n" for _ in range(lines)), encoding="utf-8")
    return path
