"""Parses the pickle in a legacy PyTorch file as data, to find the tensors it describes. It is never executed.

[file] -> header -> tables, checkpoint
- a pickle is a program. A state dict needs about thirty of its opcodes and a handful of names, which are interpreted as
  plain values. Any other name or opcode is an error
- `torch.load(weights_only=True)` also rejects functions that are not on its allowlist, but it trusts sizes and keys: a
  tiny file made it allocate 986 MB, and another took 9 seconds, with every additional byte doubling the time
  (docs/decisions.md)
- a tensor is a view: a storage, an offset, a shape, and strides. All four are checked against each other
Tested against torch.load and with malicious pickles in tests/checkpoint/test_pytorch.py.
"""

from __future__ import annotations

import math
import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

from inlayer.errors import InlayerError
from inlayer.files import printable
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.safetensors import BITS, MAX_AXES, MAX_SIZE
from inlayer.formats.tensor_info import unreadable_file_error

MAX_PICKLE = 1 << 20  # bytes; a tensor needs about 200

UNTYPED = "torch.storage UntypedStorage"
STORAGES = {
    "torch DoubleStorage": "F64", "torch FloatStorage": "F32", "torch HalfStorage": "F16",
    "torch BFloat16Storage": "BF16", "torch LongStorage": "I64", "torch IntStorage": "I32",
    "torch ShortStorage": "I16", "torch CharStorage": "I8", "torch ByteStorage": "U8", "torch BoolStorage": "BOOL",
    "torch ComplexFloatStorage": "C64", UNTYPED: "U8",
}  # fmt: skip
# Newer dtypes have no storage class: the storage contains bytes, and the tensor specifies the dtype.
DTYPE_NAMES = {f"torch {dtype.name}": name for name, dtype in SAFETENSORS_DTYPES.items()}
ORDERED_DICT, PARAMETER = "collections OrderedDict", "torch._utils _rebuild_parameter"
TENSORS = {"torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2"}
TENSOR_WITH_DTYPE = "torch._utils _rebuild_tensor_v3"
NAMES = {*STORAGES, *DTYPE_NAMES, ORDERED_DICT, PARAMETER, *TENSORS, TENSOR_WITH_DTYPE}

file_error = partial(unreadable_file_error, "PyTorch")
DAMAGE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, struct.error)  # raised by malformed opcodes


class GlobalName(str):
    """The name of a function or class in a pickle: one of NAMES, never the object itself."""


@dataclass(frozen=True)
class Storage:
    """A run of values in the file. Tensors are views of it."""

    key: str
    dtype: str  # as in safetensors
    length: int  # number of values
    typed: bool = True

    @property
    def nbytes(self) -> int:
        return self.length * BITS[self.dtype] // 8


