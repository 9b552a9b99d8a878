"""Values pass between the processes unchanged, and a forged message is an error, never code or a crash."""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any

import pytest
import torch
from safetensors.torch import save

from inlayer.learn.assertions import is_identical
from inlayer.learn.sandbox.protocol import DTYPES, ProtocolError, RemoteHandle, decode, encode

VALUES: list[Any] = [
    None, True, 0, -1, 2**200, -(2**64), 0.1, -0.0, math.inf, "", "naïve 🙂 \ud800 \0", b"\0\xff", [], (), {},
    [1, (2, [3.5])], {"a": 1, 2: "b", (3, 4): None}, torch.bfloat16,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_are_unchanged(value: Any) -> None:
    assert is_identical(decode(encode(value)), value)


def test_nan_is_unchanged() -> None:
    assert math.isnan(decode(encode(math.nan)))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("size", [(), (0,), (2, 0, 3), (3, 4)], ids=str)
def test_tensors_are_bit_equal(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    tensor = (torch.randn(size) * 3).to(dtype)
    assert is_identical(decode(encode(tensor)), tensor)
    transposed = tensor.transpose(0, -1) if tensor.dim() else tensor
    assert is_identical(decode(encode([transposed])), [transposed.contiguous()])  # whatever its strides


def test_views_of_the_same_memory_become_copies() -> None:
    tensor = torch.arange(6.0)
    one, other = decode(encode((tensor, tensor[2:])))
    one[2] = 99
    assert other[0] == 2


def test_requires_grad_is_kept() -> None:
    assert decode(encode(torch.ones(2, requires_grad=True))).requires_grad
    assert not decode(encode(torch.ones(2))).requires_grad


@pytest.mark.parametrize(
    "value",
    [object(), iter([]), 1j, {1}, 2**20_000, torch.ones(2, dtype=torch.complex64), torch.ones(2).to_sparse(),
     torch.ones(2, device="meta")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_unsendable_values_become_their_type_name(value: Any) -> None:
    assert isinstance(decode(encode(value)), RemoteHandle)


def test_handles() -> None:
    kept: list[Any] = []

    def keep(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    module = torch.nn.Linear(2, 2)
    message = encode({"made": module}, keep)
    assert decode(message) == {"made": RemoteHandle("Linear", 0)}
    assert decode(message, lambda handle: kept[handle.number])["made"] is module


def packed(tree: Any, rest: bytes = save({})) -> bytes:
    text = json.dumps(tree).encode()
    return struct.pack("<Q", len(text)) + text + rest


def deep(depth: int) -> Any:
    tree: Any = None
    for _ in range(depth):
        tree = [tree]
    return tree


BAD = {
    "nothing": b"",
    "a short length": b"\1\0",
    "a wrong length": struct.pack("<Q", 2**63) + b"null",
    "not JSON": struct.pack("<Q", 3) + b"{a}" + save({}),
    "a pickle": pickle.dumps([1, 2]),
    "an unknown kind": packed({"code": "print(1)"}),
    "a missing tensor": packed({"tensor": "7", "grad": False}),
    "tensors cut short": packed(None, save({"0": torch.ones(9)})[:-5]),
    "no tensors at all": packed(None, b""),
    "invalid hex": packed({"bytes": "zz"}),
    "an integer too large": struct.pack("<Q", 5_000) + b"1" * 5_000 + save({}),
    "invalid pairs": packed({"dict": [1, 2]}),
    "unhashable keys": packed({"dict": [[[], None]]}),
    "too deep": packed(deep(60)),
    "an invalid tuple": packed({"tuple": "many"}),
    "a tree too large": packed([{}] * 2_000_000),
    "a description of tensors too large": packed(None, struct.pack("<Q", 1 << 26) + b'{"0":{}}'),
}


@pytest.mark.parametrize("name", BAD)
def test_forged_messages_are_errors(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode(BAD[name])


def test_a_value_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="the limit is"):
        encode(["x" * (1 << 20)] * 4)


def test_values_nested_too_deep_become_their_type_name() -> None:
    value: list[Any] = []
    for _ in range(1000):
        value = [value]
    decoded = decode(encode(value))
    while isinstance(decoded, list):
        decoded = decoded[0]
    assert decoded == RemoteHandle("list")
