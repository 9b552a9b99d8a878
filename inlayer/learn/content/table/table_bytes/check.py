"""Checks for the task "The size of a table in bytes"."""

from __future__ import annotations

import torch

from inlayer.errors import type_name
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "table_bytes"
PARAMETERS = ("vocab_size", "n_embd", "dtype", "tied")

DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int8)


def one_table(session: GradingSession) -> None:
    """handles a tied table in float32"""
    judge(session, session.random_int(101, 999), session.random_int(11, 99), torch.float32, True)


def every_dtype(session: GradingSession) -> None:
    """uses the number of bytes of the dtype"""
    for dtype in DTYPES:
        judge(session, session.random_int(101, 999), session.random_int(11, 99), dtype, True)


def both_ends(session: GradingSession) -> None:
    """counts an untied head separately"""
    judge(session, session.random_int(101, 999), session.random_int(11, 99), DTYPES[session.random_int(0, 3)], False)


def real_models(session: GradingSession) -> None:
    """handles the sizes of real models without creating the tables"""
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
            "not-a-number", f"your function returned {type_name(got)}; return the number of bytes as an int"
        )
    known = (
        ("in-gigabytes", want / 1e9, "the result is in gigabytes; return an integer number of bytes"),
        ("in-gibibytes", want / 2**30, "the result is in GiB; return an integer number of bytes"),
        ("in-bits", 8 * want, "the result is in bits; a byte has eight of them"),
        ("tied-doubles", numbers * each * (2 if tied else 1), "tied and untied are swapped: tied means one table"),
        (
            "float32-only",
            numbers * 4 * (1 if tied else 2),
            "you assumed 4 bytes per value; other dtypes have other sizes",
        ),
        ("parameters", numbers * (1 if tied else 2), "this is the number of values; each of them takes several bytes"),
        ("sizes-added", (rows + width) * each, "you added the sizes; multiply them, because every row has all columns"),
    )
    if got == want:
        raise CheckFailed("not-whole", "the value is right, but it is a float; return an int")
    for rule, value, message in known:
        if abs(got - value) <= 1e-9 * value:
            raise CheckFailed(rule, message)
    raise CheckFailed(
        "values", "that is not the number of bytes: multiply values per table, bytes per value, and number of tables"
    )
