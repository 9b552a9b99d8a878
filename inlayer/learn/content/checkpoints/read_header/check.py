"""Checks for the task "Read the header of a safetensors file"."""

from __future__ import annotations

import json
import math
from typing import Any

from inlayer.learn.assertions import check_equal
from inlayer.learn.session import CallResult, CheckFailed, GradingSession, describe_value, value_of

NAME = "read_header"
PARAMETERS = ("data",)
FORBIDDEN = ("inlayer", "safetensors")

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "U8": 1}
Entries = dict[str, Any]


def entry(dtype: str, shape: list[int], begin: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + math.prod(shape) * BYTES[dtype]]}


def draw(session: GradingSession) -> Entries:
    """Return a header of two to four tensors without gaps."""
    entries: Entries = {}
    at = 0
    for number in range(session.random_int(2, 4)):
        shape = [session.random_int(1, 6) for _ in range(session.random_int(1, 3))]
        name = (
            "model.embed_tokens.weight"
            if number == 0
            else f"model.layers.{session.random_int(0, 99)}.part{number}.weight"
        )
        entries[name] = entry(list(BYTES)[session.random_int(0, len(BYTES) - 1)], shape, at)
        at = entries[name]["data_offsets"][1]
    return entries


def pack(header: Any, size: int | None = None, *, length: int | None = None, order: str = "little") -> bytes:
    """Build a file with `size` bytes of tensor data (by default what the header needs), none of them 0 to 127."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    text += b" " * (-len(text) % 8)
    spans = (
        [entry["data_offsets"][1] for entry in header.values() if "data_offsets" in entry]
        if isinstance(header, dict)
        else []
    )
    stated_length = len(text) if length is None else length
    written = stated_length.to_bytes(8, "big" if order == "big" else "little")
    return written + text + b"\xff" * (max(spans, default=0) if size is None else size)


def tensors(entries: Entries, data: bytes) -> dict[str, Any]:
    """Return the result of the learner's function for a valid file."""
    after = 8 + int.from_bytes(data[:8], "little")
    return {
        name: (entry["dtype"], tuple(entry["shape"]), *(after + offset for offset in entry["data_offsets"]))
        for name, entry in entries.items()
        if name != "__metadata__"
    }


def refuse(session: GradingSession, rule: str, data: bytes, message: str) -> None:
    """Check that a file is rejected with a ValueError."""
    answer: CallResult = session.try_call(data)
    if answer.raised is None:
        raise CheckFailed(rule, f"{message}: your code accepted it", "error: ValueError")
    if "ValueError" not in answer.raised.bases:
        raised = f"{message}: raise a ValueError; your code raised {answer.raised}"
        raise CheckFailed(rule, raised, "error: ValueError")


def reads(session: GradingSession) -> None:
    """returns a dict for a valid file"""
    entries = draw(session)
    answer = session.try_call(pack(entries))
    if answer.raised is not None:
        as_big_endian = session.try_call(pack(entries, order="big"))
        if as_big_endian.raised is None and as_big_endian.value:
            raise CheckFailed(
                "big-endian",
                f"you read the length as big-endian; it is little-endian (your code raised {answer.raised})",
            )
    got = value_of(answer)
    if not isinstance(got, dict):
        raise CheckFailed("not-a-dict", f"return a dict; your function returned {describe_value(got)}")


def values(session: GradingSession) -> None:
    """returns names, dtypes, shapes, and offsets"""
    entries = draw(session)
    data = pack(entries)
    want = tensors(entries, data)
    after = 8 + int.from_bytes(data[:8], "little")
    relative = {name: (dtype, shape, start - after, end - after) for name, (dtype, shape, start, end) in want.items()}
    without_8 = {name: (dtype, shape, start - 8, end - 8) for name, (dtype, shape, start, end) in want.items()}
    sizes = {name: (dtype, shape, start, end - start) for name, (dtype, shape, start, end) in want.items()}
    lists = {name: (dtype, list(shape), start, end) for name, (dtype, shape, start, end) in want.items()}
    check_equal(
        session.call(data),
        want,
        mistakes={
            "relative-offsets": (
                relative,
                "you returned the header's own offsets, which count from its end; count from the start of the file",
            ),
            "length-forgotten": (without_8, "all offsets are 8 bytes too small: the length field also takes space"),
            "lengths-as-ends": (sizes, "the last number is the number of bytes; return where they end"),
            "shape-is-a-list": (lists, "the shapes are lists, as in JSON; return tuples"),
        },
        message="the tensors of a valid file are wrong",
    )


