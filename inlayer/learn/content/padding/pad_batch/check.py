"""Checks of "Pad a batch"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.ragged import Ragged

NAME = "pad_batch"
PARAMETERS = ("texts", "pad_id", "side")
FORBIDDEN_NAMES = ("inlayer",)

PAD = 300  # the texts that are drawn stay below it


def shape(session: GradingSession) -> None:
    """as many rows as texts, as wide as the longest"""
    texts = draw(session)
    longest, shortest = max(map(len, texts)), min(map(len, texts))
    for got in both(session.call(texts, PAD)):
        if isinstance(got, Tensor) and got.shape == (len(texts), shortest):
            raise CheckFailed(
                "cut-to-shortest", f"the rectangle is {shortest} wide, as the shortest text: ids of the others are lost"
            )
        check_shape(got, (len(texts), longest), "B T")


def types(session: GradingSession) -> None:
    """ids are int64, the mask is bool"""
    ids, mask = both(session.call(draw(session), PAD))
    check_dtype(ids, torch.int64)
    if mask.dtype != torch.bool:
        raise CheckFailed(
            "mask-not-bool", f"the mask is {mask.dtype}: it says yes or no for every place, so it is bool"
        )


def values(session: GradingSession) -> None:
    """the ids, and padding after them"""
    texts, pad_id = draw(session), session.random_int(PAD, 900)
    want, mask = Ragged.from_lists(texts).padded(pad_id)
    ids, _ = both(session.call(texts, pad_id))
    check_values(
        ids,
        want,
        mistakes={
            "fills-with-zero": (want.where(mask, 0), f"places without a token hold 0; pad_id is {pad_id} here"),
            "other-side": (
                Ragged.from_lists(texts).padded(pad_id, "left")[0],
                'side "right" puts padding after a text',
            ),
        },
        message="the ids are not each text's own followed by pad_id",
    )


def marked(session: GradingSession) -> None:
    """the mask is True where a token is real"""
    texts = draw(session)
    _, want = Ragged.from_lists(texts).padded(PAD)
    _, mask = both(session.call(texts, PAD))
    check_values(
        mask,
        want,
        mistakes={
            "mask-inverted": (~want, "the mask marks the padding; True means that a token is real"),
            "mask-all-true": (torch.ones_like(want), "the mask calls every place real, the padding too"),
        },
        message="the mask is not True exactly where a text has a token",
    )


def left(session: GradingSession) -> None:
    """side="left" puts the padding before the text"""
    texts = draw(session)
    want_ids, want_mask = Ragged.from_lists(texts).padded(PAD, "left")
    right_ids, right_mask = Ragged.from_lists(texts).padded(PAD)
    ids, mask = both(session.call(texts, PAD, side="left"))
    ignored = 'side="left" was asked for, and padding still stands after the text'
    check_values(
        ids, want_ids, mistakes={"side-ignored": (right_ids, ignored)}, message='the ids with side="left" differ'
    )
    check_values(
        mask,
        want_mask,
        mistakes={"mask-not-moved": (right_mask, "the ids moved to the right end, the mask did not")},
        message='the mask with side="left" differs',
    )


def real_padding_id(session: GradingSession) -> None:
    """a real token may have the padding's id"""
    texts = draw(session)
    for text in texts:
        text[session.random_int(0, len(text) - 1)] = PAD
    want_ids, want_mask = Ragged.from_lists(texts).padded(PAD)
    ids, mask = both(session.call(texts, PAD))
    check_values(ids, want_ids, message="the ids differ where a text holds pad_id itself")
    check_values(
        mask,
        want_mask,
        mistakes={
            "mask-from-ids": (
                want_ids != PAD,
                "a text held the number pad_id itself, and the mask calls that token padding; "
                "the mask says where you put padding, not where an id has a certain value",
            )
        },
        message="the mask differs where a text holds pad_id itself",
    )


def empty(session: GradingSession) -> None:
    """a text without tokens keeps its row"""
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
                f"{len(batch)} texts, one without tokens, became {len(ids)} rows; every text keeps its row",
            )
        check_shape(ids, tuple(want_ids.shape), "B T")
        check_shape(mask, tuple(want_ids.shape), "B T")
        check_values(ids, want_ids, message="the row of a text without tokens is not nothing but padding")
        check_values(mask, want_mask, message="the mask of a text without tokens is not False everywhere")


def untouched(session: GradingSession) -> None:
    """the caller's lists stay as they are"""
    texts = draw(session)
    for side in ("right", "left"):
        answer = session.try_call(texts, PAD, side=side, return_arguments=True)
        if answer.raised is None and answer.arguments[0] != texts:
            raise CheckFailed(
                "texts-edited", f'after a call with side="{side}" the lists that were given are others: make new ones'
            )


CHECKS = (shape, types, values, marked, left, real_padding_id, empty, untouched)


def walk_output(session: GradingSession) -> Tensor:
    """The ids of the walk's sentence, beside those of a shorter text."""
    _, walked = sample()
    ids, _ = both(session.call([walked[0].tolist(), [72, 105]], 6_142))
    return ids


def draw(session: GradingSession) -> list[list[int]]:
    """Three to five texts, of different lengths."""
    longest = session.random_int(4, 7)
    lengths = [
        longest,
        session.random_int(1, 2),
        *(session.random_int(1, longest - 1) for _ in range(session.random_int(1, 3))),
    ]
    order = torch.randperm(len(lengths), generator=session.generator).tolist()
    return [session.random_ids(PAD, (lengths[place],), low=1).tolist() for place in order]


def both(value: Any) -> tuple[Tensor, Tensor]:
    """The two tensors that are asked for."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise CheckFailed("two-tensors", "two tensors are to be returned, ids and mask, in this order")
    for one in value:
        if not isinstance(one, Tensor):
            raise CheckFailed("not-a-tensor", f"ids and mask are tensors; one of them is a {type(one).__name__}")
    return value[0], value[1]
