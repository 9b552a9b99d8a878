"""Checks for the task "Reinitialize a table"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.session import CheckFailed, GradingSession

NAME = "reinit"
PARAMETERS = ("weight", "std", "padding_idx")


def in_place(session: GradingSession) -> None:
    """changes the given table and returns nothing"""
    table, std = drawn(session)
    answer = session.try_call(table, std, 1)
    after = table_after(session, table, std, 1)
    if torch.equal(after, table):
        raise CheckFailed(
            "not-in-place", "the given table is unchanged; assigning a new tensor to the same name does not change it"
        )
    if answer.value is not None:
        raise CheckFailed("returns", "the function returns something; change the table in place and return None")


def spread(session: GradingSession) -> None:
    """draws every value from N(0, std)"""
    table, std = drawn(session)
    padding = session.random_int(1, 30)
    after = table_after(session, table, std, padding)
    keep = torch.arange(len(table)) != padding
    old, new = table[keep], after[keep]
    if not bool(new.any()):
        raise CheckFailed("all-zero", "the whole table is zero; only the padding row may be")
    if torch.equal(old, new):
        raise CheckFailed("only-padding", "only the padding row changed; draw every value again")
    if bool((new[1:] == new[:1]).all()):
        raise CheckFailed("same-rows", "all rows are the same: you drew one row and wrote it everywhere")
    if has_copies(new):
        raise CheckFailed("rows-copied", "some rows are copies of others; draw each value separately")
    likeness = float((old * new).mean() / (old.std() * new.std()))
    factor = (old * new).sum() / (old * old).sum()
    if torch.allclose(new, factor * old, rtol=1e-4, atol=1e-6):
        raise CheckFailed("scaled", "you multiplied the old values by a factor; draw new ones")
    if abs(likeness) > 0.5:
        raise CheckFailed(
            "added", "the new values still contain the old ones: you added to them instead of replacing them"
        )
    found = float(new.std())
    for rule, value, message in (
        ("std-one", 1.0, "the standard deviation is 1; use the given std"),
        ("variance", std**2, "the standard deviation is std * std; std is not a variance, so do not square it"),
    ):
        if abs(found - value) < 0.1 * value:
            raise CheckFailed(rule, message)
    if flatness(new) < 2.4:
        raise CheckFailed(
            "uniform", "the values are spread evenly between two limits; a normal distribution has no limits"
        )
    if abs(found - std) > 0.1 * std or abs(float(new.mean())) > 0.2 * std:
        raise CheckFailed("std", "the values are not normally distributed around 0 with the given standard deviation")


def old_values_unused(session: GradingSession) -> None:
    """does not depend on the old values"""
    table, std = drawn(session)
    signs = table.sign()  # two different values in total
    after = table_after(session, signs, std, None)
    if len(set(after.flatten().tolist())) < after.numel() // 2:
        raise CheckFailed("shuffled", "the old values are still there, reordered or scaled; draw new ones")
    table[session.random_int(1, 30)] = torch.nan
    if not bool(table_after(session, table, std, 0).isfinite().all()):
        raise CheckFailed(
            "old-values", "the table contained NaN and still does: the new values are computed from the old ones"
        )


def padding_row(session: GradingSession) -> None:
    """leaves the padding row at zero, whatever it was before"""
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
                raise CheckFailed("padding-column", "you zeroed a column; the padding id selects a row")
            raise CheckFailed(
                "padding-overwritten", "the padding row was zero and now contains random values; drawing also fills it"
            )
        if not bool(after[torch.arange(len(table)) != padding].any(1).all()):
            raise CheckFailed("more-than-padding", "a row other than the padding row is zero")
        after = table_after(session, table, std, padding)  # a padding row with nonzero values
        if torch.equal(after[padding], table[padding]):
            raise CheckFailed(
                "padding-kept",
                "the padding row still has its old values; set it to zero even if it was not zero before",
            )
        if bool(after[padding].any()):
            raise CheckFailed("padding-not-zero", "the padding row was not zero before and is still not zero")


def no_padding(session: GradingSession) -> None:
    """draws every row if padding_idx is None"""
    table, std = drawn(session)
    after = table_after(session, table, std, None)
    if not bool(after.any()):
        raise CheckFailed(
            "none-is-everything", "with padding_idx=None the whole table is zero; indexing with None selects everything"
        )
    if not bool(after.any(1).all()):
        raise CheckFailed("none-is-a-row", "with padding_idx=None a row is zero; None means no padding row")


def parameter(session: GradingSession) -> None:
    """works on a trainable parameter"""
    table, std = drawn(session)
    try:
        session.gradient(table, std, 1, of=0, weight=torch.ones(1))
    except CheckFailed as failed:
        if failed.rule != "raises":
            raise
        raise CheckFailed(
            "recorded", f"turn gradients off while you fill a trainable parameter; {failed.message}"
        ) from None


CHECKS = (in_place, spread, padding_row, no_padding, old_values_unused, parameter)


def drawn(session: GradingSession) -> tuple[Tensor, float]:
    """Return a table with values from N(0, 1), and a standard deviation far from 1."""
    return session.random_normal(session.random_int(70, 99), session.random_int(40, 60)), session.random_int(
        2, 30
    ) / 100


def flatness(numbers: Tensor) -> float:
    """Return the kurtosis: 3 for a normal distribution, 1.8 for a uniform one."""
    centered = numbers - numbers.mean()
    return float((centered**4).mean() / (centered**2).mean() ** 2)


def has_copies(rows: Tensor) -> bool:
    """Check whether a row is a copy or a multiple of another; independently drawn rows of 40 values never are."""
    unit = torch.nn.functional.normalize(rows, dim=1)
    return bool((unit @ unit.T).fill_diagonal_(0).abs().max() > 0.99)


def table_after(session: GradingSession, table: Tensor, std: float, padding: int | None) -> Tensor:
    """Return the learner's copy of the table after the call."""
    answer = session.try_call(table, std, padding)
    if answer.raised is not None:
        raise CheckFailed("raises", f"your code raised {answer.raised}")
    (after,) = answer.tensor_arguments
    if after.shape != table.shape or after.dtype != table.dtype:
        raise CheckFailed("shape", "the table has a different shape or dtype afterwards; keep both")
    return after
