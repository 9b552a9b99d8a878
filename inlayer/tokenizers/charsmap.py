"""Is a precompiled character map whole? `tokenizers` walks it without looking where it steps, and panics.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- the map of sentencepiece's normalizer, kept in tokenizer.json as base64: four bytes with the size of a trie, the trie,
  then the replacement texts, each ended by a NUL
- the trie is an array of 32-bit units. A walk stands at a place, steps to `place ^ byte`, and goes on from there to
  `place ^ offset(unit)` where the unit's label is that byte; a leaf there holds the place of a replacement text
- every place a walk can reach is visited once: it must lie in the array, and every replacement in the texts
- not here: applying the map (`tokenizers` does)
Checked with damaged maps in tests/tokenizers/test_hostile.py.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
import numpy.typing as npt

__all__ = ["charsmap_fault"]

LABEL = (1 << 31) | 0xFF
BLOCK = 4096  # bounds the memory of a step: 255 times as many places are looked at


def charsmap_fault(value: object) -> str | None:
    """What is wrong with a precompiled_charsmap; None where every walk stays inside it."""
    if not isinstance(value, str):
        return "is no base64 text"
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return "is no base64 text"
    size = int.from_bytes(data[:4], "little")
    if not 4 <= size <= len(data) - 4 or size % 4:
        return f"names a trie of {size} bytes, but {max(0, len(data) - 4)} follow"
    units, texts = np.frombuffer(data[4 : 4 + size], "<u4").astype(np.int64), data[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError:
        return "holds replacements that are not UTF-8 text"
    # a replacement begins inside the texts, and not inside a character
    begins = np.append(np.frombuffer(texts, np.uint8) & 0xC0 != 0x80, True)
    return None if stays_inside(units, begins) else "leads outside itself"


def stays_inside(units: npt.NDArray[np.int64], begins: npt.NDArray[np.bool_]) -> bool:
    """Visit all that a walk over any bytes can reach, each place once, a block of them at a time."""
    seen = np.zeros(units.size, np.bool_)
    steps = np.arange(1, 256)
    waiting = offset(units[:1])
    while waiting.size:
        if waiting.max() >= units.size:
            return False
        waiting = np.unique(waiting[~seen[waiting]])
        places, waiting = waiting[:BLOCK], waiting[BLOCK:]
        seen[places] = True
        reached = places[:, None] ^ steps
        if reached.size and reached.max() >= units.size:
            return False
        found = reached[units[reached] & LABEL == steps]
        onward = found ^ offset(units[found])
        leaves = onward[(units[found] >> 8) & 1 == 1]
        if leaves.size and leaves.max() >= units.size:
            return False
        values = units[leaves] & 0x7FFFFFFF
        if values.size and (values.max() >= begins.size or not begins[values].all()):
            return False
        waiting = np.concatenate([waiting, onward])
    return True


def offset(units: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (units >> 10) << ((units & (1 << 9)) >> 6)