@dataclass(frozen=True)
class TensorView:
    """A tensor as a view of a storage. Strides and offset count values of the tensor's dtype, not bytes."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """True if its values are stored row by row without gaps."""
        return 0 in self.shape or all(
            size == 1 or stride == math.prod(self.shape[axis + 1 :])
            for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True))
        )


def find_views(value: object, source: str) -> dict[str, TensorView]:
    """Return the tensors of a state dict by name, even if a trainer has put it under "state_dict" or "model"."""
    parts = [value, value.get("state_dict"), value.get("model")] if isinstance(value, dict) else []
    for part in parts:
        if isinstance(part, dict):
            found = ((name, view) for name, view in part.items() if isinstance(name, str))
            views = {name: view for name, view in found if isinstance(view, TensorView)}
            if views:
                return views
    raise file_error(source, "it has no named tensors; a checkpoint is a saved state_dict()")


def read_pickle(stream: BytesIO, source: str) -> tuple[Any, dict[str, Storage]]:
    """Return the value of a pickle (dicts, lists, plain values, and a TensorView per tensor), and its storages."""
    machine = PickleMachine(source)
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "STOP":
                return machine.stack.pop(), machine.storages
            machine.step(opcode, argument)
        raise ValueError("it does not end with a STOP opcode")
    except InlayerError:
        raise
    except DAMAGE_ERRORS as error:
        raise file_error(source, f"its pickle is damaged ({printable(str(error))[:80]})") from None


class PickleMachine:
    """A stack, a memo, and the opcodes a state dict needs."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        if opcode.name == "MARK":
            self.marks.append(len(self.stack))
        elif opcode.name in {"BINPUT", "LONG_BINPUT"}:
            self.memo[argument] = self.stack[-1]
        elif opcode.name in OPERATIONS:
            operands = self.pop_operands(opcode.stack_before)
            self.stack.append(OPERATIONS[opcode.name](self, argument, *operands))
        elif opcode.name != "PROTO":
            raise file_error(
                self.source, f"its pickle uses {opcode.name}, which a plain state dict does not need; not executed"
            )

    def pop_operands(self, kinds: list[pickletools.StackObject]) -> list[Any]:
        """Remove operands of these kinds from the stack; with a mark, also all values above it."""
        marked = pickletools.markobject in kinds
        start = self.marks.pop() - kinds.index(pickletools.markobject) if marked else len(self.stack) - len(kinds)
        if start < 0:
            raise ValueError("its stack is empty")
        operands = self.stack[start:]
        del self.stack[start:]
        return operands

    def set_items(self, _: None, target: Any, *items: Any) -> Any:
        # Only these types: a nested tuple can take hours to hash.
        if not isinstance(target, dict) or not all(type(key) in (str, int) for key in items[::2]):
            raise ValueError("it sets items of something other than a dict with names")
        target.update(zip(items[::2], items[1::2], strict=True))
        return target

    def append(self, _: None, target: Any, *items: Any) -> Any:
        if not isinstance(target, list):
            raise ValueError("it appends to something other than a list")
        target.extend(items)
        return target

    def look_up(self, name: str) -> GlobalName:
        if name not in NAMES:
            named = printable(name.replace(" ", ".", 1)[:80])
            raise file_error(self.source, f"its pickle names {named}, which a plain tensor does not need; not executed")
        return GlobalName(name)

    def call(self, _: None, function: Any, arguments: Any) -> Any:
        name = function if isinstance(function, GlobalName) else ""
        if name == ORDERED_DICT and arguments == ():
            return {}
        if name == PARAMETER and isinstance(arguments[0], TensorView):
            return arguments[0]
        if name in TENSORS:
            return self.check_view(arguments)
        if name == TENSOR_WITH_DTYPE and isinstance(arguments[6], GlobalName):
            return self.check_view(arguments, DTYPE_NAMES[arguments[6]])
        raise file_error(self.source, "its pickle calls a function plain tensors do not need; nothing was executed")

    def read_storage(self, _: None, fields: Any) -> Storage:
        """Check a persistent id: ("storage", class, key, device, length), and in old files None for "not a view"."""
        if not isinstance(fields, tuple) or len(fields) not in {5, 6} or fields[0] != "storage":
            raise ValueError("a storage of an unknown kind")
        kind, key, length = fields[1], fields[2], fields[4]
        known = isinstance(kind, GlobalName) and kind in STORAGES
        if not known or not isinstance(key, str) or not is_size(length):
            raise ValueError("a storage of an unknown kind")
        storage = Storage(key, STORAGES[kind], length, typed=kind != UNTYPED)
        if fields[5:] not in ((), (None,)) or self.storages.setdefault(key, storage) != storage:
            raise ValueError("a storage described in two ways")
        return storage

    def check_view(self, fields: Any, dtype: str | None = None) -> TensorView:
        storage, offset, shape, strides = fields[0], fields[1], tuple(fields[2]), tuple(fields[3])
        if not isinstance(storage, Storage) or storage.typed == (dtype is not None):
            raise ValueError("a tensor without a storage")
        if not all(map(is_size, (offset, *shape, *strides))) or not len(shape) == len(strides) <= MAX_AXES:
            raise ValueError("a tensor with an invalid shape")
        view = TensorView(storage, dtype or storage.dtype, offset, shape, strides)
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        end = offset if 0 in shape else offset + last + 1
        if end * BITS[view.dtype] > storage.nbytes * 8:
            raise file_error(
                self.source,
                f"a tensor of shape {shape} exceeds its storage {printable(storage.key[:40])!r} of "
                f"{storage.nbytes:,} bytes",
            )
        return view


# For each opcode a state dict needs: the value it builds from its argument and its operands.
OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "BINSTRING", "SHORT_BINSTRING"),
        lambda _, argument: argument,
    ),
    "NONE": lambda *_: None,
    "NEWTRUE": lambda *_: True,
    "NEWFALSE": lambda *_: False,
    "EMPTY_DICT": lambda *_: {},
    "EMPTY_LIST": lambda *_: [],
    **dict.fromkeys(("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"), lambda _, __, *operands: operands),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, index: machine.memo[index]),
    **dict.fromkeys(("SETITEM", "SETITEMS"), PickleMachine.set_items),
    **dict.fromkeys(("APPEND", "APPENDS"), PickleMachine.append),
    "GLOBAL": PickleMachine.look_up,
    "BINPERSID": PickleMachine.read_storage,
    "REDUCE": PickleMachine.call,
    "BUILD": lambda _, __, module, ___: module,  # the version numbers of modules are not needed
}


def is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_SIZE
