"""Values between the two processes: plain Python as JSON, tensors as safetensors. Nothing that is read can run.

grader -> [wire] -> learner's process -> [wire] -> grader
- a message is the length of its JSON, the JSON, and a safetensors file of the tensors it names
- what has no place here (a generator, an open file, a complex tensor) is told by the name of its type: `Other`
- an object that stays where it is, such as a module, is a `Handle`
- what arrives is checked: it comes from a process that runs a stranger's code
Checked, with messages that lie, in tests/learn/test_protocol.py.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

__all__ = ["Handle", "Other", "WireError", "decode", "encode", "receive", "send"]

DEPTH = 24
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)}  # fmt: skip
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


LENGTH = struct.Struct("<Q")


class WireError(Exception):
    """A message that is none."""


@dataclass(frozen=True)
class Handle:
    """An object of the learner's process, by its number."""

    number: int
    kind: str


@dataclass(frozen=True)
class Other:
    """A value that cannot be sent, by its type."""

    kind: str


def encode(value: Any, keep: Callable[[Any], Handle | None] | None = None) -> bytes:
    """A message; `keep` gives a handle for what is better left where it is."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_pack(value, tensors, keep, 0)).encode()
    return LENGTH.pack(len(tree)) + tree + save(tensors)


def decode(message: bytes, find: Callable[[Handle], Any] | None = None) -> Any:
    """The value of a message; `find` gives the object of a handle."""
    try:
        (size,) = LENGTH.unpack_from(message)
        tree = json.loads(message[8 : 8 + size])
        tensors = load(bytes(message[8 + size :]))
        return _unpack(tree, tensors, find or (lambda handle: handle), 0)
    except (struct.error, ValueError, SafetensorError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise WireError(f"{type(error).__name__}: {error}") from None


def send(channel: socket.socket, message: bytes, wait: Callable[[], None] | None = None) -> None:
    """Send a message; with a timeout on the channel, `wait` is called whenever it passes, and may raise."""
    left = memoryview(LENGTH.pack(len(message)) + message)
    while left:
        with suppress(TimeoutError):
            left = left[channel.send(left) :]
        if wait is not None:
            wait()


def receive(channel: socket.socket, most: int, wait: Callable[[], None] | None = None) -> bytes:
    """The next message, however slowly it comes: `wait` is called with every piece of it, and may raise."""
    (size,) = LENGTH.unpack(_receive(channel, LENGTH.size, wait))
    if size > most:
        raise WireError(f"a message of {size:,} bytes")
    return _receive(channel, size, wait)


def _receive(channel: socket.socket, size: int, wait: Callable[[], None] | None) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = None
        with suppress(TimeoutError):
            piece = channel.recv(min(size - len(got), 1 << 20))
        if wait is not None:
            wait()
        if piece == b"":
            raise EOFError
        got += piece or b""
    return bytes(got)


def _pack(value: Any, tensors: dict[str, Tensor], keep: Callable[[Any], Handle | None] | None, depth: int) -> Any:
    if depth > DEPTH:
        return {"other": type(value).__name__}
    kind = type(value)  # not isinstance: a subclass may lie about itself
    if value is None or kind in {bool, str}:
        return value if kind is not str else {"str": value.encode("utf-8", "surrogatepass").hex()}
    if kind is int:
        return {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind in {list, tuple, torch.Size}:
        name = "list" if kind is list else "tuple"
        return {name: [_pack(item, tensors, keep, depth + 1) for item in value]}
    if isinstance(value, dict):
        pairs = [[_pack(part, tensors, keep, depth + 1) for part in pair] for pair in value.items()]
        return {"dict": pairs}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, (Handle, Other)):
        return {"handle": value.number, "kind": value.kind} if isinstance(value, Handle) else {"other": value.kind}
    if isinstance(value, Tensor):
        if value.dtype not in DTYPES.values() or value.layout != torch.strided or value.device.type != "cpu":
            return {"other": f"Tensor of {value.dtype}, {value.layout}, on {value.device.type}"}
        name = str(len(tensors))
        tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "grad": bool(value.requires_grad)}
    handle = keep(value) if keep is not None else None
    return {"handle": handle.number, "kind": handle.kind} if handle is not None else {"other": kind.__name__}


def _unpack(  # noqa: PLR0912  # one branch for each kind of value
    tree: Any, tensors: dict[str, Tensor], find: Callable[[Handle], Any], depth: int
) -> Any:
    if depth > DEPTH + 1:
        raise WireError("nested too deep")
    if tree is None or isinstance(tree, (bool, float, int)):
        return tree
    if not isinstance(tree, dict):
        raise WireError("no such value")
    match tree:
        case {"str": str(text)}:
            return bytes.fromhex(text).decode("utf-8", "surrogatepass")
        case {"int": str(digits)}:
            return int(digits, 16)
        case {"float": str(name)}:
            return FLOATS[name]
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"list": list(items)}:
            return [_unpack(item, tensors, find, depth + 1) for item in items]
        case {"tuple": list(items)}:
            return tuple(_unpack(item, tensors, find, depth + 1) for item in items)
        case {"dict": list(pairs)}:
            return {
                _unpack(key, tensors, find, depth + 1): _unpack(value, tensors, find, depth + 1) for key, value in pairs
            }
        case {"dtype": str(name)}:
            return DTYPES.get(name, Other(f"dtype {name[:40]}"))
        case {"tensor": str(name), "grad": bool(grad)}:
            found = tensors[name]
            return found.requires_grad_(grad) if grad and found.is_floating_point() else found
        case {"handle": int(number), "kind": str(kind)}:
            return find(Handle(number, kind[:80]))
        case {"other": str(kind)}:
            return Other(kind[:80])
    raise WireError("no such value")
