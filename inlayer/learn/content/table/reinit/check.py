"""Checks of "Draw again"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.session import CheckFailed, GradingSession

NAME = "reinit"
PARAMETERS = ("weight", "std", "padding_idx")


def in_place(session: GradingSession) -> None:
    """the given table is changed, and nothing is returned"""
    table, std = drawn(session)
    answer = session.try_call(table, std, 1, return_arguments=True)
    after = table_after(session, table, std, 1)
    if torch.equal(after, table):
        raise CheckFailed(
            "not-in-place", "the given table is as it was; a new tensor under the same name does not change it"
        )
    if answer.value is not None:
        raise CheckFailed("returns", "the function returns something; it changes the table and returns None")


def spread(session: GradingSession) -> None:
    """every number is drawn anew from N(0, std)"""
    table, std = drawn(session)
    padding = session.random_int(1, 30)
    after = table_after(session, table, std, padding)
    keep = torch.arange(len(table)) != padding
    old, new = table[keep], after[keep]
    if not bool(new.any()):
        raise CheckFailed("all-zero", "the whole table is zero; only the padding row may be")
    if torch.equal(old, new):
        raise CheckFailed("only-padding", "only the padding row was changed; every number must be drawn anew")
    if bool((new[1:] == new[:1]).all()):
        raise CheckFailed("same-rows", "all rows are the same: one row was drawn and written everywhere")
    if has_copies(new):
        raise CheckFailed("rows-copied", "some rows are copies of others; each number must be drawn by itself")
    likeness = float((old * new).mean() / (old.std() * new.std()))
    factor = (old * new).sum() / (old * old).sum()
    if torch.allclose(new, factor * old, rtol=1e-4, atol=1e-6):
        raise CheckFailed("scaled", "the old numbers were multiplied by a factor; new ones must be drawn")
    if abs(likeness) > 0.5:
        raise CheckFailed(
            "added", "the old numbers are still in the new ones: something was added to them, not drawn in their place"
        )
    found = float(new.std())
    for rule, value, message in (
        ("std-one", 1.0, "the standard deviation is 1; it must be the one that is given"),
        ("variance", std**2, "the standard deviation is std * std; the given number is no variance, do not square it"),
    ):
        if abs(found - value) < 0.1 * value:
            raise CheckFailed(rule, message)
    if flatness(new) < 2.4:
        raise CheckFailed(
            "uniform", "the numbers are spread evenly between two limits; a normal distribution has no limits"
        )
    if abs(found - std) > 0.1 * std or abs(float(new.mean())) > 0.2 * std:
        raise CheckFailed("std", "the numbers are not spread around 0 with the standard deviation that is given")


def nothing_left(session: GradingSession) -> None:
    """nothing of what the table held counts"""
    table, std = drawn(session)
    signs = table.sign()  # two different numbers in all
    after = table_after(session, signs, std, None)
    if len(set(after.flatten().tolist())) < after.numel() // 2:
        raise CheckFailed("shuffled", "the old numbers are there in another order, or scaled; new ones must be drawn")
    table[session.random_int(1, 30)] = torch.nan
    if not bool(table_after(session, table, std, 0).isfinite().all()):
        raise CheckFailed(
            "old-values", "the table held NaN, and holds it still: the new numbers are computed from the old ones"
        )


def padding_row(session: GradingSession) -> None:
    """the padding row is zero afterwards, whatever it held"""
    table, std = drawn(session)
    for padding in (session.random_int(1, 30), 0):
        before = table.clone()
        before[padding] = 0.0
        after = table_after(session, before, std, padding)
        if bool(after[padding].any()):
            if padding == 0:
                raise CheckFailed(
                    "zero-is-false", "with padding_idx=0 the row is not zero; in Python, 0 counts as false in an `if`"
                )
            if not bool(after[:, padding].any()):
                raise CheckFailed("padding-column", "a column was zeroed; the padding id selects a row")
            raise CheckFailed(
                "padding-overwritten", "the padding row was zero and holds drawn numbers now; drawing fills it too"
            )
        if not bool(after[torch.arange(len(table)) != padding].any(1).all()):
            raise CheckFailed("more-than-padding", "a row is zero that is not the padding row")
        after = table_after(session, table, std, padding)  # a row that somebody wrote into
        if torch.equal(after[padding], table[padding]):
            raise CheckFailed(
                "padding-kept", "the padding row holds what it held before; it must be zero, even if it was not"
            )
        if bool(after[padding].any()):
            raise CheckFailed("padding-not-zero", "the padding row was not zero before, and is not zero now")


def no_padding(session: GradingSession) -> None:
    """without a padding row every row is drawn"""
    table, std = drawn(session)
    after = table_after(session, table, std, None)
    if not bool(after.any()):
        raise CheckFailed(
            "none-is-everything", "with padding_idx=None the whole table is zero; indexing with None selects it all"
        )
    if not bool(after.any(1).all()):
        raise CheckFailed(
            "none-is-a-row", "with padding_idx=None a row is zero; None means that there is no padding row"
        )


def parameter(session: GradingSession) -> None:
    """a table that learns can be drawn again"""
    table, std = drawn(session)
    try:
        session.gradient(table, std, 1, of=0, weight=torch.ones(1))
    except CheckFailed as failed:
        if failed.rule != "raises":
            raise
        raise CheckFailed(
            "recorded", f"on a parameter that learns, gradients must be off while it is filled; {failed.message}"
        ) from None


CHECKS = (in_place, spread, padding_row, no_padding, nothing_left, parameter)


def drawn(session: GradingSession) -> tuple[Tensor, float]:
    """A table with values from N(0, 1), and a standard deviation far from 1."""
    return session.random_normal(session.random_int(70, 99), session.random_int(40, 60)), session.random_int(
        2, 30
    ) / 100


def flatness(numbers: Tensor) -> float:
    """The fourth moment: 3 for a normal distribution, 1.8 for a uniform one."""
    centered = numbers - numbers.mean()
    return float((centered**4).mean() / (centered**2).mean() ** 2)


def has_copies(rows: Tensor) -> bool:
    """Whether a row is another one, or a multiple of it; drawn by themselves, rows of 40 numbers never are."""
    unit = torch.nn.functional.normalize(rows, dim=1)
    return bool((unit @ unit.T).fill_diagonal_(0).abs().max() > 0.99)


def table_after(session: GradingSession, table: Tensor, std: float, padding: int | None) -> Tensor:
    """The learner's copy of the table after the call."""
    answer = session.try_call(table, std, padding, return_arguments=True)
    if answer.raised is not None:
        raise CheckFailed("raises", f"your code raised {answer.raised}")
    (after,) = answer.tensor_arguments
    if after.shape != table.shape or after.dtype != table.dtype:
        raise CheckFailed("shape", "the table has another shape or dtype afterwards; it keeps both")
    return after
