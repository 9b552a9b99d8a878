"""Checks of "How many bytes"."""

from __future__ import annotations

import torch

from inlayer.learn.session import CheckFailed, GradingSession

NAME = "table_bytes"
PARAMETERS = ("vocab_size", "n_embd", "dtype", "tied")

DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int8)


def one_table(session: GradingSession) -> None:
    """a tied table in float32"""
    judge(session, session.random_int(101, 999), session.random_int(11, 99), torch.float32, True)


def every_dtype(session: GradingSession) -> None:
    """a number takes as many bytes as its dtype says"""
    for dtype in DTYPES:
        judge(session, session.random_int(101, 999), session.random_int(11, 99), dtype, True)


def both_ends(session: GradingSession) -> None:
    """an untied head has rows of its own"""
    judge(session, session.random_int(101, 999), session.random_int(11, 99), DTYPES[session.random_int(0, 3)], False)


def real_models(session: GradingSession) -> None:
    """tables of real models, which are not made"""
    for rows, width in ((163_840, 7_168), (129_280, 7_168), (100_352, 4_096)):
        judge(session, rows + 64 * session.random_int(1, 9), width, torch.bfloat16, False)


CHECKS = (one_table, every_dtype, both_ends, real_models)


def judge(session: GradingSession, rows: int, width: int, dtype: torch.dtype, tied: bool) -> None:
    got = session.call(rows, width, dtype, tied)
    numbers, each = rows * width, dtype.itemsize
    want = numbers * each * (1 if tied else 2)
    if isinstance(got, int) and not isinstance(got, bool) and got == want:
        return
    if not isinstance(got, (int, float)) or isinstance(got, bool):
        raise CheckFailed(
            "not-a-number", f"the answer is a {type(got).__name__}; it must be a whole number of bytes, an int"
        )
    known = (
        ("in-gigabytes", want / 1e9, "the answer is in gigabytes; it must be in bytes, a whole number"),
        ("in-gibibytes", want / 2**30, "the answer is in GiB; it must be in bytes, a whole number"),
        ("in-bits", 8 * want, "these are bits; a byte has eight of them"),
        ("tied-doubles", numbers * each * (2 if tied else 1), "tied and untied are changed over: tied means one table"),
        ("float32-only", numbers * 4 * (1 if tied else 2), "4 bytes were taken for a number; other dtypes take others"),
        ("parameters", numbers * (1 if tied else 2), "this is how many numbers there are; each of them takes bytes"),
        ("sizes-added", (rows + width) * each, "the sizes were added; every row has all the columns"),
    )
    if got == want:
        raise CheckFailed("not-whole", "the number is right, but it is a float; bytes are counted in whole numbers")
    for rule, value, message in known:
        if abs(got - value) <= 1e-9 * value:
            raise CheckFailed(rule, message)
    raise CheckFailed("values", "that is not how many bytes there are: numbers in a table, bytes of a number, tables")
