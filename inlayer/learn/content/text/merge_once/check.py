"""Checks of "One merge"."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "merge_once"
PARAMETERS = ("ids", "new_id")

Pair = tuple[int, int]


def kind(session: GradingSession) -> None:
    """a list of ids, shorter than before"""
    ids, new_id = text_with_winner(session)
    got = session.call(ids, new_id)
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"the answer is a {type(got).__name__}; it must be a list of ids")
    if any(not isinstance(value, int) for value in got):
        raise CheckFailed(
            "not-numbers", "the list holds something other than whole numbers; a merged pair is one new id"
        )
    if got == ids:
        raise CheckFailed(
            "nothing-merged", "the ids came back as they were; the most frequent pair must become the new id"
        )


def clear_winner(session: GradingSession) -> None:
    """the most frequent pair is joined wherever it stands, and nothing else is"""
    ids, new_id = text_with_winner(session)
    got = session.call(ids, new_id)
    counts = count(ids)
    winner = max(counts, key=lambda pair: counts[pair])
    want = replace(ids, winner, new_id)
    if got == want:
        return
    known = {
        "first-only": (
            first_only(ids, winner, new_id),
            "only one occurrence of the pair was joined; all of them must be",
        ),
        "last-lost": (
            want[:-1],
            "the last id of the text is missing: it has no right neighbor, but it is still there",
        ),
        "new-id-ignored": (replace(ids, winner, 256), "256 was written; the new id is the one that is given"),
        "least-frequent": (
            replace(ids, min(counts, key=lambda pair: counts[pair]), new_id),
            "the pair that occurs least often was joined",
        ),
        "kept-one": (keep_one(ids, winner, new_id), "a joined pair still has one of its two ids; both are used up"),
    }
    for rule, (value, message) in known.items():
        if got == value:
            raise CheckFailed(rule, message)
    either = Counter(tuple(sorted(pair)) for pair in pairwise(ids))
    swapped = max(either, key=lambda pair: either[pair])
    if got == replace_either(ids, swapped, new_id) or got == replace(ids, swapped, new_id):
        raise CheckFailed(
            "order-ignored", "the pairs (a, b) and (b, a) were counted as one; they are two different pairs"
        )
    if new_id + 1 in got or got == until_done(ids, new_id):
        raise CheckFailed("more-than-one", "more than one kind of pair was joined; one step makes one new id")
    raise CheckFailed("values", "the ids after the merge are not those of joining the most frequent pair everywhere")


def ties(session: GradingSession) -> None:
    """of several most frequent pairs the first in the text is joined"""
    low, new_id = session.random_int(10, 90), session.random_int(256, 999)
    one, other = (low, low + 1), (low + 40, low + 41)
    right = []
    for first, second in ((one, other), (other, one)):  # a rule by size would be right once, by luck
        ids = [*first, low + 90, *second, low + 91, *first, low + 92, *second]
        right.append(session.call(ids, new_id) == replace(ids, first, new_id))
    if not any(right):
        raise CheckFailed(
            "ties-last", "of two pairs that occur equally often, the later one was joined; the first one counts"
        )
    if not all(right):
        raise CheckFailed(
            "ties-by-size",
            "of two pairs that occur equally often, the size of the ids decided; the place in the text does",
        )


def overlap(session: GradingSession) -> None:
    """an id is used up by one pair only"""
    value, new_id, length = session.random_int(1, 255), session.random_int(256, 999), 2 * session.random_int(2, 4) + 1
    ids = [value] * length
    got = session.call(ids, new_id)
    if got == [new_id] * (length // 2) + [value]:
        return
    if got == [new_id] * (length - 1):
        raise CheckFailed(
            "overlapping", "an id was used by two pairs: three equal ids hold one pair and one id left over"
        )
    if got == [value] + [new_id] * (length // 2):
        raise CheckFailed("from-the-right", "the pairs were joined from right to left; the left one goes first")
    raise CheckFailed("overlap", "with equal ids in a row, joining from left to right leaves the last one over")


def short(session: GradingSession) -> None:
    """a text without a pair stays as it is"""
    for ids in ([session.random_int(1, 255)], []):
        answer = session.try_call(ids, 256)
        if answer.raised is not None:
            raise CheckFailed(
                "short-raises", f"a text of {len(ids)} ids raised {answer.raised.type}; it has no pair to join"
            )
        if answer.value != ids:
            raise CheckFailed("short-changed", f"a text of {len(ids)} ids has no pair, so nothing changes")


def counting(session: GradingSession) -> None:
    """pairs that share an id are counted, each for itself"""
    value, new_id = session.random_int(1, 90), session.random_int(256, 999)
    pair, mark, other = (value + 20, value + 21), value + 100, value + 101
    oftener = [*pair, mark, *pair, other, value, value, value, value]  # three times, and the other pair twice
    first = [value, value, value, mark, *pair, other, *pair]  # twice each
    for ids in (oftener, first):
        if session.call(ids, new_id) != replace(ids, (value, value), new_id):
            raise CheckFailed(
                "counted-apart",
                "equal ids in a row were counted without overlap; three of them hold two pairs of neighbors, only "
                "joining uses an id up",
            )


def list_stays(session: GradingSession) -> None:
    """the given list is not changed"""
    ids, new_id = text_with_winner(session)
    answer = session.try_call(ids, new_id, return_arguments=True)
    value_of(answer)
    if answer.arguments[0] != ids:
        raise CheckFailed(
            "list-changed", "the list that was given is not what it was before; write the answer into a new one"
        )


CHECKS = (kind, clear_winner, ties, overlap, counting, short, list_stays)


def text_with_winner(session: GradingSession) -> tuple[list[int], int]:
    """Ids whose pair (a, b) occurs three times; (c, d) and (d, c), which are two pairs, twice each."""
    a = session.random_int(10, 40)
    b, c, d, e, f, g = (a + 60 + 3 * step for step in range(6))
    return [e, c, d, a, b, d, c, g, a, b, f, c, d, f, d, c, e, a, b, g], session.random_int(257, 999)


def count(ids: list[int]) -> dict[Pair, int]:
    return Counter(pairwise(ids))


def replace(ids: list[int], pair: Pair | tuple[int, ...], new_id: int) -> list[int]:
    merged, place = [], 0
    while place < len(ids):
        found = tuple(ids[place : place + 2]) == pair
        merged.append(new_id if found else ids[place])
        place += 2 if found else 1
    return merged


def replace_either(ids: list[int], pair: tuple[int, ...], new_id: int) -> list[int]:
    merged, place = [], 0
    while place < len(ids):
        found = len(ids) > place + 1 and tuple(sorted(ids[place : place + 2])) == pair
        merged.append(new_id if found else ids[place])
        place += 2 if found else 1
    return merged


def first_only(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    place = list(pairwise(ids)).index(pair)
    return [*ids[:place], new_id, *ids[place + 2 :]]


def keep_one(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    """What comes out of moving on by one after a join."""
    pairs = [*pairwise(ids), None]
    return [new_id if pairs[place] == pair else value for place, value in enumerate(ids)]


def until_done(ids: list[int], new_id: int) -> list[int]:
    counts = count(ids)
    while counts and max(counts.values()) > 1:
        ids = replace(ids, max(counts, key=lambda pair: counts[pair]), new_id)
        counts = count(ids)
    return ids