def metadata(session: GradingSession) -> None:
    """skips __metadata__, and nothing else"""
    entries = {"__metadata__": {"format": "pt"}, **draw(session)}
    data = pack(entries)
    answer = session.try_call(data)
    if answer.raised is not None or (isinstance(answer.value, dict) and "__metadata__" in answer.value):
        raised = "" if answer.raised is None else f": your code raised {answer.raised}"
        raise CheckFailed("metadata", f"you treated __metadata__ as a tensor{raised}")
    check_equal(answer.value, tensors(entries, data), message="the tensors are wrong if the header has __metadata__")
    hidden = {"__metadata__": {"format": "pt"}, "__head__.weight": entry("U8", [session.random_int(2, 9)], 0)}
    data = pack(hidden)
    check_equal(
        session.call(data),
        tensors(hidden, data),
        mistakes={
            "underscores": ({}, "a tensor whose name starts with two underscores is missing; skip only __metadata__")
        },
        message="a tensor whose name starts with two underscores is a tensor like any other",
    )
    check_equal(
        session.call(pack({})), {}, rule="no-tensors", message="return an empty dict for a file without tensors"
    )
    empty = {"none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}, "one": entry("F32", [], 0)}
    check_equal(
        session.call(pack(empty)),
        tensors(empty, pack(empty)),
        rule="empty-tensor",
        message="a tensor without values, or without axes, is still a tensor",
    )


def lengths(session: GradingSession) -> None:
    """does not trust a wrong length"""
    for size in (session.random_int(1, 7), 0):
        refuse(session, "too-short", pack({})[:size], "a file of fewer than 8 bytes")
    text = json.dumps({"__metadata__": {"format": "pt"}}).encode()
    text += b" " * (-len(text) % 8)
    more = len(text) + session.random_int(1, 5)
    refuse(session, "trusts-length", pack(text, 0, length=more), "a header that claims to be longer than the file")
    high = len(text) + (session.random_int(1, 200) << 32)
    refuse(session, "four-bytes", pack(text, 0, length=high), "a length whose upper four bytes are not zero")


def no_header(session: GradingSession) -> None:
    """rejects anything that is not a JSON object"""
    truncated = f'{{"layer{session.random_int(0, 99)}": {{"dtype": "F32", '.encode()
    refuse(session, "invalid-json", pack(truncated, 8), "a truncated header")
    refuse(session, "invalid-json", pack(b"\xff\xfe" * session.random_int(1, 9), 8), "a header that is not text")
    for other in ([], [1, 2], "text", 7, None):
        data = pack(json.dumps(other).encode(), session.random_int(1, 20))
        refuse(session, "not-an-object", data, "a header that is valid JSON but not an object")


def inside_the_file(session: GradingSession) -> None:
    """rejects a tensor that is not inside the file"""
    entries = draw(session)
    size = max(entry["data_offsets"][1] for entry in entries.values())
    cut = pack(entries, size - session.random_int(1, size))
    refuse(session, "past-the-end", cut, "a truncated file: a tensor ends past it")
    n = session.random_int(1, 8)
    before = {"table": {"dtype": "U8", "shape": [n], "data_offsets": [-n, 0]}}
    refuse(session, "before-the-data", pack(before, 8), "a tensor whose bytes begin inside the header")
    backwards = {"table": {"dtype": "U8", "shape": [-n], "data_offsets": [8, 8 - n]}}
    refuse(session, "backwards", pack(backwards, 8), "a tensor that ends before it begins")


def fits(session: GradingSession) -> None:
    """rejects a tensor whose bytes do not fit its shape"""
    entries = draw(session)
    table = entries["model.embed_tokens.weight"]
    larger = {**entries, "model.embed_tokens.weight": {**table, "shape": [*table["shape"], session.random_int(2, 9)]}}
    refuse(session, "does-not-fit", pack(larger), "a shape that needs more bytes than the tensor has")
    unknown = {**entries, "model.embed_tokens.weight": {**table, "dtype": "Q4_K"}}
    refuse(session, "unknown-dtype", pack(unknown), "a dtype that is not in the table")


CHECKS = (reads, values, metadata, lengths, no_header, inside_the_file, fits)
