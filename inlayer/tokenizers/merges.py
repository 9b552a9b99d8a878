"""BPE merges, replayed: how the bytes of a pre-token become its tokens, one merge at a time.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- the adjacent pair with the lowest rank is merged first, and the leftmost of equal pairs, as in `tokenizers` and
  tiktoken
- a pre-token that is in the vocabulary becomes one token without merges: always in tiktoken files, otherwise if the
  file sets `ignore_merges` (Llama-3)
- a replay returns no ids if the pre-token is too long or one of its bytes has no token
Tested against a slow loop and the ids of the libraries in tests/tokenizers/test_merges.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from inlayer.tokenizers.base import Merge

MAX_PRE_TOKEN_BYTES = 1 << 16  # a replay takes a few microseconds per byte


@cache
def byte_alphabet() -> dict[str, int]:
    """Map the characters of a byte-level vocabulary to bytes: printable ones to themselves, U+0100... to the rest."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + n): value for n, value in enumerate(others)}


@dataclass(frozen=True, kw_only=True)
class MergeTable:
    """The merges of a byte-level BPE."""

    byte_ids: Sequence[int | None]  # the token of each byte; None if it is not in the vocabulary
    merge: Callable[[int, int], tuple[int, int] | None]  # two token ids -> rank and id of their merge
    whole: Callable[[bytes], int | None]  # the token of a pre-token that is looked up as a whole

    def replay(self, data: bytes) -> tuple[list[Merge], list[int]]:
        """Return the merges of a pre-token in order, and the resulting ids. A queue makes long runs cheap."""
        taken = self.whole(data)
        if taken is not None:
            return [], [taken]
        ids = [self.byte_ids[value] for value in data]
        if len(data) > MAX_PRE_TOKEN_BYTES or None in ids:
            return [], []
        end = len(data)
        # A token is identified by the position of its first byte, and the next one starts where it ends.
        following, previous = list(range(1, end + 1)), list(range(-1, end))
        queue: list[tuple[int, int, int]] = []

        def pair_at(position: int) -> tuple[int, int] | None:
            """Return the rank and id that result from merging the token at a position with the next one."""
            left, right = ids[position], ids[following[position]] if following[position] < end else None
            return None if left is None or right is None else self.merge(left, right)

        def enqueue(position: int) -> None:
            if position >= 0 and (pair := pair_at(position)) is not None:
                heapq.heappush(queue, (pair[0], position, pair[1]))

        for position in range(end):
            enqueue(position)
        merges = []
        while queue:
            rank, start, token_id = heapq.heappop(queue)
            pair = pair_at(start)
            if pair is None or pair[1] != token_id:
                continue  # the pair no longer exists
            middle, stop = following[start], following[following[start]]
            merges.append(Merge(data[start:middle], data[middle:stop], rank, token_id))
            ids[start], ids[middle] = token_id, None
            following[start], previous[stop] = stop, start
            enqueue(start)
            enqueue(previous[start])
        return merges, [token_id for token_id in ids if token_id is not None]


def merges_from_ranks(ranks: Mapping[bytes, int]) -> MergeTable:
    """Return the merges of a tiktoken file: two tokens merge if their joined bytes are a token."""
    tokens = {rank: token for token, rank in ranks.items()}

    def merge(left: int, right: int) -> tuple[int, int] | None:
        rank = ranks.get(tokens[left] + tokens[right])
        return None if rank is None else (rank, rank)

    return MergeTable(byte_ids=[ranks[bytes([value])] for value in range(256)], merge=merge, whole=ranks.get)


def merges_from_json(model: Mapping[str, Any]) -> MergeTable | None:
    """Return the merges of the BPE model in a tokenizer.json. The rank is the position in the list of merges.

    Returns None if tokens have a prefix or suffix (`</w>` in CLIP), which does not stand for any byte.
    """
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    vocab: Mapping[str, int] = model["vocab"]
    lines = (line for line in model.get("merges") or [] if not isinstance(line, str) or not line.startswith("#version"))
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, line in enumerate(lines):
        left, right = line.split(" ") if isinstance(line, str) else line
        pairs[vocab[left], vocab[right]] = rank, vocab[left + right]
    characters = {value: character for character, value in byte_alphabet().items()}

    def whole(data: bytes) -> int | None:
        return vocab.get("".join(characters[value] for value in data))

    return MergeTable(
        byte_ids=[vocab.get(characters[value]) for value in range(256)],
        merge=lambda left, right: pairs.get((left, right)),
        whole=whole if model.get("ignore_merges") else lambda _: None,
    )
