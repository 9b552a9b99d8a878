"""Checks for the task "A head that reads the table"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, RemoteObject

NAME = "TiedModel"
PARAMETERS = ("vocab_size", "n_embd")


def table_of(model: RemoteObject) -> Tensor:
    weight = model.attribute("table.weight")
    if not isinstance(weight, Tensor):
        raise CheckFailed("missing", "self.table must be an nn.Embedding, with its rows in .weight")
    return weight


def logits_of(table: Tensor, ids: Tensor) -> Tensor:
    return table[ids] @ table.T


def check_transposed(session: GradingSession) -> None:
    """Detect a product from the wrong side; it has a valid shape only if V = D, so test it there."""
    size = session.random_int(4, 6)
    model = session.construct(size, size)
    ids = session.random_ids(size, (2, 3))
    table = table_of(model)
    answer = model.try_call(ids)
    fits = isinstance(answer.value, Tensor) and answer.value.shape == (2, 3, size)
    if fits and torch.allclose(answer.value, table[ids] @ table, atol=1e-5):
        raise CheckFailed("not-transposed", "multiply the hidden states by the table's rows, not by its channels")


def shape(session: GradingSession) -> None:
    """returns one logit per row of the table"""
    check_transposed(session)
    batch, tokens, rows, width = (
        session.random_int(2, 3),
        session.random_int(4, 5),
        session.random_int(9, 12),
        session.random_int(6, 8),
    )
    model = session.construct(rows, width)
    got = model.call(session.random_ids(rows, (batch, tokens)))
    own_only = "each hidden state is compared with only some of the rows; return a logit for every row of the table"
    check_shape(
        got,
        (batch, tokens, rows),
        "B T V",
        mistakes={
            "no-head": ((batch, tokens, width), "these are hidden states; multiply them by the rows"),
            "rows-of-text": ((batch, tokens, tokens), own_only),
        },
    )


def values(session: GradingSession) -> None:
    """computes logits as dot products with the rows"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    ids, table = session.random_ids(rows, (2, 4)), table_of(model)
    want = logits_of(table, ids)
    hidden = table[ids]
    check_values(
        model.call(ids),
        want,
        mistakes={
            "softmax": (want.softmax(-1), "these are probabilities; return the dot products themselves"),
            "log-softmax": (
                want.log_softmax(-1),
                "these are log probabilities; return the dot products themselves",
            ),
            "scaled": (
                want / width**0.5,
                "you divided the products by the square root of the width; do not scale them",
            ),
            "cosines": (
                torch.nn.functional.normalize(hidden, dim=-1) @ torch.nn.functional.normalize(table, dim=-1).T,
                "these are cosine similarities: the norms of the rows are lost",
            ),
        },
        rule="untied",
        message="the logits are not products with the rows of self.table: the head reads other values",
        atol=1e-4,
    )


def one_table(session: GradingSession) -> None:
    """has a single table, counted and stored once"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    counted = sum(tensor.numel() for tensor in model.tensors("parameters").values())
    if counted != rows * width:
        raise CheckFailed(
            "counted-twice",
            f"the model has {counted} parameters; a tied model has only V times D, so the head owns a copy",
        )
    stored = model.tensors("state_dict")
    if sum(tensor.numel() for tensor in stored.values()) != rows * width:
        raise CheckFailed(
            "stored-twice",
            f"the state dict lists the rows more than once: {', '.join(stored)}; a file would contain them twice",
        )


def gradient(session: GradingSession) -> None:
    """trains the table from both ends"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    ids, table = session.random_ids(rows, (2, 4)), table_of(model).detach()
    weight = session.random_normal(2, 4, rows)
    from_head = weight.flatten(0, 1).T @ table[ids].flatten(0, 1)
    from_lookup = torch.zeros_like(table).index_add_(0, ids.flatten(), (weight @ table).flatten(0, 1))
    found = [gradient for gradient in model.gradients(ids, weight=weight).values() if gradient is not None]
    if len(found) != 1:
        raise CheckFailed("no-gradient", "no gradient reaches the table")
    check_values(
        found[0],
        from_head + from_lookup,
        mistakes={
            "head-detached": (from_lookup, "only the lookup trains the table; the head's gradient is cut off"),
            "lookup-detached": (from_head, "only the head trains the table; the lookup's gradient is cut off"),
        },
        rule="gradient",
        message="the gradient of the table is not the sum of both parts",
        atol=1e-4,
        rtol=1e-4,
    )


def loading(session: GradingSession) -> None:
    """uses loaded rows at both ends"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    new = session.random_normal(rows, width)
    model.method("load_state_dict", dict.fromkeys(model.tensors("state_dict"), new))
    ids = session.random_ids(rows, (2, 4))
    check_values(
        model.call(ids),
        logits_of(new, ids),
        rule="copied",
        message="after load_state_dict the head still reads the old rows: it has a copy of them",
        atol=1e-4,
    )


def replacing(session: GradingSession) -> None:
    """follows when the table is replaced"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    grown = session.random_normal(rows + session.random_int(2, 4), width)
    model.method("replace_table", grown)
    if not torch.equal(table_of(model), grown):
        raise CheckFailed("replace-changed", "replace_table no longer installs the given rows in self.table")
    ids = session.random_ids(len(grown), (2, 4))
    answer = model.try_call(ids)
    want = logits_of(grown, ids)
    if answer.raised is not None or not isinstance(answer.value, Tensor) or answer.value.shape != want.shape:
        raise CheckFailed(
            "tied-by-tensor",
            "after replace_table the head reads the old rows: it is tied to a tensor, not to the module that owns it",
        )
    check_values(
        answer.value,
        want,
        rule="replaced",
        message="after replace_table the logits are not those of the new rows",
        atol=1e-4,
    )


def assigning(session: GradingSession) -> None:
    """follows when the table's parameter is replaced from outside"""
    rows, width = session.random_int(7, 10), session.random_int(3, 5)
    model = session.construct(rows, width)
    new, ids = session.random_normal(rows, width), session.random_ids(rows, (2, 4))
    model.method(
        "load_state_dict", dict.fromkeys(model.tensors("state_dict"), new), assign=True
    )  # replaces parameters, not values
    check_values(
        model.call(ids),
        logits_of(new, ids),
        rule="tied-again",
        message=(
            "after a load that installs another parameter, the head still reads the old one; tying again in "
            "replace_table is not enough"
        ),
        atol=1e-4,
    )


CHECKS = (shape, values, one_table, gradient, loading, replacing, assigning)
