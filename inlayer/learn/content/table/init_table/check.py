"""Checks of "A table is init_table".

The numbers are the learner's own, so what is checked is how they are spread; the limits are 6 standard errors and more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "init_table"
PARAMETERS = ("vocab_size", "n_embd", "std", "padding_idx")


def shape(session: GradingSession) -> None:
    """one row for each id, float32"""
    rows, width, std = sizes(session)
    got = session.call(rows, width, std, session.random_int(1, width - 1))
    swapped = ((width, rows), "the sizes are swapped: an id selects a row, so there must be vocab_size rows")
    check_shape(got, (rows, width), "V D", mistakes={"swapped-sizes": swapped})
    check_dtype(got, torch.float32)


def spread(session: GradingSession) -> None:
    """every number from N(0, std)"""
    rows, width, std = sizes(session)
    padding = session.random_int(1, width - 1)
    got = drop_row(table_of(session.call(rows, width, std, padding), rows, width), padding)
    if not bool(got.any()):
        raise CheckFailed("all-zero", "every number is zero; rows that are all alike can never learn to differ")
    if bool((got[1:] == got[:1]).all()):
        raise CheckFailed(
            "same-rows", "all rows are the same: one row was drawn and repeated; each must be drawn by itself"
        )
    if bool((got[:, 1:] == got[:, :1]).all()):
        raise CheckFailed("same-columns", "all numbers of a row are the same; each must be drawn by itself")
    unit = torch.nn.functional.normalize(got, dim=1)
    if bool((unit @ unit.T).fill_diagonal_(0).abs().max() > 0.99):  # of 40 numbers and more, by chance: never
        raise CheckFailed(
            "rows-copied", "some rows are copies of others, or multiples; each number must be drawn by itself"
        )
    mean, found = float(got.mean()), float(got.std())
    centered = got - mean
    flatness = float(
        (centered**4).mean() / (centered**2).mean() ** 2
    )  # 3 for a normal distribution, 1.8 for a uniform one
    if abs(mean) > 0.2 * found:
        raise CheckFailed("not-centered", "the numbers do not lie around 0: about as many must be negative as positive")
    if flatness < 2.4:
        raise CheckFailed(
            "uniform", "the numbers are spread evenly between two limits; a normal distribution has no limits"
        )
    for rule, value, message in (
        ("std-one", 1.0, "the standard deviation is 1, as nn.Embedding leaves it; it must be the one that is given"),
        ("variance", std**2, "the standard deviation is std * std; the given number is no variance, do not square it"),
        ("root", std**0.5, "the standard deviation is the root of std; the given number is no variance, take no root"),
    ):
        if abs(found - value) < 0.1 * value:
            raise CheckFailed(rule, message)
    if abs(found - std) > 0.1 * std:
        raise CheckFailed("std", f"the standard deviation of the numbers is about {found:.2g}; {std:.2g} was asked for")


def padding_row(session: GradingSession) -> None:
    """the padding row is zero, and no other"""
    rows, width, std = sizes(session)
    padding = session.random_int(2, width - 1)
    got = table_of(session.call(rows, width, std, padding), rows, width)
    if bool(got[padding].any()):
        if not bool(got[:, padding].any()):
            raise CheckFailed("padding-column", "a column of the table is zero; the padding id selects a row")
        if not bool(got[padding - 1].any()):
            raise CheckFailed(
                "padding-off-by-one", "the row before the padding row is zero; ids count from 0, as rows do"
            )
        raise CheckFailed(
            "padding-not-zero", "the padding row holds drawn numbers; is it zeroed before the drawing, or never?"
        )
    others = drop_row(got, padding)
    if not bool(others.any(1).all()):
        raise CheckFailed("more-than-padding", "a row is zero that is not the padding row")


def padding_zero(session: GradingSession) -> None:
    """id 0 can be the padding row too"""
    rows, width, std = sizes(session)
    got = table_of(session.call(rows, width, std, 0), rows, width)
    if bool(got[0].any()):
        raise CheckFailed(
            "zero-is-false", "with padding_idx=0 the row 0 is not zero; in Python, 0 counts as false in an `if`"
        )


def no_padding(session: GradingSession) -> None:
    """without a padding row every row is drawn"""
    rows, width, std = sizes(session)
    got = table_of(session.call(rows, width, std, None), rows, width)
    if not bool(got.any()):
        raise CheckFailed(
            "none-is-everything", "with padding_idx=None the whole table is zero; indexing with None selects it all"
        )
    if not bool(got.any(1).all()):
        raise CheckFailed(
            "none-is-a-row", "with padding_idx=None a row is zero; None means that there is no padding row"
        )


def drawn_anew(session: GradingSession) -> None:
    """every call draws other numbers"""
    rows, width, std = sizes(session)
    first, second = session.call(rows, width, std, None), session.call(rows, width, std, None)
    if torch.equal(first, second):
        raise CheckFailed("fixed-seed", "two calls gave the same numbers; setting a seed is the caller's business")


CHECKS = (shape, spread, padding_row, padding_zero, no_padding, drawn_anew)


def walk_output(session: GradingSession) -> Tensor:
    """The learner's newborn rows of the default sample's walk of "I love dogs"."""
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
