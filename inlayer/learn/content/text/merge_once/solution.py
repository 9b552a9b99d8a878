"""Task merge_once: one step of byte-pair encoding."""

from collections import Counter
from itertools import pairwise


def merge_once(ids: list[int], new_id: int) -> list[int]:
    """Merge the most frequent adjacent pair (the first one if there is a tie) into `new_id`, from left to right."""
    counts = Counter(pairwise(ids))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)  # a dict keeps insertion order, and max returns the first maximum
    merged, index = [], 0
    while index < len(ids):
        if tuple(ids[index : index + 2]) == pair:
            merged.append(new_id)
            index += 2
        else:
            merged.append(ids[index])
            index += 1
    return merged
