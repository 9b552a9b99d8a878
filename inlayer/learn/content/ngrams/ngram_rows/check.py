"""Checks for the task "The rows of an n-gram memory"."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from inlayer.errors import type_name
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "ngram_rows"
PARAMETERS = ("ids", "multipliers", "moduli", "stop")
FORBIDDEN = ("inlayer",)

PRIMES = (997, 1009, 1013, 1019, 1021)
Given = tuple[list[int], list[int], list[int], int]


def draw(session: GradingSession, *, tokens: int, heads: int = 3, large: bool = False) -> Given:
    """Ids without a stop, odd multipliers, prime moduli, and the stop."""
    stop = session.random_int(3, 9)
    ids = [session.random_int(20, 129_000) for _ in range(tokens)]
    limit = 2**44 if large else 2**20
    multipliers = [2 * session.random_int(limit // 4, limit) + 1 for _ in range(heads + 1)]
    return ids, multipliers, list(PRIMES[:heads]), stop


def shape(session: GradingSession) -> None:
    """returns a list with one list of ints per token"""
    given = draw(session, tokens=6)
    got = session.call(*given)
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"your function returned {type_name(got)}; return a list")
    if len(got) != 6 or not all(isinstance(rows, list) for rows in got):
        raise CheckFailed("one-list", f"for 6 tokens, return a list of 6 lists; yours has {len(got)} entries")
    for row in (row for rows in got for row in rows):
        if not isinstance(row, int) or isinstance(row, bool):
            raise CheckFailed("not-numbers", f"a row is {type_name(row)}; row numbers are ints")


def start_of_text(session: GradingSession) -> None:
    """hashes the ids before each token, and replaces those before the start"""
    for heads in (1, 2, 4):
        judge(session, draw(session, tokens=7, heads=heads))


def end_of_text(session: GradingSession) -> None:
    """does not look back beyond the stop"""
    ids, multipliers, moduli, stop = draw(session, tokens=12)
    for index in (0, 4, 5, 9):
        ids[index] = stop
    judge(session, (ids, multipliers, moduli, stop))


def short_texts(session: GradingSession) -> None:
    """handles texts that are empty or shorter than an n-gram"""
    given = draw(session, tokens=1)
    answer = session.try_call([], *given[1:])
    if answer.raised is not None or answer.value != []:
        raise CheckFailed("raises", "an empty text has no tokens, so the result must be an empty list")
    judge(session, given)


def real_sizes(session: GradingSession) -> None:
    """computes products of real models exactly"""
    judge(session, draw(session, tokens=9, large=True))


def lists_stay(session: GradingSession) -> None:
    """does not modify the input lists"""
    given = draw(session, tokens=5)
    answer = session.try_call(*given)
    if answer.raised is None and tuple(answer.arguments) != given:
        raise CheckFailed("lists-modified", "your function modified an input list; it belongs to the caller")


CHECKS = (shape, start_of_text, end_of_text, short_texts, real_sizes, lists_stay)


def rows_of(given: Given, how: str = "") -> list[list[int]]:
    """Return the rows, or the result of a common mistake."""
    ids, multipliers, moduli, stop = given
    used = multipliers[::-1] if how == "oldest-first" else multipliers
    offsets = [0] * len(moduli) if how == "no-offsets" else list(accumulate([0, *moduli]))
    rows = []
    for index, newest in enumerate(ids):
        mixed, ended, found = newest * used[0], how == "own-stop" and newest == stop, []
        for back, modulus in enumerate(moduli, start=1):
            at = index + back if how == "next-tokens" else index - back
            outside = not 0 <= at < len(ids) and how != "wraps-around"
            seen = stop if outside else ids[at % len(ids)]
            over = outside or (seen == stop and how != "crosses-the-stop")
            ended = ended or over
            product = (stop if ended else seen) * used[back]
            product = 0 if ended and how == "left-out" else product
            mixed = mixed + product if how == "added" else mixed ^ product
            found.append(mixed % modulus + offsets[back - 1])
        rows.append(found)
    return rows


MISTAKES = {
    "no-offsets": "every hash head starts at row 0; its rows come after those of the hash heads before it",
    "added": "the products are added; mix them with xor (^)",
    "oldest-first": "the multipliers are in the wrong order: the first belongs to the token itself",
    "left-out": "you skip ids that the look-back does not reach; use `stop` in their place",
    "wraps-around": "the first tokens look back to the end of the list: a negative index counts from the end",
    "next-tokens": "you look forward; an n-gram ends at its token",
    "crosses-the-stop": "the look-back crosses the stop; ids before it belong to another document",
    "own-stop": "a token that is the stop itself still looks back; only earlier stops end a look-back",
}


def judge(session: GradingSession, given: Given) -> None:
    want: list[list[int]] = rows_of(given)
    got: Any = session.call(*given)
    if got == want:
        return
    for rule, message in MISTAKES.items():
        if rows_of(given, rule) not in (want, []) and got == rows_of(given, rule):
            raise CheckFailed(rule, message)
    raise CheckFailed("values", "the rows differ from the formula; work through the second example on paper")
