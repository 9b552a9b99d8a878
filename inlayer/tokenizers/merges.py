"""Byte-pair merges, replayed: how the single bytes of a split become its tokens, one merge after the other.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- of all neighbors that can be joined the pair of lowest rank goes first, the leftmost of equals: the order in which
  `tokenizers` and tiktoken join them
- a split that is a token itself is taken whole, without a merge, where the file says `ignore_merges` (LLaMA-3) and in
  every rank file: tiktoken looks a split up before it merges
- a replay explains ids it arrives at, and no others: the answer for those is None, never something near
- a split of more than LONGEST bytes is not replayed
- not here: where a text is cut into splits (huggingface.py, ranks.py), learning merges (train.py)
Checked against a slow loop and the libraries' own ids in tests/tokenizers/test_merges.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from inlayer.tokenizers.base import Merged

__all__ = ["LONGEST", "Merges", "byte_alphabet", "json_merges", "rank_merges"]

LONGEST = 1 << 16  # bytes of a split: a replay takes some microseconds for each


@cache
def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary, and back.

    Bytes that print keep their character; the others take U+0100, U+0101, ... in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + n): value for n, value in enumerate(hidden)}


@dataclass(frozen=True, kw_only=True)
class Merges:
    """What a byte-level BPE has learned."""

    byte_ids: Sequence[int | None]  # the token of each byte; None where the vocabulary lacks it
    join: Callable[[int, int], tuple[int, int] | None]  # two tokens -> rank and id of their merge
    whole: Callable[[bytes], int | None]  # the token a split is taken as before any merge

    def leading_to(self, ids: Sequence[int], data: bytes) -> list[Merged] | None:
        """The merges that make these ids of the bytes of one split; None where they make others."""
        found = self.replay(data)
        return found[0] if found is not None and found[1] == list(ids) else None

    def replay(self, data: bytes) -> tuple[list[Merged], list[int]] | None:
        """The merges of a split in their order, and the ids they end with.

        A queue of pairs, as in the libraries: each merge looks only at its two neighbors, so that long runs stay
        cheap. Entries whose pair is no longer there are passed over when their turn comes.
        """
        taken = self.whole(data)
        if taken is not None:
            return [], [taken]
        ids = [self.byte_ids[value] for value in data[: LONGEST + 1]]
        if None in ids or len(ids) > LONGEST:
            return None
        end = len(data)
        # A token is known by the place of its first byte; the next begins where it ends.
        after, before = list(range(1, end + 1)), list(range(-1, end))
        queue: list[tuple[int, int, int]] = []
        for place in range(end):
            self._look(place, ids, after, queue)
        merged = []
        while queue:
            rank, place, token_id = heapq.heappop(queue)
            pair = self._pair(place, ids, after)
            if pair is None or pair[1] != token_id:
                continue
            middle, stop = after[place], after[after[place]]
            merged.append(Merged(data[place:middle], data[middle:stop], rank, token_id))
            ids[place], ids[middle] = token_id, None
            after[place], before[stop] = stop, place
            self._look(place, ids, after, queue)
            if before[place] >= 0:
                self._look(before[place], ids, after, queue)
        return merged, [token_id for token_id in ids if token_id is not None]

    def _pair(self, place: int, ids: list[int | None], after: list[int]) -> tuple[int, int] | None:
        """Rank and id of the merge of the token at a place with the one after it."""
        left, right = ids[place], ids[after[place]] if after[place] < len(ids) else None
        return None if left is None or right is None else self.join(left, right)

    def _look(self, place: int, ids: list[int | None], after: list[int], queue: list[tuple[int, int, int]]) -> None:
        pair = self._pair(place, ids, after)
        if pair is not None:
            heapq.heappush(queue, (pair[0], place, pair[1]))


def rank_merges(ranks: Mapping[bytes, int]) -> Merges:
    """Of a rank file: two tokens join where their bytes together are a token, whose id is the rank."""
    tokens = {rank: token for token, rank in ranks.items()}

    def join(left: int, right: int) -> tuple[int, int] | None:
        rank = ranks.get(tokens[left] + tokens[right])
        return None if rank is None else (rank, rank)

    return Merges(byte_ids=[ranks[bytes([value])] for value in range(256)], join=join, whole=ranks.get)


def json_merges(model: Mapping[str, Any]) -> Merges | None:
    """Of the BPE model of a tokenizer.json, read as data; a rank is the place in its list of merges.

    None where tokens are spelled with a prefix or suffix of their own (CLIP's `</w>`): no byte stands for those.
    """
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    vocab: Mapping[str, int] = model["vocab"]
    lines = (
        merge for merge in model.get("merges") or [] if not isinstance(merge, str) or not merge.startswith("#version")
    )
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(lines):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        pairs[vocab[left], vocab[right]] = rank, vocab[left + right]
    spelling = {value: character for character, value in byte_alphabet().items()}

    def whole(data: bytes) -> int | None:
        return vocab.get("".join(spelling[value] for value in data))

    return Merges(
        byte_ids=[vocab.get(spelling[value]) for value in range(256)],
        join=lambda left, right: pairs.get((left, right)),
        whole=whole if model.get("ignore_merges") else lambda _: None,
    )
