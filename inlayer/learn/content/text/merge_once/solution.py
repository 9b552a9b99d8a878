"""Task merge_once: one step of byte-pair encoding."""

from collections import Counter
from itertools import pairwise


def merge_once(ids: list[int], new_id: int) -> list[int]:
    """Join the most frequent pair of neighbors (the first of several) into `new_id`, from left to right."""
    counts = Counter(pairwise(ids))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)  # a dict keeps the order of first appearance, and max takes the first
    merged, place = [], 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == pair:
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged
