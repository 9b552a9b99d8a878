"""Generate inlayer/tokenizers/stable_characters.txt. Run it with Python 3.11, whose tables are Unicode 14:

    python -m tests.tokenizers.make_stable_characters > inlayer/tokenizers/stable_characters.txt

A character is stable if the tables of all libraries must agree on it:
- it is assigned in Unicode 14 (tokenizers, tiktoken and gigatoken use 14 or later for their split patterns), and
- if it takes part in normalization (a combining class, or a canonical decomposition), it is in Unicode 3.2:
  tokenizers normalizes with Unicode 9, and 3.2 is the only older version that every Python includes.
"""

import textwrap
import unicodedata


def is_stable(code_point: int) -> bool:
    character = chr(code_point)
    if unicodedata.category(character) in {"Cn", "Cs"}:
        return False
    decomposition = unicodedata.decomposition(character)
    normalizes = unicodedata.combining(character) or (decomposition and not decomposition.startswith("<"))
    return not normalizes or unicodedata.ucd_3_2_0.category(character) != "Cn"


def compute_run_lengths() -> list[int]:
    """Compute the lengths of alternating runs over all code points: stable, unstable, stable, ..."""
    lengths, current, stable = [], 0, True
    for code_point in range(0x110000):
        if is_stable(code_point) is stable:
            current += 1
        else:
            lengths.append(current)
            current, stable = 1, not stable
    return [*lengths, current]


if __name__ == "__main__":
    print(textwrap.fill(" ".join(map(str, compute_run_lengths())), 104))  # noqa: T201
