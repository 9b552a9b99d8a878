"""Checks for the task "Initialize a table".

The learner's code draws the values, so the checks test their distribution, with limits of at least 6 standard errors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "init_table"
PARAMETERS = ("vocab_size", "n_embd", "std", "padding_idx")


def shape(session: GradingSession) -> None:
    """returns one row per id, in float32"""
    rows, width, std = sizes(session)
    got = session.call(rows, width, std, session.random_int(1, width - 1))
    swapped = ((width, rows), "the sizes are swapped: an id selects a row, so there must be vocab_size rows")
    check_shape(got, (rows, width), "V D", mistakes={"swapped-sizes": swapped})
    check_dtype(got, torch.float32)


def spread(session: GradingSession) -> None:
    """draws every value from N(0, std)"""
    rows, width, std = sizes(session)
    padding = session.random_int(1, width - 1)
    got = drop_row(table_of(session.call(rows, width, std, padding), rows, width), padding)
    if not bool(got.any()):
        raise CheckFailed("all-zero", "every value is zero; identical rows could never learn to differ")
    if bool((got[1:] == got[:1]).all()):
        raise CheckFailed(
            "same-rows", "all rows are the same: you drew one row and repeated it; draw each row separately"
        )
    if bool((got[:, 1:] == got[:, :1]).all()):
        raise CheckFailed("same-columns", "all values in a row are the same; draw each value separately")
    unit = torch.nn.functional.normalize(got, dim=1)
    if bool(
        (unit @ unit.T).fill_diagonal_(0).abs().max() > 0.99
    ):  # practically impossible by chance with 40 or more values
        raise CheckFailed("rows-copied", "some rows are copies or multiples of others; draw each value separately")
    mean, found = float(got.mean()), float(got.std())
    centered = got - mean
    flatness = float(
        (centered**4).mean() / (centered**2).mean() ** 2
    )  # 3 for a normal distribution, 1.8 for a uniform one
    if abs(mean) > 0.2 * found:
        raise CheckFailed("not-centered", "the values are not centered at 0: about half of them must be negative")
    if flatness < 2.4:
        raise CheckFailed(
            "uniform", "the values are spread evenly between two limits; a normal distribution has no limits"
        )
    for rule, value, message in (
        ("std-one", 1.0, "the standard deviation is 1, the default of nn.Embedding; use the given std"),
        ("variance", std**2, "the standard deviation is std * std; std is not a variance, so do not square it"),
        (
            "root",
            std**0.5,
            "the standard deviation is the square root of std; std is not a variance, so do not take the root",
        ),
    ):
        if abs(found - value) < 0.1 * value:
            raise CheckFailed(rule, message)
    if abs(found - std) > 0.1 * std:
        raise CheckFailed("std", f"the standard deviation of the values is about {found:.2g}; it must be {std:.2g}")


def padding_row(session: GradingSession) -> None:
    """zeroes the padding row and no other"""
    rows, width, std = sizes(session)
    padding = session.random_int(2, width - 1)
    got = table_of(session.call(rows, width, std, padding), rows, width)
    if bool(got[padding].any()):
        if not bool(got[:, padding].any()):
            raise CheckFailed("padding-column", "a column of the table is zero; the padding id selects a row")
        if not bool(got[padding - 1].any()):
            raise CheckFailed(
                "padding-off-by-one", "the row before the padding row is zero; both ids and rows start at 0"
            )
        raise CheckFailed(
            "padding-not-zero", "the padding row contains random values; did you zero it before drawing, or not at all?"
        )
    others = drop_row(got, padding)
    if not bool(others.any(1).all()):
        raise CheckFailed("more-than-padding", "a row other than the padding row is zero")


def padding_zero(session: GradingSession) -> None:
    """accepts id 0 as the padding row"""
    rows, width, std = sizes(session)
    got = table_of(session.call(rows, width, std, 0), rows, width)
    if bool(got[0].any()):
        raise CheckFailed(
            "zero-is-false", "with padding_idx=0, row 0 is not zero; in Python, 0 counts as false in an `if`"
        )


def no_padding(session: GradingSession) -> None:
    """draws every row if padding_idx is None"""
    rows, width, std = sizes(session)
    got = table_of(session.call(rows, width, std, None), rows, width)
    if not bool(got.any()):
        raise CheckFailed(
            "none-is-everything", "with padding_idx=None the whole table is zero; indexing with None selects everything"
        )
    if not bool(got.any(1).all()):
        raise CheckFailed("none-is-a-row", "with padding_idx=None a row is zero; None means no padding row")


def redrawn_each_time(session: GradingSession) -> None:
    """draws new values on every call"""
    rows, width, std = sizes(session)
    first, second = session.call(rows, width, std, None), session.call(rows, width, std, None)
    if torch.equal(first, second):
        raise CheckFailed(
            "fixed-seed", "two calls returned the same values; do not set a seed; that is up to the caller"
        )


CHECKS = (shape, spread, padding_row, padding_zero, no_padding, redrawn_each_time)


def walk_output(session: GradingSession) -> Tensor:
    """Return the learner's newly initialized rows for "I love dogs" in the default sample."""
    table: Tensor = session.call(6_144, 128, 0.02, 6_142)
    return table[torch.tensor([[40, 812, 2228, 82]])]


def sizes(session: GradingSession) -> tuple[int, int, float]:
    return session.random_int(70, 99), session.random_int(40, 60), session.random_int(2, 30) / 100


def table_of(got: object, rows: int, width: int) -> Tensor:
    check_shape(got, (rows, width), "V D")
    assert isinstance(got, Tensor)
    return got.detach()


def drop_row(table: Tensor, row: int) -> Tensor:
    return torch.cat([table[:row], table[row + 1 :]])
