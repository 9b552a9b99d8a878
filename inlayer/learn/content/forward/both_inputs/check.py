"""Checks of "Ids or vectors"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.checks import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CallResult, CheckFailed, GradingSession

NAME = "both_inputs"
PARAMETERS = ("weight", "input_ids", "inputs_embeds")


def ids_given(session: GradingSession) -> None:
    """ids are looked up"""
    table, ids, _ = drawn(session)
    hidden = answers(session.call(table, input_ids=ids))[0]
    (batch, length), width = ids.shape, table.shape[1]
    swapped = ((length, batch, width), "batch and length are swapped; the batch is the first axis")
    check_shape(hidden, (batch, length, width), "B T D", mistakes={"batch-second": swapped})
    check_values(hidden, table[ids], message="the hidden states are not the rows of the ids")


def vectors_given(session: GradingSession) -> None:
    """vectors are used as they are"""
    table, _, vectors = drawn(session)
    answer = session.try_call(table, inputs_embeds=vectors)
    if answer.raised is not None:
        raise CheckFailed("vectors-refused", f"vectors alone were given, and your code raised {answer.raised}")
    hidden = answers(answer.value)[0]
    looked_up = (*vectors.shape, table.shape[1])
    check_shape(
        hidden,
        tuple(vectors.shape),
        "B T D",
        mistakes={"vectors-looked-up": (looked_up, "vectors were looked up in the table; they are rows already")},
    )
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    mistakes = {
        "vectors-normalized": (unit, "the vectors were brought to length 1; they must stay as they are"),
        "vectors-multiplied": (vectors * 0.0, "the vectors were replaced by zeros; they must stay as they are"),
    }
    check_values(hidden, vectors, mistakes=mistakes, rule="vectors-changed", message="the vectors came out changed")


def sizes(session: GradingSession) -> None:
    """batch size and length of either input, as whole numbers"""
    table, ids, vectors = drawn(session)
    for given, shape in (({"input_ids": ids}, ids.shape), ({"inputs_embeds": vectors}, vectors.shape)):
        _, batch, length = answers(session.call(table, **given))
        for value in (batch, length):
            if not isinstance(value, int) or isinstance(value, bool):
                raise CheckFailed("sizes-not-ints", "batch size and length must be whole numbers, Python ints")
        if (batch, length) == tuple(shape[:2]):
            continue
        (name,) = given
        if (length, batch) == tuple(shape[:2]):
            raise CheckFailed(
                "sizes-swapped", f"batch size and length of {name} are changed over; the batch is the first axis"
            )
        if length == table.shape[1]:
            raise CheckFailed(
                "length-is-width", f"the length of {name} came out as D; the last axis is not the tokens for both"
            )
        if batch * length == shape[0] * shape[1] or batch == shape[0] * shape[1]:
            raise CheckFailed(
                "counted-together", f"the tokens of {name} were counted over all texts; B and T are two axes"
            )
        raise CheckFailed("sizes", f"batch size and length are not those of {name}")


def both_refused(session: GradingSession) -> None:
    """both together are a ValueError"""
    table, ids, vectors = drawn(session)
    answer = session.try_call(table, input_ids=ids, inputs_embeds=vectors)
    if answer.raised is None:
        raise CheckFailed(
            "accepts-both", "both inputs were given and one of them won silently; that must be a ValueError"
        )
    refused(answer, "both inputs")
    matching = session.try_call(table, input_ids=ids, inputs_embeds=table[ids])
    if matching.raised is None:
        raise CheckFailed(
            "accepts-equal", "both inputs were given, with the same meaning; even that must be a ValueError"
        )


def neither_refused(session: GradingSession) -> None:
    """neither of them is a ValueError"""
    table, _, _ = drawn(session)
    answer = session.try_call(table)
    if answer.raised is None:
        raise CheckFailed("accepts-neither", "no input was given and something came back; that must be a ValueError")
    if "ValueError" not in (answer.raised.type, *answer.raised.bases):
        raise CheckFailed(
            "neither-not-caught",
            f"no input was given; instead of a ValueError that says so, your code raised {answer.raised}",
        )


def no_special_case(session: GradingSession) -> None:
    """one token, and inputs full of zeros, are no special cases"""
    table, ids, vectors = drawn(session)
    hidden = answers(session.call(table, input_ids=ids[:1, :1].clamp(min=1)))[0]
    check_shape(hidden, (1, 1, table.shape[1]), "B T D", rule="single-token")
    zero = torch.zeros(1, 1, dtype=torch.int64)
    answer = session.try_call(table, input_ids=zero)
    if answer.raised is not None:
        raise CheckFailed("id-zero-missing", "a batch that holds the id 0 alone was taken for no input; ask `is None`")
    answer = session.try_call(table, input_ids=zero, inputs_embeds=vectors[:1, :1] * 0)
    if answer.raised is None:
        raise CheckFailed(
            "zeros-not-seen", "both inputs were given, both full of zeros, and were accepted; ask `is None`"
        )


def gradient(session: GradingSession) -> None:
    """gradients flow back, into the table or into the vectors"""
    table, ids, vectors = drawn(session)
    arriving = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, of=0, weight=arriving, item=0)
    if got is None:
        raise CheckFailed(
            "table-detached", "no gradient reaches the table: the hidden states of ids were cut off from it"
        )
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), arriving.flatten(0, 1))
    check_values(got, want, rule="gradient", message="the gradient of the table is not that of a lookup", atol=1e-5)
    arriving = session.random_normal(*vectors.shape)
    got = session.gradient(table, None, vectors, of=2, weight=arriving, item=0)
    if got is None:
        raise CheckFailed("vectors-detached", "no gradient reaches the given vectors: who made them could not learn")
    message = "the gradient of the vectors is not what arrives at the hidden states"
    check_values(got, arriving, rule="vectors-gradient", message=message, atol=1e-6)


CHECKS = (ids_given, vectors_given, sizes, both_refused, neither_refused, no_special_case, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """The learner's hidden states of "I love dogs" in the default sample."""
    table, ids = sample()
    hidden: Tensor = session.call(table, ids)[0]
    return hidden


def drawn(session: GradingSession) -> tuple[Tensor, Tensor, Tensor]:
    """A table, ids and vectors; B, T and D differ, and the vectors have another B and T than the ids."""
    rows, width = session.random_int(7, 12), session.random_int(9, 12)
    ids = session.random_ids(rows, (session.random_int(2, 3), session.random_int(4, 5)))
    return (
        session.random_normal(rows, width),
        ids,
        session.random_normal(session.random_int(2, 3), session.random_int(6, 8), width),
    )


def answers(got: Any) -> tuple[Any, Any, Any]:
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise CheckFailed("three-answers", "three answers are asked for: hidden states, batch size, length")
    hidden, batch, length = got
    return hidden, batch, length


def refused(answer: CallResult, what: str) -> None:
    raised = answer.raised
    if raised is not None and "ValueError" not in (raised.type, *raised.bases):
        raise CheckFailed("another-error", f"{what} raised {raised}; the task asks for a ValueError")
