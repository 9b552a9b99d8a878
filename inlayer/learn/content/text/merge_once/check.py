"""Checks for the task "One merge"."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from inlayer.errors import type_name
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "merge_once"
PARAMETERS = ("ids", "new_id")

Pair = tuple[int, int]


def kind(session: GradingSession) -> None:
    """returns a list of ids that is shorter than the input"""
    ids, new_id = text_with_winner(session)
    got = session.call(ids, new_id)
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"your function returned {type_name(got)}; return a list of ids")
    if any(not isinstance(value, int) for value in got):
        raise CheckFailed("not-numbers", "the list contains something other than integers; a merged pair is one new id")
    if got == ids:
        raise CheckFailed("nothing-merged", "the ids are unchanged; replace the most frequent pair with the new id")


def clear_winner(session: GradingSession) -> None:
    """merges every occurrence of the most frequent pair and nothing else"""
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
            "you merged only one occurrence of the pair; merge all of them",
        ),
        "last-lost": (
            want[:-1],
            "the last id of the text is missing; it has no right neighbor, but it must stay in the result",
        ),
        "new-id-ignored": (replace(ids, winner, 256), "you wrote 256; use the `new_id` argument"),
        "least-frequent": (
            replace(ids, min(counts, key=lambda pair: counts[pair]), new_id),
            "you merged the least frequent pair",
        ),
        "kept-one": (keep_one(ids, winner, new_id), "one of the two merged ids is still there; a merge replaces both"),
    }
    for rule, (value, message) in known.items():
        if got == value:
            raise CheckFailed(rule, message)
    either = Counter(tuple(sorted(pair)) for pair in pairwise(ids))
    swapped = max(either, key=lambda pair: either[pair])
    if got == replace_either(ids, swapped, new_id) or got == replace(ids, swapped, new_id):
        raise CheckFailed(
            "order-ignored", "you counted (a, b) and (b, a) as the same pair; they are two different pairs"
        )
    if new_id + 1 in got or got == until_done(ids, new_id):
        raise CheckFailed("more-than-one", "you merged more than one kind of pair; one step creates one new id")
    raise CheckFailed("values", "the result is not what you get by merging the most frequent pair everywhere")


def ties(session: GradingSession) -> None:
    """breaks ties in favor of the pair that appears first"""
    low, new_id = session.random_int(10, 90), session.random_int(256, 999)
    low_pair, high_pair = (low, low + 1), (low + 40, low + 41)
    right = []
    for first, second in (
        (low_pair, high_pair),
        (high_pair, low_pair),
    ):  # two tries, because a rule based on id values could be right once by luck
        ids = [*first, low + 90, *second, low + 91, *first, low + 92, *second]
        right.append(session.call(ids, new_id) == replace(ids, first, new_id))
    if not any(right):
        raise CheckFailed(
            "ties-last",
            "two pairs were equally frequent and you merged the later one; merge the one that appears first",
        )
    if not all(right):
        raise CheckFailed(
            "ties-by-size",
            "two pairs were equally frequent and you chose by id value; choose the one that appears first in the text",
        )


def overlap(session: GradingSession) -> None:
    """uses each id in at most one merged pair"""
    value, new_id, length = session.random_int(1, 255), session.random_int(256, 999), 2 * session.random_int(2, 4) + 1
    ids = [value] * length
    got = session.call(ids, new_id)
    if got == [new_id] * (length // 2) + [value]:
        return
    if got == [new_id] * (length - 1):
        raise CheckFailed(
            "overlapping", "you used one id in two pairs; three equal ids contain one pair plus one leftover id"
        )
    if got == [value] + [new_id] * (length // 2):
        raise CheckFailed("from-the-right", "you merged pairs from right to left; go from left to right")
    raise CheckFailed("overlap", "in a run of equal ids, merging from left to right leaves the last one over")


def short(session: GradingSession) -> None:
    """leaves a text without pairs unchanged"""
    for ids in ([session.random_int(1, 255)], []):
        answer = session.try_call(ids, 256)
        if answer.raised is not None:
            raise CheckFailed(
                "short-raises",
                f"the ids {ids} raised {answer.raised.type}; they have no pair, so return them unchanged",
            )
        if answer.value != ids:
            raise CheckFailed("short-changed", f"the ids {ids} have no pair, so nothing should change")


def counting(session: GradingSession) -> None:
    """counts overlapping pairs"""
    value, new_id = session.random_int(1, 90), session.random_int(256, 999)
    pair, mark, other = (value + 20, value + 21), value + 100, value + 101
    oftener = [*pair, mark, *pair, other, value, value, value, value]  # three times; the other pair occurs twice
    first = [value, value, value, mark, *pair, other, *pair]  # twice each
    for ids in (oftener, first):
        if session.call(ids, new_id) != replace(ids, (value, value), new_id):
            raise CheckFailed(
                "counted-apart",
                "you counted equal ids in a run without overlap; three equal ids contain two pairs (only "
                "merging uses an id up)",
            )


def list_stays(session: GradingSession) -> None:
    """does not modify the input list"""
    ids, new_id = text_with_winner(session)
    answer = session.try_call(ids, new_id)
    value_of(answer)
    if answer.arguments[0] != ids:
        raise CheckFailed("input-modified", "your function modified the input list; build a new one")


CHECKS = (kind, clear_winner, ties, overlap, counting, short, list_stays)


def text_with_winner(session: GradingSession) -> tuple[list[int], int]:
    """Return ids in which (a, b) occurs three times, and (c, d) and (d, c), two different pairs, twice each."""
    a = session.random_int(10, 40)
    b, c, d, e, f, g = (a + 60 + 3 * step for step in range(6))
    return [e, c, d, a, b, d, c, g, a, b, f, c, d, f, d, c, e, a, b, g], session.random_int(257, 999)


def count(ids: list[int]) -> dict[Pair, int]:
    return Counter(pairwise(ids))


def replace(ids: list[int], pair: Pair | tuple[int, ...], new_id: int) -> list[int]:
    merged, index = [], 0
    while index < len(ids):
        found = tuple(ids[index : index + 2]) == pair
        merged.append(new_id if found else ids[index])
        index += 2 if found else 1
    return merged


def replace_either(ids: list[int], pair: tuple[int, ...], new_id: int) -> list[int]:
    merged, index = [], 0
    while index < len(ids):
        found = len(ids) > index + 1 and tuple(sorted(ids[index : index + 2])) == pair
        merged.append(new_id if found else ids[index])
        index += 2 if found else 1
    return merged


def first_only(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    index = list(pairwise(ids)).index(pair)
    return [*ids[:index], new_id, *ids[index + 2 :]]


def keep_one(ids: list[int], pair: Pair, new_id: int) -> list[int]:
    """Merge but advance by only one id afterwards."""
    pairs = [*pairwise(ids), None]
    return [new_id if pairs[index] == pair else value for index, value in enumerate(ids)]


def until_done(ids: list[int], new_id: int) -> list[int]:
    counts = count(ids)
    while counts and max(counts.values()) > 1:
        ids = replace(ids, max(counts, key=lambda pair: counts[pair]), new_id)
        counts = count(ids)
    return ids
