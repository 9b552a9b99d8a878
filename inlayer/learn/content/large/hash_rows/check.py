"""Checks for the task "Embeddings without a vocabulary"."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "hash_rows"
PARAMETERS = ("words", "table", "multipliers")
FORBIDDEN = ("hash",)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
OTHERS = "äßéøñ犬猫爱"
ONCE = "a row selected by several hashes is added only once"


def a_word(session: GradingSession, letters: str = LETTERS) -> str:
    return "".join(letters[session.random_int(0, len(letters) - 1)] for _ in range(session.random_int(3, 9)))


def draw(session: GradingSession, *, hashes: int, rows: int, words: int) -> tuple[list[str], Tensor, list[int]]:
    """Return distinct words of ASCII letters, a table, and odd multipliers."""
    drawn = list(dict.fromkeys(a_word(session) for _ in range(4 * words)))[:words]
    return (
        drawn,
        session.random_normal(rows, session.random_int(4, 6)),
        [2 * session.random_int(2**28, 2**31 - 1) + 1 for _ in range(hashes)],
    )


def rows_of(keys: list[int], rows: int, multipliers: list[int]) -> Tensor:
    """Return the rows (N, H) of N keys, by the formula of the task."""
    return torch.tensor([[rows * (key * factor % 2**32) >> 32 for factor in multipliers] for key in keys])


def keys_of(words: list[str]) -> list[int]:
    return [zlib.crc32(word.encode()) for word in words]


def once_each(table: Tensor, chosen: Tensor) -> Tensor:
    """Sum only the distinct rows of each word, so a row selected by two hashes counts once."""
    return torch.stack([table[torch.tensor(sorted(set(ids.tolist())))].sum(0) for ids in chosen])


def shape(session: GradingSession) -> None:
    """returns one vector per word"""
    count, hashes = session.random_int(8, 10), session.random_int(2, 3)
    words, table, multipliers = draw(session, hashes=hashes, rows=session.random_int(20, 30), words=count)
    width = table.shape[1]
    got = session.call(words, table, multipliers)
    check_shape(
        got,
        (count, width),
        "N D",
        mistakes={
            "side-by-side": ((count, hashes * width), "the rows of a word are concatenated; add them up"),
            "not-summed": ((count, hashes, width), "the rows of a word's hashes are not added up yet"),
            "hash-by-hash": ((hashes, count, width), "the rows are grouped by hash and not added up"),
            "all-words-one": ((width,), "there is one vector for all words; return one per word"),
        },
    )


def values(session: GradingSession) -> None:
    """selects one row per hash and adds the rows up"""
    hashes, rows = session.random_int(3, 4), session.random_int(40, 60)
    words, table, multipliers = draw(session, hashes=hashes, rows=rows, words=10)
    keys = keys_of(words)
    want = table[rows_of(keys, rows, multipliers)].sum(1)
    low = torch.tensor([[key * factor % 2**32 % rows for factor in multipliers] for key in keys])
    plain = torch.tensor([key % rows for key in keys])
    chained = []
    for key in keys:
        for factor in multipliers:
            key = key * factor % 2**32  # noqa: PLW2901
            chained.append(rows * key >> 32)
    check_values(
        session.call(words, table, multipliers),
        want,
        mistakes={
            "counted-once": (once_each(table, rows_of(keys, rows, multipliers)), ONCE),
            "one-hash": (table[rows_of(keys, rows, multipliers[:1])[:, 0]], "only the first multiplier is used"),
            "last-hash": (table[rows_of(keys, rows, multipliers[-1:])[:, 0]], "only the last multiplier is used"),
            "low-bits": (
                table[low].sum(1),
                "you selected the row by a remainder, which uses the low bits of h; use the high bits",
            ),
            "multipliers-ignored": (
                table[plain] * hashes,
                "every hash selects the same row: the key alone decides, and the multiplier has no effect",
            ),
            "averaged": (want / hashes, "you averaged the rows of a word; add them up"),
            "chained": (
                table[torch.tensor(chained).view(len(keys), hashes)].sum(1),
                "each hash starts from the previous hash; start each one from the key",
            ),
        },
        message="the vectors are not the sums of the rows that the formula selects",
        atol=1e-5,
    )


def any_text(session: GradingSession) -> None:
    """hashes the UTF-8 bytes of a word, whatever its letters"""
    words = ["", *(a_word(session, OTHERS) for _ in range(6))]
    table, multipliers = session.random_normal(session.random_int(40, 60), 4), [2654435761, 2246822519]
    answer = session.try_call(words, table, multipliers)
    chosen = rows_of(keys_of(words), len(table), multipliers)
    want = table[chosen].sum(1)
    if answer.raised is not None or not isinstance(answer.value, Tensor) or answer.value.shape != want.shape:
        raised = "" if answer.raised is None else f": it raised {answer.raised}"
        raise CheckFailed("only-ascii", f"letters outside ASCII, or an empty word, are not accepted{raised}")
    check_values(
        answer.value,
        want,
        mistakes={"counted-once": (once_each(table, chosen), ONCE)},
        rule="not-utf8",
        message="words with letters outside ASCII get the wrong rows: use their UTF-8 bytes",
        atol=1e-5,
    )


def two_hashes_one_row(session: GradingSession) -> None:
    """counts a row twice if two hashes select it"""
    rows = session.random_int(2, 3)
    words, table, multipliers = draw(session, hashes=4, rows=rows, words=10)
    chosen = rows_of(keys_of(words), rows, multipliers)
    check_values(
        session.call(words, table, multipliers),
        table[chosen].sum(1),
        mistakes={"counted-once": (once_each(table, chosen), ONCE)},
        message="the vectors are wrong in a very small table",
        atol=1e-5,
    )


def gradient(session: GradingSession) -> None:
    """trains the rows with every word that uses them"""
    words, table, multipliers = draw(session, hashes=2, rows=session.random_int(5, 8), words=9)
    weight = session.random_normal(len(words), table.shape[1])
    got = session.gradient(words, table, multipliers, of=1, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the rows; they were copied as plain numbers")
    want = torch.zeros_like(table)
    for ids in rows_of(keys_of(words), len(table), multipliers).T:
        want.index_add_(0, ids, weight)
    check_values(
        got, want, rule="gradient", message="the gradient of the rows is not that of a sum of lookups", atol=1e-5
    )


def exact(session: GradingSession) -> None:
    """finds the exact rows in a table of a million rows"""
    rows = session.random_int(900_000, 1_000_000)
    words, _, multipliers = draw(session, hashes=2, rows=1, words=400)
    table = session.random_normal(rows, 1)
    check_values(
        session.call(words, table, multipliers),
        table[rows_of(keys_of(words), rows, multipliers)].sum(1),
        rule="rounded",
        message=(
            "in a large table some words get the row next to theirs: h has 32 bits and float32 keeps 24 of "
            "them; use integers"
        ),
        atol=1e-5,
    )


CHECKS = (shape, values, any_text, two_hashes_one_row, gradient, exact)
