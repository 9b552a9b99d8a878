"""Checks for the task "Compute the gradient of a table yourself"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "row_gradient"
PARAMETERS = ("ids", "upstream", "vocab_size", "padding_idx")
FORBIDDEN = ("embedding", "autograd", "inlayer")


def add_up(ids: Tensor, upstream: Tensor, rows: int) -> Tensor:
    """Sum over all positions, as a product with one-hot rows."""
    return torch.nn.functional.one_hot(ids.flatten(), rows).to(upstream.dtype).T @ upstream.flatten(0, 1)


def repeated(session: GradingSession, rows: int, batch: int, tokens: int) -> Tensor:
    """Return ids (B, T): one id is in every text and occurs at least twice; the last id never occurs."""
    ids = session.random_ids(rows - 1, (batch, tokens), low=1)
    ids[:, [0, -1]] = session.random_int(1, rows - 2)
    return ids


def shape(session: GradingSession) -> None:
    """returns one row for every row of the table"""
    rows, batch, tokens, width = (
        session.random_int(12, 15),
        session.random_int(2, 3),
        session.random_int(4, 5),
        session.random_int(6, 8),
    )
    ids = repeated(session, rows, batch, tokens)
    upstream = session.random_normal(batch, tokens, width, dtype=torch.float64)
    got = session.call(ids, upstream, rows, None)
    rows_only = "you returned only the rows that were looked up; the gradient has a row for every row of the table"
    check_shape(
        got,
        (rows, width),
        "V D",
        mistakes={
            "only-looked-up": ((len(set(ids.flatten().tolist())), width), rows_only),
            "transposed": ((width, rows), "rows and channels are swapped"),
        },
    )
    check_dtype(got, torch.float64)


def values(session: GradingSession) -> None:
    """adds up the gradients of all positions of an id"""
    rows, batch, tokens, width = (
        session.random_int(9, 12),
        session.random_int(2, 3),
        session.random_int(4, 6),
        session.random_int(3, 5),
    )
    ids, upstream = repeated(session, rows, batch, tokens), session.random_normal(batch, tokens, width)
    want = add_up(ids, upstream, rows)
    counts = torch.bincount(ids.flatten(), minlength=rows)
    last, first = torch.zeros_like(want), torch.zeros_like(want)
    for position, row in enumerate(ids.flatten().tolist()):
        last[row] = upstream.flatten(0, 1)[position]
        if not first[row].any():
            first[row] = last[row]
    got = session.call(ids, upstream, rows, None)
    check_values(
        got,
        want,
        mistakes={
            "last-one-wins": (last, "an id at several positions gets only the gradient of the last one"),
            "first-one-wins": (first, "an id at several positions gets only the gradient of the first one"),
            "averaged": (
                want / counts.clamp(min=1)[:, None],
                "you averaged the gradients of an id's positions; a copy passes on its whole gradient",
            ),
            "first-text-only": (add_up(ids[:1], upstream[:1], rows), "you counted only the first text of the batch"),
            "divided-by-positions": (
                want / ids.numel(),
                "you divided by the number of positions; upstream already did",
            ),
            "counted": (
                counts[:, None].expand_as(want).to(want.dtype),
                "the rows contain how often an id occurs, not the gradients of its positions",
            ),
        },
        message="the gradient of a row is not the sum of the gradients of its positions",
        atol=1e-5,
    )


def other_rows(session: GradingSession) -> None:
    """gives rows that were not looked up exactly zero"""
    rows, width = session.random_int(30, 40), session.random_int(3, 5)
    ids, upstream = repeated(session, 6, 2, 4), session.random_normal(2, 4, width)
    got = session.call(ids, upstream, rows, None)
    check_shape(got, (rows, width), "V D")
    untouched = torch.ones(rows, dtype=torch.bool)
    untouched[ids.flatten()] = False
    if bool(got[untouched].any()):
        raise CheckFailed("other-rows", "a row that was not looked up has a gradient; it must be exactly zero")


def padding(session: GradingSession) -> None:
    """gives the padding row no gradient"""
    rows, width = session.random_int(9, 12), session.random_int(3, 5)
    ids, upstream = repeated(session, rows, 2, 5), session.random_normal(2, 5, width)
    pad = int(ids[0, 0])
    ids[1, 2] = 0
    whole = add_up(ids, upstream, rows)
    want = whole.clone()
    want[pad] = 0
    row_zero = whole.clone()
    row_zero[0] = 0
    check_values(
        session.call(ids, upstream, rows, pad),
        want,
        mistakes={
            "padding-learns": (whole, "the padding row has a gradient; lookups must not send it one"),
            "row-zero": (row_zero, "you treated row 0 as the padding row; use padding_idx"),
        },
        message="with a padding row, all other rows must be the same as without one",
        atol=1e-5,
    )
    pad_zero = whole.clone()
    pad_zero[0] = 0
    check_values(
        session.call(ids, upstream, rows, 0),
        pad_zero,
        mistakes={"zero-is-none": (whole, "you treated padding_idx 0 as None; 0 is a valid row")},
        message="with padding row 0, the other rows must be the same as without one",
        atol=1e-5,
    )


def upstream_stays(session: GradingSession) -> None:
    """does not modify upstream"""
    ids, upstream = repeated(session, 8, 2, 4), session.random_normal(2, 4, 3)
    answer = session.try_call(ids, upstream, 8, int(ids[0, 0]))
    if answer.raised is None and not torch.equal(answer.tensor_arguments[1], upstream):
        raise CheckFailed("upstream-edited", "you modified upstream in place; it belongs to the caller")


CHECKS = (shape, values, other_rows, padding, upstream_stays)


def walk_output(session: GradingSession) -> Tensor:
    """Return what the learner's code sends to the rows of "I love dogs": the lookup part of step 8 of the walk."""
    import inlayer

    model = inlayer.load("default")
    ids = torch.tensor([model.tokenizer.encode("I love dogs")])
    table = model.embeddings.token_embedding.weight.detach().float()
    hidden = table[ids].requires_grad_()
    logits = hidden[0, :-1] @ table.T
    (upstream,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, ids[0, 1:]), hidden)
    got: Tensor = session.call(ids, upstream, len(table), None)
    return got[ids[0]]
