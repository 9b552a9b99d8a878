"""Checks of "Draw again"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.session import Exam, Failed

NAME = "reinit"
PARAMETERS = ("weight", "std", "padding_idx")


def in_place(exam: Exam) -> None:
    """the given table is changed, and nothing is returned"""
    table, std = drawn(exam)
    answer = exam.run(table, std, 1, watch=True)
    after = table_after(exam, table, std, 1)
    if torch.equal(after, table):
        raise Failed(
            "not-in-place", "the given table is as it was; a new tensor under the same name does not change it"
        )
    if answer.value is not None:
        raise Failed("returns", "the function returns something; it changes the table and returns None")


def spread(exam: Exam) -> None:
    """every number is drawn anew from N(0, std)"""
    table, std = drawn(exam)
    padding = exam.number(1, 30)
    after = table_after(exam, table, std, padding)
    keep = torch.arange(len(table)) != padding
    old, new = table[keep], after[keep]
    if not bool(new.any()):
        raise Failed("all-zero", "the whole table is zero; only the padding row may be")
    if torch.equal(old, new):
        raise Failed("only-padding", "only the padding row was changed; every number must be drawn anew")
    if bool((new[1:] == new[:1]).all()):
        raise Failed("same-rows", "all rows are the same: one row was drawn and written everywhere")
    if has_copies(new):
        raise Failed("rows-copied", "some rows are copies of others; each number must be drawn by itself")
    likeness = float((old * new).mean() / (old.std() * new.std()))
    factor = (old * new).sum() / (old * old).sum()
    if torch.allclose(new, factor * old, rtol=1e-4, atol=1e-6):
        raise Failed("scaled", "the old numbers were multiplied by a factor; new ones must be drawn")
    if abs(likeness) > 0.5:
        raise Failed(
            "added", "the old numbers are still in the new ones: something was added to them, not drawn in their place"
        )
    found = float(new.std())
    for rule, value, message in (
        ("std-one", 1.0, "the standard deviation is 1; it must be the one that is given"),
        ("variance", std**2, "the standard deviation is std * std; the given number is no variance, do not square it"),
    ):
        if abs(found - value) < 0.1 * value:
            raise Failed(rule, message)
    if flatness(new) < 2.4:
        raise Failed("uniform", "the numbers are spread evenly between two limits; a normal distribution has no limits")
    if abs(found - std) > 0.1 * std or abs(float(new.mean())) > 0.2 * std:
        raise Failed("std", "the numbers are not spread around 0 with the standard deviation that is given")


def nothing_left(exam: Exam) -> None:
    """nothing of what the table held counts"""
    table, std = drawn(exam)
    signs = table.sign()  # two different numbers in all
    after = table_after(exam, signs, std, None)
    if len(set(after.flatten().tolist())) < after.numel() // 2:
        raise Failed("shuffled", "the old numbers are there in another order, or scaled; new ones must be drawn")
    table[exam.number(1, 30)] = torch.nan
    if not bool(table_after(exam, table, std, 0).isfinite().all()):
        raise Failed(
            "old-numbers", "the table held NaN, and holds it still: the new numbers are computed from the old ones"
        )


def padding_row(exam: Exam) -> None:
    """the padding row is zero afterwards, whatever it held"""
    table, std = drawn(exam)
    for padding in (exam.number(1, 30), 0):
        before = table.clone()
        before[padding] = 0.0
        after = table_after(exam, before, std, padding)
        if bool(after[padding].any()):
            if padding == 0:
                raise Failed(
                    "zero-is-false", "with padding_idx=0 the row is not zero; in Python, 0 counts as false in an `if`"
                )
            if not bool(after[:, padding].any()):
                raise Failed("padding-column", "a column was zeroed; the padding id selects a row")
            raise Failed(
                "padding-drawn-over", "the padding row was zero and holds drawn numbers now; drawing fills it too"
            )
        if not bool(after[torch.arange(len(table)) != padding].any(1).all()):
            raise Failed("more-than-padding", "a row is zero that is not the padding row")
        after = table_after(exam, table, std, padding)  # a row that somebody wrote into
        if torch.equal(after[padding], table[padding]):
            raise Failed(
                "padding-kept", "the padding row holds what it held before; it must be zero, even if it was not"
            )
        if bool(after[padding].any()):
            raise Failed("padding-not-zero", "the padding row was not zero before, and is not zero now")


def no_padding(exam: Exam) -> None:
    """without a padding row every row is drawn"""
    table, std = drawn(exam)
    after = table_after(exam, table, std, None)
    if not bool(after.any()):
        raise Failed(
            "none-is-everything", "with padding_idx=None the whole table is zero; indexing with None selects it all"
        )
    if not bool(after.any(1).all()):
        raise Failed("none-is-a-row", "with padding_idx=None a row is zero; None means that there is no padding row")


def parameter(exam: Exam) -> None:
    """a table that learns can be drawn again"""
    table, std = drawn(exam)
    try:
        exam.gradient(table, std, 1, of=0, weight=torch.ones(1))
    except Failed as failed:
        if failed.rule != "raises":
            raise
        raise Failed(
            "recorded", f"on a parameter that learns, gradients must be off while it is filled; {failed.message}"
        ) from None


CHECKS = (in_place, spread, padding_row, no_padding, nothing_left, parameter)


def drawn(exam: Exam) -> tuple[Tensor, float]:
    """A table with values from N(0, 1), and a standard deviation far from 1."""
    return exam.normal(exam.number(70, 99), exam.number(40, 60)), exam.number(2, 30) / 100


def flatness(numbers: Tensor) -> float:
    """The fourth moment: 3 for a normal distribution, 1.8 for a uniform one."""
    centered = numbers - numbers.mean()
    return float((centered**4).mean() / (centered**2).mean() ** 2)


def has_copies(rows: Tensor) -> bool:
    """Whether a row is another one, or a multiple of it; drawn by themselves, rows of 40 numbers never are."""
    unit = torch.nn.functional.normalize(rows, dim=1)
    return bool((unit @ unit.T).fill_diagonal_(0).abs().max() > 0.99)


def table_after(exam: Exam, table: Tensor, std: float, padding: int | None) -> Tensor:
    """The learner's copy of the table after the call."""
    answer = exam.run(table, std, padding, watch=True)
    if answer.raised is not None:
        raise Failed("raises", f"your code raised {answer.raised}")
    (after,) = answer.arguments
    if after.shape != table.shape or after.dtype != table.dtype:
        raise Failed("shape", "the table has another shape or dtype afterwards; it keeps both")
    return after
