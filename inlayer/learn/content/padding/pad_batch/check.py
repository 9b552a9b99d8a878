"""Checks for the task "Pad a batch"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.errors import type_name
from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.ragged import Ragged

NAME = "pad_batch"
PARAMETERS = ("texts", "pad_id", "side")
FORBIDDEN = ("inlayer",)

PAD = 300  # random ids stay below it


def shape(session: GradingSession) -> None:
    """returns one row per text, as wide as the longest"""
    texts = draw(session)
    longest, shortest = max(map(len, texts)), min(map(len, texts))
    for got in both(session.call(texts, PAD)):
        if isinstance(got, Tensor) and got.shape == (len(texts), shortest):
            raise CheckFailed(
                "cut-to-shortest", f"the result is only {shortest} wide, like the shortest text: the others lose ids"
            )
        check_shape(got, (len(texts), longest), "B T")


def types(session: GradingSession) -> None:
    """returns int64 ids and a bool mask"""
    ids, mask = both(session.call(draw(session), PAD))
    check_dtype(ids, torch.int64)
    if mask.dtype != torch.bool:
        raise CheckFailed(
            "mask-not-bool", f"the mask is {mask.dtype}; it answers yes or no for every position, so make it bool"
        )


def values(session: GradingSession) -> None:
    """puts padding after the ids"""
    texts, pad_id = draw(session), session.random_int(PAD, 900)
    want, mask = Ragged.from_lists(texts).padded(pad_id)
    ids, _ = both(session.call(texts, pad_id))
    check_values(
        ids,
        want,
        mistakes={
            "fills-with-zero": (want.where(mask, 0), f"positions without a token contain 0; pad_id is {pad_id} here"),
            "other-side": (
                Ragged.from_lists(texts).padded(pad_id, "left")[0],
                'side "right" puts the padding after the text',
            ),
        },
        message="each row must contain the ids of its text followed by pad_id",
    )


def marked(session: GradingSession) -> None:
    """marks real tokens with True in the mask"""
    texts = draw(session)
    _, want = Ragged.from_lists(texts).padded(PAD)
    _, mask = both(session.call(texts, PAD))
    check_values(
        mask,
        want,
        mistakes={
            "mask-inverted": (~want, "the mask marks the padding; True must mean a real token"),
            "mask-all-true": (torch.ones_like(want), "the mask marks every position as real, including padding"),
        },
        message="the mask must be True exactly where a text has a token",
    )


def left(session: GradingSession) -> None:
    """side="left" puts the padding before the text"""
    texts = draw(session)
    want_ids, want_mask = Ragged.from_lists(texts).padded(PAD, "left")
    right_ids, right_mask = Ragged.from_lists(texts).padded(PAD)
    ids, mask = both(session.call(texts, PAD, side="left"))
    ignored = 'the side was "left", but the padding is still after the text'
    check_values(
        ids, want_ids, mistakes={"side-ignored": (right_ids, ignored)}, message='the ids are wrong with side="left"'
    )
    check_values(
        mask,
        want_mask,
        mistakes={"mask-not-moved": (right_mask, "the ids moved to the right end, but the mask did not")},
        message='the mask is wrong with side="left"',
    )


def real_padding_id(session: GradingSession) -> None:
    """treats a real token with the padding id as real"""
    texts = draw(session)
    for text in texts:
        text[session.random_int(0, len(text) - 1)] = PAD
    want_ids, want_mask = Ragged.from_lists(texts).padded(PAD)
    ids, mask = both(session.call(texts, PAD))
    check_values(ids, want_ids, message="the ids are wrong where a text contains pad_id itself")
    check_values(
        mask,
        want_mask,
        mistakes={
            "mask-from-ids": (
                want_ids != PAD,
                "a text contained pad_id itself, and the mask marks that token as padding; the mask must "
                "record where you added padding, not where an id has a certain value",
            )
        },
        message="the mask is wrong where a text contains pad_id itself",
    )


def empty(session: GradingSession) -> None:
    """keeps the row of a text without tokens"""
    texts = draw(session)
    texts.insert(session.random_int(0, len(texts)), [])
    nothing: list[list[int]] = [[], []]
    for batch in (texts, nothing):
        answer = session.try_call(batch, PAD)
        if answer.raised is not None:
            raise CheckFailed(
                "empty-text-raises", f"a text without tokens raised {answer.raised.type}: {answer.raised.message}"
            )
        want_ids, want_mask = Ragged.from_lists(batch).padded(PAD)
        ids, mask = both(answer.value)
        if isinstance(ids, Tensor) and len(ids) != len(batch):
            raise CheckFailed(
                "empty-text",
                f"{len(batch)} texts, one of them empty, became a batch of {len(ids)}; every text keeps its row",
            )
        check_shape(ids, tuple(want_ids.shape), "B T")
        check_shape(mask, tuple(want_ids.shape), "B T")
        check_values(ids, want_ids, message="the row of an empty text must be all padding")
        check_values(mask, want_mask, message="the mask of an empty text must be False everywhere")


def untouched(session: GradingSession) -> None:
    """does not modify the input lists"""
    texts = draw(session)
    for side in ("right", "left"):
        answer = session.try_call(texts, PAD, side=side)
        if answer.raised is None and answer.arguments[0] != texts:
            raise CheckFailed("texts-edited", f'a call with side="{side}" modified the input lists; create new ones')


CHECKS = (shape, types, values, marked, left, real_padding_id, empty, untouched)


def walk_output(session: GradingSession) -> Tensor:
    """Return the ids of the walk's sentence together with those of a shorter text."""
    _, walked = sample()
    ids, _ = both(session.call([walked[0].tolist(), [72, 105]], 6_142))
    return ids


def draw(session: GradingSession) -> list[list[int]]:
    """Return three to five texts of different lengths."""
    longest = session.random_int(4, 7)
    lengths = [
        longest,
        session.random_int(1, 2),
        *(session.random_int(1, longest - 1) for _ in range(session.random_int(1, 3))),
    ]
    order = torch.randperm(len(lengths), generator=session.generator).tolist()
    return [session.random_ids(PAD, (lengths[index],), low=1).tolist() for index in order]


def both(value: Any) -> tuple[Tensor, Tensor]:
    """Check that two tensors were returned."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise CheckFailed("two-tensors", "return two tensors, the ids and the mask, in this order")
    for part in value:
        if not isinstance(part, Tensor):
            raise CheckFailed("not-a-tensor", f"ids and mask must be tensors; one of them is {type_name(part)}")
    return value[0], value[1]
