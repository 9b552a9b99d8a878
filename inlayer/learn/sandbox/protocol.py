"""The protocol between grader and runner: plain values as JSON, tensors as safetensors.

session -> [protocol] -> runner -> [protocol] -> session
- a message consists of the length of its JSON, the JSON, and a safetensors file with the tensors it refers to
- a value that cannot be sent (a module, a generator, a complex tensor) stays in the runner and becomes a `RemoteHandle`
- messages from the runner are untrusted: their size and depth are limited, they are validated, and decoding never
  runs code
Tested, with forged messages, in tests/learn/test_protocol.py.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from inlayer.tensors import dtype_name

MAX_DEPTH = 24
MAX_TREE = 4 << 20  # bytes of JSON, and of the safetensors header; bounds time and memory
MAX_TENSORS = 64 << 20  # bytes of all tensors in a message
MAX_MESSAGE = MAX_TENSORS + 3 * MAX_TREE  # bytes that a runner may send; JSON and header may have MAX_TREE each
DTYPES = {dtype_name(dtype): dtype for dtype in (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)}  # fmt: skip
MAX_BITS = 10_000  # size of an integer: Python refuses to print much larger ones
LENGTH = struct.Struct("<Q")


class ProtocolError(Exception):
    """An invalid message."""


@dataclass(frozen=True)
class RemoteHandle:
    """A value that was not sent: the name of its type, and its number if the runner keeps it."""

    kind: str
    number: int = -1


def encode(value: Any, keep: Callable[[Any], int] = lambda _: -1) -> bytes:
    """Encode a value; `keep` stores an object that cannot be sent and returns its number."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_pack(value, tensors, keep, 0)).encode()
    if len(tree) > MAX_TREE:
        raise ProtocolError(f"values without tensors take {len(tree):,} bytes; the limit is {MAX_TREE:,}")
    if (size := sum(tensor.nbytes for tensor in tensors.values())) > MAX_TENSORS:
        raise ProtocolError(f"its tensors take {size:,} bytes; the limit is {MAX_TENSORS:,}")
    copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    saved = save(copies)
    if LENGTH.unpack_from(saved)[0] > MAX_TREE:
        raise ProtocolError(f"{len(tensors):,} tensors are too many")
    return LENGTH.pack(len(tree)) + tree + saved


def decode(message: bytes, find: Callable[[RemoteHandle], Any] = lambda handle: handle) -> Any:
    """Decode a message; `find` returns the object of a handle."""
    try:
        (size,) = LENGTH.unpack_from(message)
        (header,) = LENGTH.unpack_from(message, LENGTH.size + size)
        if size > MAX_TREE or header > MAX_TREE:
            raise ProtocolError(f"a tree of {size:,} bytes, {header:,} bytes about tensors; the limit is {MAX_TREE:,}")
        tree = json.loads(message[8 : 8 + size])
        return _unpack(tree, load(message[8 + size :]), find, 0)
    except (struct.error, ValueError, SafetensorError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"{type(error).__name__}: {error}") from None


def send(channel: socket.socket, message: bytes, wait: Callable[[], None] = lambda: None) -> None:
    """Send a message; `wait` is called after each part or channel timeout, and may raise."""
    remaining = memoryview(LENGTH.pack(len(message)) + message)
    while remaining:
        with suppress(TimeoutError):
            remaining = remaining[channel.send(remaining) :]
        wait()


def receive(channel: socket.socket, max_bytes: int, wait: Callable[[], None] = lambda: None) -> bytes:
    """Receive the next message; `wait` is called after each part or channel timeout, and may raise."""
    (size,) = LENGTH.unpack(_receive(channel, LENGTH.size, wait))
    if size > max_bytes:
        raise ProtocolError(f"a message of {size:,} bytes; the limit is {max_bytes:,}")
    return _receive(channel, size, wait)


def _receive(channel: socket.socket, size: int, wait: Callable[[], None]) -> bytes:
    received = bytearray()
    while len(received) < size:
        with suppress(TimeoutError):
            part = channel.recv(min(size - len(received), 1 << 20))
            if not part:
                raise EOFError
            received += part
        wait()
    return bytes(received)


def _pack(value: Any, tensors: dict[str, Tensor], keep: Callable[[Any], int], depth: int) -> Any:
    kind = type(value)  # not isinstance: a subclass could misbehave
    if value is None or kind in {bool, float, str} or (kind is int and value.bit_length() < MAX_BITS):
        return value
    if isinstance(value, RemoteHandle):
        return {"handle": value.number, "kind": value.kind}
    if depth > MAX_DEPTH:
        return {"handle": keep(value), "kind": kind.__name__}
    if kind in {list, tuple, torch.Size}:
        items = [_pack(item, tensors, keep, depth + 1) for item in value]
        return items if kind is list else {"tuple": items}
    if isinstance(value, dict):
        return {"dict": [[_pack(part, tensors, keep, depth + 1) for part in pair] for pair in value.items()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if isinstance(value, torch.dtype) and value in DTYPES.values():
        return {"dtype": dtype_name(value)}
    if not isinstance(value, Tensor):
        return {"handle": keep(value), "kind": kind.__name__}
    if value.dtype not in DTYPES.values() or value.layout != torch.strided or value.device.type != "cpu":
        return {"handle": keep(value), "kind": f"Tensor of {value.dtype}, {value.layout}, on {value.device.type}"}
    name = str(len(tensors))
    tensors[name] = value.detach()
    return {"tensor": name, "grad": bool(value.requires_grad)}


def _unpack(tree: Any, tensors: dict[str, Tensor], find: Callable[[RemoteHandle], Any], depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise ProtocolError("nested too deeply")
    inner = partial(_unpack, tensors=tensors, find=find, depth=depth + 1)
    match tree:
        case None | bool() | float() | int() | str():
            return tree
        case [*items]:
            return [inner(item) for item in items]
        case {"tuple": list(items)}:
            return tuple(inner(item) for item in items)
        case {"dict": list(pairs)}:
            return {inner(key): inner(value) for key, value in pairs}
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"dtype": str(name)}:
            return DTYPES[name]
        case {"tensor": str(name), "grad": bool(grad)}:
            tensor = tensors[name]
            return tensor.requires_grad_(grad) if grad and tensor.is_floating_point() else tensor
        case {"handle": int(number), "kind": str(kind)}:
            return find(RemoteHandle(kind[:80], number))
    raise ProtocolError("unknown kind of value")
