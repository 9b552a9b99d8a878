"""Settled characters: those on which every library's Unicode tables agree.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- gigatoken, tokenizers and tiktoken carry different Unicode versions: a character younger than one of them is a
  letter here and nothing there, and text is cut at another place. Texts that hold one take the exact path.
- the table is data, made once by tests/tokenizers/make_charset.py: Python's own unicodedata changes with every Python
- texts are looked at in blocks, as one array of code points: ASCII costs nothing, the rest a few ns per character
- not here: which tokenizers may be fast at all (fast.py)
Checked against its generator and, per code point, against the libraries in tests/tokenizers/test_charset.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from inlayer.tokenizers.base import surrogate_error

__all__ = ["settled_table", "unsettled_texts"]

BLOCK_CHARACTERS = 1 << 20  # looked at together: bounds the memory of the code-point array to a few megabytes

# Lengths of alternating runs over all code points: settled, not settled, settled, ... (Unicode 14)
RUNS = """
848 16 24 2 6 4 7 1 1 1 20 1 228 1 168 1 38 2 50 2 3 1 17 1 23 1 10 1 1 9 27 4 6 11 16 11 59 10 174 1 60
2 101 14 43 9 7 3 24 4 1 9 1 3 1 7 15 1 25 5 1 1 11 5 31 1 2 14 42 24 1 29 132 1 8 2 2 2 22 1 7 1 1 3 4
2 9 2 2 2 4 8 1 4 2 1 5 2 24 3 3 1 6 4 2 2 22 1 7 1 2 1 2 1 2 2 1 1 5 4 2 2 3 3 1 7 4 1 1 7 17 10 3 1 9
1 3 1 22 1 7 1 2 1 5 2 10 1 3 1 3 2 1 15 4 2 12 7 7 1 3 1 8 2 2 2 22 1 7 1 2 1 5 2 9 2 2 2 3 7 3 4 2 1 5
2 18 10 2 1 6 3 3 1 4 3 2 1 1 1 2 3 2 3 3 3 12 4 5 3 3 1 4 2 1 6 1 14 21 5 13 1 3 1 23 1 16 3 8 1 3 1 4
7 2 1 3 2 1 2 4 2 10 7 22 1 3 1 23 1 10 1 5 3 8 1 3 1 4 7 2 6 2 1 4 2 10 1 2 13 13 1 3 1 41 2 8 1 3 1 6
4 16 2 26 1 3 1 18 3 24 1 9 1 1 2 7 3 1 4 6 1 1 1 8 6 10 2 3 12 58 4 29 37 2 1 1 1 5 1 24 1 1 1 19 1 3 2
5 1 1 1 6 2 10 2 4 32 72 1 36 4 39 1 36 1 15 1 13 37 58 1 82 1 56 1 1 5 1 2 377 1 4 2 7 1 1 1 4 2 41 1 4
2 33 1 4 2 7 1 1 1 4 2 15 1 57 1 4 2 67 5 29 3 26 6 86 2 6 2 669 3 89 7 21 10 24 9 20 12 13 1 3 1 2 12
93 3 10 6 10 6 26 6 89 7 43 5 70 10 31 1 12 4 9 7 1 3 42 2 5 11 44 4 26 6 11 3 57 2 3 2 65 2 20 11 10 6
10 6 14 16 1 65 6 1 1 1 1 1 1 1 1 1 3 1 33 1 6 1 1 1 2 2 1 2 8 3 27 9 11 1 42 2 58 1 11 10 59 4 15 3 60
7 43 2 11 11 1 13 1 7 4 1 6 1 3 2 1 5 192 64 278 2 6 2 38 2 6 2 8 1 1 1 1 1 1 1 31 2 53 1 15 1 14 2 6 1
19 2 3 1 9 1 101 1 12 2 27 1 13 3 33 15 27 21 140 4 663 25 11 21 1812 2 32 1 344 3 2 5 45 1 1 5 1 2 56 7
2 15 23 9 7 1 7 1 7 1 7 1 7 1 7 1 7 1 7 33 94 34 26 1 89 12 214 26 12 4 64 1 86 2 103 5 43 1 94 1 84 12
47 1 29293 3 55 9 348 20 47 1 4 10 32 2 80 2 6 8 203 5 2 1 1 1 5 24 20 1 37 4 10 6 56 8 68 1 1 8 12 24
57 3 37 12 30 3 51 1 12 1 13 1 11 4 33 1 55 9 14 2 10 2 84 1 1 3 2 2 5 2 1 1 1 24 27 11 6 2 6 2 6 9 7 1
7 1 60 4 125 3 10 6 11172 12 23 4 49 2052 6702 2 59 149 7 12 5 5 26 1 5 1 1 1 2 1 2 1 125 16 445 2 54 7
1 32 42 6 4 12 35 1 19 1 4 4 5 1 135 2 1 1 190 3 6 2 6 2 6 2 3 3 7 1 7 10 5 2 12 1 26 1 19 1 2 1 15 2 14
34 123 5 3 4 45 3 88 1 13 3 1 47 45 131 29 3 49 16 27 4 36 9 30 5 38 10 30 1 37 4 14 42 158 2 10 6 36 4
36 4 40 8 52 11 12 1 15 1 7 1 2 1 11 1 15 1 7 1 2 67 311 9 22 10 8 24 6 1 42 1 9 69 6 2 1 1 44 1 2 3 1 2
23 1 72 8 9 48 19 1 2 5 33 3 27 5 1 64 56 4 20 2 50 1 2 5 1 1 1 1 4 1 3 1 29 10 9 7 9 7 64 32 37 6 12 9
54 3 29 2 27 5 26 7 4 12 7 80 73 55 51 13 51 7 42 12 10 294 31 1 42 3 1 2 2 78 40 8 22 11 9 22 18 4 4 38
28 20 23 9 70 1 7 4 30 1 5 10 26 1 1 1 14 1 13 2 8 10 1 2 25 7 10 9 43 2 3 3 18 8 35 1 3 9 64 1 9 1 21 1
20 11 18 1 34 2 8 65 7 1 1 1 4 1 15 1 11 6 57 7 10 6 4 1 8 2 2 2 22 1 7 1 2 1 5 3 8 2 2 7 1 6 1 5 7 156
66 1 3 1 21 1 1 1 3 30 59 2 1 1 3 2 4 8 10 166 54 2 2 2 3 2 29 34 63 1 5 11 10 6 13 19 54 2 2 6 10 54 27
2 14 5 23 185 57 2 1 100 83 12 8 2 1 2 8 1 2 1 30 1 1 3 2 2 4 1 3 9 10 70 8 2 46 2 6 1 4 27 52 1 18 9 73
1 9 13 73 263 9 1 45 1 7 1 6 10 29 3 32 2 22 1 14 73 7 1 2 1 44 3 1 1 2 1 3 1 1 2 2 8 10 6 6 1 2 1 37 1
2 1 4 1 1 7 10 310 25 183 1 15 50 13 923 102 111 1 5 11 196 2636 99 13 1071 1 9 4039 583 8633 569 7 31 1
10 4 81 1 10 6 30 7 1 10 48 7 15 10 10 1 7 1 21 5 19 688 91 101 75 4 57 7 17 64 5 27 6136 8 1238 42 9
8935 4 1 7 1 2 1 291 45 3 17 4 8 396 2308 107 5 13 3 9 7 10 2 2 1 5 4700 46 2 23 9 116 60 246 10 39 2
194 21 66 3 1 154 20 12 87 9 25 135 85 1 71 1 2 2 1 2 2 2 4 1 12 1 1 1 7 1 65 1 4 2 8 1 7 1 28 1 4 1 5 1
1 3 7 1 340 2 292 2 702 15 5 1 15 1104 31 481 45 10 7 2 10 4 2 320 30 18 44 4 10 5 1 1248 7 1 4 1 2 1 15
1 197 2 9 48 68 7 1 4 10 4 2 785 68 76 61 194 4 1 27 1 2 1 1 2 1 1 10 1 4 1 1 1 1 6 1 4 1 1 1 1 1 1 3 1
2 1 1 2 1 1 1 1 1 1 1 1 1 1 2 1 1 2 4 1 7 1 4 1 4 1 1 1 10 1 17 5 3 1 5 1 17 52 2 270 44 4 100 12 15 2
15 1 15 1 37 10 174 56 29 13 44 4 9 7 2 14 6 154 984 5 16 3 13 3 116 12 89 7 12 4 1 15 12 4 56 8 10 6 40
8 30 2 2 78 340 12 14 2 5 3 5 3 7 9 29 3 11 5 6 10 10 6 8 8 7 9 147 1 55 37 10 1030 42720 32 4153 7 222
2 5762 14 7473 3103 542 1506 4939 715958 1 30 96 128 240 65040 65534 2 65534 2
"""


@cache
def settled_table() -> npt.NDArray[np.bool_]:
    """For each code point: is it settled?"""
    lengths = np.array(RUNS.split(), np.int64)
    return np.repeat(np.arange(lengths.size) % 2 == 0, lengths)


def code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def unsettled_texts(texts: list[str]) -> npt.NDArray[np.int64]:
    """The indices of texts with an unsettled character, in order; a lone surrogate is a TextError."""
    found: list[int] = []
    block: list[int] = []
    size = 0
    for index, text in enumerate(texts):
        if not text.isascii():
            block.append(index)
            size += len(text)
            if size >= BLOCK_CHARACTERS:
                found.extend(look_at(texts, block))
                block, size = [], 0
    found.extend(look_at(texts, block))
    return np.array(found, np.int64)


def look_at(texts: list[str], block: list[int]) -> list[int]:
    points = code_points("".join([texts[index] for index in block]))
    places = np.flatnonzero(~settled_table()[points])
    if places.size == 0:
        return []
    ends = np.cumsum([len(texts[index]) for index in block])
    rows = np.searchsorted(ends, places, side="right")
    surrogates = np.flatnonzero((points[places] & 0xFFFFF800) == 0xD800)
    if surrogates.size:
        row, place = int(rows[surrogates[0]]), int(places[surrogates[0]])
        start = int(ends[row - 1]) if row else 0
        raise surrogate_error(f"text {block[row]}", place - start, int(points[place]))
    return [block[row] for row in np.unique(rows)]
