"""Checks for the task "Ids or vectors"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CallResult, CheckFailed, GradingSession

NAME = "both_inputs"
PARAMETERS = ("weight", "input_ids", "inputs_embeds")


def ids_given(session: GradingSession) -> None:
    """looks up ids"""
    table, ids, _ = drawn(session)
    hidden = answers(session.call(table, input_ids=ids))[0]
    (batch, length), width = ids.shape, table.shape[1]
    swapped = ((length, batch, width), "batch and length are swapped; the batch is the first axis")
    check_shape(hidden, (batch, length, width), "B T D", mistakes={"batch-second": swapped})
    check_values(hidden, table[ids], message="the hidden states are not the rows of the ids")


def vectors_given(session: GradingSession) -> None:
    """uses vectors as they are"""
    table, _, vectors = drawn(session)
    answer = session.try_call(table, inputs_embeds=vectors)
    if answer.raised is not None:
        raise CheckFailed("vectors-refused", f"the check passed only vectors, and your code raised {answer.raised}")
    hidden = answers(answer.value)[0]
    looked_up = (*vectors.shape, table.shape[1])
    check_shape(
        hidden,
        tuple(vectors.shape),
        "B T D",
        mistakes={"vectors-looked-up": (looked_up, "you looked up the vectors in the table; they are already rows")},
    )
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    mistakes = {
        "vectors-normalized": (unit, "you normalized the vectors; use them as they are"),
        "vectors-multiplied": (vectors * 0.0, "you replaced the vectors with zeros; use them as they are"),
    }
    check_values(hidden, vectors, mistakes=mistakes, rule="vectors-changed", message="the vectors came out changed")


def sizes(session: GradingSession) -> None:
    """returns the batch size and length of either input as integers"""
    table, ids, vectors = drawn(session)
    for given, shape in (({"input_ids": ids}, ids.shape), ({"inputs_embeds": vectors}, vectors.shape)):
        _, batch, length = answers(session.call(table, **given))
        for value in (batch, length):
            if not isinstance(value, int) or isinstance(value, bool):
                raise CheckFailed("sizes-not-ints", "batch size and length must be Python ints")
        if (batch, length) == tuple(shape[:2]):
            continue
        (name,) = given
        if (length, batch) == tuple(shape[:2]):
            raise CheckFailed(
                "sizes-swapped", f"batch size and length of {name} are swapped; the batch is the first axis"
            )
        if length == table.shape[1]:
            raise CheckFailed(
                "length-is-width",
                f"the length of {name} is reported as D; for vectors, the last axis is not the tokens",
            )
        if batch * length == shape[0] * shape[1] or batch == shape[0] * shape[1]:
            raise CheckFailed(
                "counted-together", f"you counted the tokens of {name} over all texts; B and T are separate axes"
            )
        raise CheckFailed("sizes", f"batch size and length do not match {name}")


def both_refused(session: GradingSession) -> None:
    """raises ValueError if both inputs are given"""
    table, ids, vectors = drawn(session)
    answer = session.try_call(table, input_ids=ids, inputs_embeds=vectors)
    if answer.raised is None:
        raise CheckFailed(
            "accepts-both",
            "the check passed both inputs, and your code ignored one of them; raise a ValueError",
        )
    refused(answer, "both inputs")
    matching = session.try_call(table, input_ids=ids, inputs_embeds=table[ids])
    if matching.raised is None:
        raise CheckFailed(
            "accepts-equal", "the check passed both inputs with the same meaning; raise a ValueError even then"
        )


def neither_refused(session: GradingSession) -> None:
    """raises ValueError if no input is given"""
    table, _, _ = drawn(session)
    answer = session.try_call(table)
    if answer.raised is None:
        raise CheckFailed(
            "accepts-neither", "the check passed no input, and your code returned something; raise a ValueError"
        )
    if "ValueError" not in (answer.raised.type, *answer.raised.bases):
        raise CheckFailed(
            "neither-not-caught",
            f"the check passed no input; instead of a clear ValueError, your code raised {answer.raised}",
        )


def no_special_case(session: GradingSession) -> None:
    """handles single tokens and inputs full of zeros"""
    table, ids, vectors = drawn(session)
    hidden = answers(session.call(table, input_ids=ids[:1, :1].clamp(min=1)))[0]
    check_shape(hidden, (1, 1, table.shape[1]), "B T D", rule="single-token")
    zero = torch.zeros(1, 1, dtype=torch.int64)
    answer = session.try_call(table, input_ids=zero)
    if answer.raised is not None:
        raise CheckFailed(
            "id-zero-missing", "you treated a batch that contains only id 0 as no input; test with `is None`"
        )
    answer = session.try_call(table, input_ids=zero, inputs_embeds=vectors[:1, :1] * 0)
    if answer.raised is None:
        raise CheckFailed(
            "zeros-not-seen", "you accepted two inputs because both are full of zeros; test with `is None`"
        )


def gradient(session: GradingSession) -> None:
    """lets gradients flow back into the table or the vectors"""
    table, ids, vectors = drawn(session)
    arriving = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, of=0, weight=arriving, item=0)
    if got is None:
        raise CheckFailed("table-detached", "no gradient reaches the table: the hidden states are detached from it")
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), arriving.flatten(0, 1))
    check_values(got, want, rule="gradient", message="the gradient of the table is not that of a lookup", atol=1e-5)
    arriving = session.random_normal(*vectors.shape)
    got = session.gradient(table, None, vectors, of=2, weight=arriving, item=0)
    if got is None:
        raise CheckFailed(
            "vectors-detached", "no gradient reaches the given vectors, so whatever produced them could not be trained"
        )
    message = "the gradient of the vectors must match the gradient of the hidden states"
    check_values(got, arriving, rule="vectors-gradient", message=message, atol=1e-6)


CHECKS = (ids_given, vectors_given, sizes, both_refused, neither_refused, no_special_case, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """Return the learner's hidden states for "I love dogs" in the default sample."""
    table, ids = sample()
    hidden: Tensor = session.call(table, ids)[0]
    return hidden


def drawn(session: GradingSession) -> tuple[Tensor, Tensor, Tensor]:
    """Return a table, ids, and vectors; B, T, and D all differ, and so do the sizes of ids and vectors."""
    rows, width = session.random_int(7, 12), session.random_int(9, 12)
    ids = session.random_ids(rows, (session.random_int(2, 3), session.random_int(4, 5)))
    return (
        session.random_normal(rows, width),
        ids,
        session.random_normal(session.random_int(2, 3), session.random_int(6, 8), width),
    )


def answers(got: Any) -> tuple[Any, Any, Any]:
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise CheckFailed("three-answers", "return three results: hidden states, batch size, length")
    hidden, batch, length = got
    return hidden, batch, length


def refused(answer: CallResult, situation: str) -> None:
    raised = answer.raised
    if raised is not None and "ValueError" not in (raised.type, *raised.bases):
        raise CheckFailed("another-error", f"{situation} raised {raised}; raise a ValueError")
