"""Values cross between the processes unchanged, and a message that lies is an error, never code or a crash."""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any

import pytest
import torch
from safetensors.torch import save

from inlayer.learn.checks import is_identical
from inlayer.learn.sandbox.protocol import DTYPES, ProtocolError, RemoteHandle, Unsendable, decode, encode

VALUES: list[Any] = [
    None, True, 0, -1, 2**200, -(2**64), 0.1, -0.0, math.inf, "", "naïve 🙂 \ud800 \0", b"\0\xff", [], (), {},
    [1, (2, [3.5])], {"a": 1, 2: "b", (3, 4): None}, torch.bfloat16,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_come_back_as_they_are(value: Any) -> None:
    assert is_identical(decode(encode(value)), value)


def test_nan_comes_back() -> None:
    assert math.isnan(decode(encode(math.nan)))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("size", [(), (0,), (2, 0, 3), (3, 4)], ids=str)
def test_tensors_come_back_to_the_bit(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    tensor = (torch.randn(size) * 3).to(dtype)
    assert is_identical(decode(encode(tensor)), tensor)
    turned = tensor.transpose(0, -1) if tensor.dim() else tensor
    assert is_identical(decode(encode([turned])), [turned.contiguous()])  # however it lies in memory


def test_two_views_of_one_memory_arrive_as_two() -> None:
    tensor = torch.arange(6.0)
    one, other = decode(encode((tensor, tensor[2:])))
    one[2] = 99
    assert other[0] == 2


def test_whether_a_gradient_is_wanted_is_kept() -> None:
    assert decode(encode(torch.ones(2, requires_grad=True))).requires_grad
    assert not decode(encode(torch.ones(2))).requires_grad


@pytest.mark.parametrize(
    "value",
    [object(), iter([]), 1j, {1}, torch.ones(2, dtype=torch.complex64), torch.ones(2).to_sparse(),
     torch.ones(2, device="meta")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_place_is_told_by_its_type(value: Any) -> None:
    assert isinstance(decode(encode(value)), Unsendable)


def test_handles() -> None:
    kept: list[Any] = []

    def keep(value: Any) -> RemoteHandle:
        kept.append(value)
        return RemoteHandle(len(kept) - 1, type(value).__name__)

    module = torch.nn.Linear(2, 2)
    message = encode({"made": module}, keep)
    assert decode(message) == {"made": RemoteHandle(0, "Linear")}
    assert decode(message, lambda handle: kept[handle.number])["made"] is module


def packed(tree: Any, rest: bytes = save({})) -> bytes:
    text = json.dumps(tree).encode()
    return struct.pack("<Q", len(text)) + text + rest


def deep(depth: int) -> Any:
    tree: Any = None
    for _ in range(depth):
        tree = {"list": [tree]}
    return tree


BAD = {
    "nothing": b"",
    "a short length": b"\1\0",
    "a length that lies": struct.pack("<Q", 2**63) + b"null",
    "no JSON": struct.pack("<Q", 3) + b"{a}" + save({}),
    "a pickle": pickle.dumps([1, 2]),
    "an unknown kind": packed({"code": "print(1)"}),
    "a bare string": packed("text"),
    "a tensor that is not there": packed({"tensor": "7", "grad": False}),
    "tensors cut short": packed(None, save({"0": torch.ones(9)})[:-5]),
    "no tensors at all": packed(None, b""),
    "hex that is none": packed({"bytes": "zz"}),
    "an int that is none": packed({"int": "ten"}),
    "pairs that are none": packed({"dict": [1, 2]}),
    "keys that cannot be": packed({"dict": [[{"list": []}, None]]}),
    "too deep": packed(deep(60)),
    "a float that is none": packed({"float": "many"}),
    "a tree too large": packed([{}] * 2_000_000),
    "a description of tensors too large": packed(None, struct.pack("<Q", 1 << 26) + b'{"0":{}}'),
}


@pytest.mark.parametrize("name", BAD)
def test_forged_messages_are_errors(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode(BAD[name])


def test_a_value_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="the limit is"):
        encode([None] * 2_000_000)


def test_what_is_nested_too_deep_is_told_by_its_type() -> None:
    value: list[Any] = []
    for _ in range(1000):
        value = [value]
    decoded = decode(encode(value))
    while isinstance(decoded, list):
        decoded = decoded[0]
    assert decoded == Unsendable("list")
