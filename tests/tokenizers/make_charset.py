"""Generate the run lengths in inlayer/tokenizers/charset.py. Run with Python 3.11: its tables are Unicode 14.

    python tests/tokenizers/make_charset.py

A character is settled when every library's tables, old and new, must agree on it:
- it is assigned in Unicode 14 (tokenizers, tiktoken and gigatoken carry 14 or later for their split patterns), and
- if it takes part in normalization (a combining class, or a canonical decomposition) it was there in Unicode 3.2:
  tokenizers normalizes with tables of Unicode 9, and 3.2 is the one older version every Python carries.
"""

import unicodedata


def is_settled(code_point: int) -> bool:
    character = chr(code_point)
    if unicodedata.category(character) in {"Cn", "Cs"}:
        return False
    decomposition = unicodedata.decomposition(character)
    normalizes = unicodedata.combining(character) or (decomposition and not decomposition.startswith("<"))
    return not normalizes or unicodedata.ucd_3_2_0.category(character) != "Cn"


def run_lengths() -> list[int]:
    """Lengths of alternating runs over all code points: settled, not settled, settled, ..."""
    lengths, current, settled = [], 0, True
    for code_point in range(0x110000):
        if is_settled(code_point) is settled:
            current += 1
        else:
            lengths.append(current)
            current, settled = 1, not settled
    return [*lengths, current]


if __name__ == "__main__":
    line, lines = "", []
    for length in run_lengths():
        if len(line) + len(str(length)) > 104:
            lines.append(line.rstrip())
            line = ""
        line += f"{length} "
    print(f"# Unicode {unicodedata.unidata_version}")  # noqa: T201
    print("\n".join([*lines, line.rstrip()]))  # noqa: T201
