"""Checks for the task "Add learned positions"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.render.numbers import pluralize

NAME = "learned_positions"
PARAMETERS = ("token_table", "position_table", "ids")

CLOSE = 1e-5


def shape(session: GradingSession) -> None:
    """returns one vector per token, as wide as a row"""
    tokens, positions, ids = draw(session)
    batch, length = ids.shape
    width = tokens.shape[1]
    check_shape(
        session.call(tokens, positions, ids),
        (batch, length, width),
        "B T D",
        mistakes={"joined": ((batch, length, 2 * width), "the two rows are concatenated; add them")},
    )


def untouched(session: GradingSession) -> None:
    """does not modify the tables"""
    tokens, positions, ids = draw(session)
    answer = session.try_call(tokens, positions, ids)
    if answer.raised is not None:
        raise CheckFailed("raises", f"your code raised {answer.raised}")
    for name, before, after in zip(("token", "position"), (tokens, positions), answer.tensor_arguments, strict=False):
        if not torch.equal(before, after):
            raise CheckFailed("table-edited", f"the {name} table changed during the call: your code wrote to its rows")


def values(session: GradingSession) -> None:
    """adds the position's row to the token's row"""
    tokens, positions, ids = draw(session)
    batch, length = ids.shape
    rows, added = tokens[ids], positions[:length]
    first = rows.clone()
    first[0] += added
    check_values(
        session.call(tokens, positions, ids),
        rows + added,
        mistakes={
            "no-positions": (rows, "these are the token rows alone: the position of a token has no effect"),
            "starts-at-one": (rows + positions[1 : length + 1], "the first token gets row 1; positions start at 0"),
            "wrong-axis": (
                rows + positions[:batch, None],
                "all tokens of a text get the same position row: you counted the texts of the batch, not the tokens",
            ),
            "first-text-only": (first, "only the first text of the batch got its positions"),
            "multiplied": (rows * added, "you multiplied the two rows; add them"),
            "positions-by-id": (
                rows + positions[ids % len(positions)],
                "you selected the position row by the token's id; select it by the token's position",
            ),
        },
        message="the values are not the token row plus the position row",
        atol=CLOSE,
    )


def worked_example(session: GradingSession) -> None:
    """reproduces the worked example of the lesson ("Hi")"""
    tokens, positions = session.random_normal(256, 4), session.random_normal(8, 4)
    tokens[72], tokens[105] = torch.tensor([[0.89, -0.45, 0.23, 0.34], [0.33, 0.77, -0.11, 0.22]])
    positions[0], positions[1] = torch.tensor([[0.22, -0.11, 0.44, -0.66], [0.77, 0.33, -0.88, 0.12]])
    want = torch.tensor([[[1.11, -0.56, 0.67, -0.32], [1.10, 1.10, -0.99, 0.34]]])
    got = session.call(tokens, positions, torch.tensor([[72, 105]]))
    check_values(
        got, want, rule="worked-example", message='the result for "Hi" is not what the lesson shows', atol=CLOSE
    )


def gradient(session: GradingSession) -> None:
    """lets the gradient reach both tables"""
    tokens, positions, ids = draw(session)
    weight = session.random_normal(*ids.shape, tokens.shape[1])
    for of, name in enumerate(("token", "position")):
        got = session.gradient(tokens, positions, ids, of=of, weight=weight)
        if got is None:
            raise CheckFailed("no-gradient", f"no gradient reaches the {name} table, so it could not be trained")
        want = torch.zeros_like(tokens if of == 0 else positions)
        if of == 0:
            want.index_add_(0, ids.flatten(), weight.flatten(0, 1))
        else:
            want[: ids.shape[1]] = weight.sum(0)
        message = f"the gradient of the {name} table does not match what its rows contributed"
        check_values(got, want, rule="gradient", message=message, atol=1e-4)


def full_length(session: GradingSession) -> None:
    """accepts a text of exactly block_size tokens"""
    tokens, positions, ids = draw(session, full=True)
    answer = session.try_call(tokens, positions, ids)
    if answer.raised is not None:
        raise CheckFailed(
            "full-length-refused",
            f"the text has {len(positions)} tokens and there are {len(positions)} positions, 0 to "
            f"{len(positions) - 1}; that fits, but your code raised {answer.raised}",
        )
    check_values(
        answer.value, tokens[ids] + positions, message="the values are wrong for a text of full length", atol=CLOSE
    )


def past_the_end(session: GradingSession) -> None:
    """raises a ValueError that names both numbers for a longer text"""
    tokens, width = session.random_normal(20, 3), 3
    for block_size in (session.random_int(11, 15), 1):  # a single row would broadcast over any length
        length = block_size + session.random_int(16, 40)
        positions, ids = session.random_normal(block_size, width), session.random_ids(20, (2, length))
        answer = session.try_call(tokens, positions, ids)
        situation = f"the text has {length} tokens, but the table has {pluralize(block_size, 'position')}"
        if answer.raised is None:
            got = answer.value
            if isinstance(got, Tensor) and got.shape == (2, block_size, width):
                raise CheckFailed(
                    "cut-short", f"{situation}, and your code silently dropped the tokens without a position"
                )
            around = tokens[ids] + positions[torch.arange(length) % block_size]
            if isinstance(got, Tensor) and got.shape == around.shape and torch.allclose(got, around, atol=CLOSE):
                raise CheckFailed("wraps-around", f"{situation}, and your code silently starts again at position 0")
            raise CheckFailed("past-block-size", f"{situation}; raise a ValueError instead of returning a result")
        if "ValueError" not in answer.raised.bases:
            raise CheckFailed("past-block-size", f"{situation}; raise a ValueError, not {answer.raised.type}")
        if not all(str(number) in answer.raised.message for number in (length, block_size)):
            raise CheckFailed(
                "sizes-not-named",
                f"{situation}; the message of the ValueError must contain both numbers, because its reader needs them",
            )


CHECKS = (shape, untouched, values, worked_example, gradient, full_length, past_the_end)


def walk_output(session: GradingSession) -> Tensor:
    """Return hidden states for the walk's sentence; the sample adds no positions, so the position table is zero."""
    table, ids = sample()
    got: Tensor = session.call(table, torch.zeros(8, table.shape[1]), ids)
    return got


def draw(session: GradingSession, *, full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return a token table, a position table, and ids; every id occurs once in the batch, so any edit shows."""
    batch, length, width = session.random_int(2, 4), session.random_int(5, 7), session.random_int(8, 10)
    block_size = length if full else session.random_int(length + 1, length + 4)
    ids = torch.randperm(50, generator=session.generator)[: batch * length].reshape(batch, length)
    return session.random_normal(50, width), session.random_normal(block_size, width), ids
