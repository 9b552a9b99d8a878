"""Checks of "The gradient of a table, by hand"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "row_gradient"
PARAMETERS = ("ids", "upstream", "vocab_size", "padding_idx")
FORBIDDEN_NAMES = (
    *("Embedding", "embedding", "EmbeddingBag", "embedding_bag", "embedding_dense_backward"),
    *("backward", "autograd", "func", "functorch", "vjp", "jvp", "ops", "getattr", "inlayer"),
)


def add_up(ids: Tensor, upstream: Tensor, rows: int) -> Tensor:
    """The sum over all places, as a product with one-hot rows."""
    return torch.nn.functional.one_hot(ids.flatten(), rows).to(upstream.dtype).T @ upstream.flatten(0, 1)


def repeated(session: GradingSession, rows: int, batch: int, tokens: int) -> Tensor:
    """Ids (B, T) of which one stands in every text, at least twice, and one nowhere: the last."""
    ids = session.random_ids(rows - 1, (batch, tokens), low=1)
    ids[:, [0, -1]] = session.random_int(1, rows - 2)
    return ids


def shape(session: GradingSession) -> None:
    """one row for every row of the table"""
    rows, batch, tokens, width = (
        session.random_int(12, 15),
        session.random_int(2, 3),
        session.random_int(4, 5),
        session.random_int(6, 8),
    )
    ids = repeated(session, rows, batch, tokens)
    upstream = session.random_normal(batch, tokens, width, dtype=torch.float64)
    got = session.call(ids, upstream, rows, None)
    rows_only = "only the rows that were looked up are there; the gradient has a row for every row of the table"
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
    """a row's gradient is made of the places where its id stands"""
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
    for place, row in enumerate(ids.flatten().tolist()):
        last[row] = upstream.flatten(0, 1)[place]
        if not first[row].any():
            first[row] = last[row]
    got = session.call(ids, upstream, rows, None)
    check_values(
        got,
        want,
        mistakes={
            "last-one-wins": (last, "an id that stands at several places gets the gradient of the last one only"),
            "first-one-wins": (first, "an id that stands at several places gets the gradient of the first one only"),
            "averaged": (
                want / counts.clamp(min=1)[:, None],
                "the gradients of an id's places are averaged; a copy hands back all of its gradient",
            ),
            "first-text-only": (add_up(ids[:1], upstream[:1], rows), "only the first text of the batch is counted"),
            "divided-by-positions": (
                want / ids.numel(),
                "you divided by the number of positions; upstream already did",
            ),
            "counted": (
                counts[:, None].expand_as(want).to(want.dtype),
                "the rows hold how often an id stands there, not the gradients that came to its places",
            ),
        },
        message="a row's gradient is not made of the gradients of its places",
        atol=1e-5,
    )


def other_rows(session: GradingSession) -> None:
    """rows that were not looked up get exactly zero"""
    rows, width = session.random_int(30, 40), session.random_int(3, 5)
    ids, upstream = repeated(session, 6, 2, 4), session.random_normal(2, 4, width)
    got = session.call(ids, upstream, rows, None)
    check_shape(got, (rows, width), "V D")
    untouched = torch.ones(rows, dtype=torch.bool)
    untouched[ids.flatten()] = False
    if bool(got[untouched].any()):
        raise CheckFailed("other-rows", "a row that no id names has a gradient; it must be exactly zero")


def padding(session: GradingSession) -> None:
    """the padding row gets none"""
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
            "padding-learns": (whole, "the padding row has a gradient; lookups must send it none"),
            "row-zero": (row_zero, "row 0 is taken for the padding row, whatever padding_idx says"),
        },
        message="with a padding row, all other rows keep what they had without one",
        atol=1e-5,
    )
    pad_zero = whole.clone()
    pad_zero[0] = 0
    check_values(
        session.call(ids, upstream, rows, 0),
        pad_zero,
        mistakes={"zero-is-none": (whole, "padding_idx 0 is taken for none; 0 is a row like any other")},
        message="with the padding row 0, the other rows keep what they had",
        atol=1e-5,
    )


def upstream_stays(session: GradingSession) -> None:
    """upstream is not changed"""
    ids, upstream = repeated(session, 8, 2, 4), session.random_normal(2, 4, 3)
    answer = session.try_call(ids, upstream, 8, int(ids[0, 0]), return_arguments=True)
    if answer.raised is None and not torch.equal(answer.tensor_arguments[1], upstream):
        raise CheckFailed("upstream-edited", "upstream was changed in place; it belongs to the caller")


CHECKS = (shape, values, other_rows, padding, upstream_stays)


def walk_output(session: GradingSession) -> Tensor:
    """What the learner's code sends to the rows of "I love dogs": the walk's step 8, the part of the lookup."""
    import inlayer

    model = inlayer.load("default")
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.encode("I love dogs")])
    table = model.table.in_memory().weight.detach().float()
    hidden = table[ids].requires_grad_()
    logits = hidden[0, :-1] @ table.T
    (upstream,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, ids[0, 1:]), hidden)
    got: Tensor = session.call(ids, upstream, len(table), None)
    return got[ids[0]]
