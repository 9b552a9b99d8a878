"""Comparisons name the rule that was broken and where, recognize known mistakes, and never reveal the answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inlayer.learn.assertions import check_dtype, check_equal, check_shape, check_values, draw_shapes
from inlayer.learn.session import CheckFailed


def failure(check: Any, *args: Any, **kwargs: Any) -> CheckFailed:
    with pytest.raises(CheckFailed) as failed:
        check(*args, **kwargs)
    return failed.value


def test_equal_values_pass() -> None:
    check_shape(torch.ones(2, 3), (2, 3), "T D")
    check_dtype(torch.ones(2), torch.float32)
    check_values(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    check_values(torch.tensor(1.0), torch.tensor(1.0 + 1e-7), atol=1e-6)
    for value in ([1, (2, "a")], {"a": [1.5]}, b"x", True, None):
        check_equal(value, value)


def test_shapes_are_drawn() -> None:
    assert draw_shapes((2, 10, 4), (2, 4, 10), "B T D") == (
        "            B   T   D\n expected   2  10   4\n    yours   2   4  10\n                ^   ^"
    )
    assert draw_shapes((3, 4), (3,), "T D").splitlines() == [
        "           T  D", " expected  3  4", "    yours  3  -", "              ^",
    ]  # fmt: skip
    assert "expected" in draw_shapes((), (1,), "")
    found = failure(
        check_shape, torch.ones(2, 5, 3), (2, 3, 5), "B T D", mistakes={"swapped": ((2, 5, 3), "T and D swapped")}
    )
    assert found.rule == "swapped"
    assert found.message.startswith("T and D swapped\n")
    assert failure(check_shape, torch.ones(1), (2,), "D", mistakes={"other": ((3,), "")}).rule == "shape"
    assert failure(check_shape, [1.0], (1,), "D").rule == "not-a-tensor"


def test_a_known_mistake_fails_by_its_own_rule() -> None:
    want = torch.tensor([1.0, 2.0])
    wrong = {"doubled": (2 * want, "twice as much"), "negative": (-want, "the sign")}
    assert failure(check_values, -want, want, mistakes=wrong).rule == "negative"
    other = failure(check_values, torch.tensor([1.0, 2.25]), want, mistakes=wrong, message="the sum")
    assert (other.rule, other.message) == ("values", "the sum: 1 of 2 numbers differ, the first at (1,)")
    assert failure(check_equal, [2, 1], [1, 2], mistakes={"turned": ([2, 1], "the wrong way round")}).rule == "turned"


def test_messages_never_contain_expected_values() -> None:
    secret = torch.tensor([0.12345, 0.54321])
    messages = failure(check_values, torch.zeros(2), secret).message + failure(check_equal, [0], [8765]).message
    messages += failure(check_equal, "no", "openly").message + failure(check_equal, {"a": 1}, {"a": 4321}).message
    for answer in ("12345", "54321", "8765", "openly", "4321"):
        assert answer not in messages


def test_types_must_match() -> None:
    assert failure(check_dtype, torch.ones(1), torch.float64).rule == "dtype"
    for got, want in ((True, 1), ((1,), [1]), (1, 1.0), (None, 0), ({"a": True}, {"a": 1})):
        assert failure(check_equal, got, want).rule in {"type", "values"}
    assert failure(check_values, torch.ones(2), torch.ones(3)).rule == "shape"
    assert failure(check_values, torch.tensor([1.0, float("inf")]), torch.ones(2)).rule == "not-finite"


def test_differences_of_containers_are_located() -> None:
    assert "item 1" in failure(check_equal, [1, 3], [1, 2]).message
    assert "must have 2 items, but it has 3" in failure(check_equal, [1, 2, 3], [1, 2]).message
    assert "the key 'b' is missing" in failure(check_equal, {"a": 1}, {"a": 1, "b": 2}).message
