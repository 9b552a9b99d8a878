"""Reading a tokenizer's files as data from strangers: bounded, typed errors, nothing executed.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- the libraries raise plain Exception, and on some malformed files the Rust ones panic: PanicException is a
  BaseException, so that `except Exception` misses it. Here both become a one-line TokenizerError, without the places in
  the library's own source
- a panic also prints its own report to stderr. What is known to cause one is refused beforehand (parts.py)
- not here: what the files mean
Checked with hostile files in tests/tokenizers/test_hostile.py and tests/tokenizers/test_open.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inlayer.errors import InlayerError, MissingFileError, TokenizerError
from inlayer.paths import printable, shown, what_is_at, wrong_kind

__all__ = ["library_errors", "library_panics", "load_json_object", "one_line", "read_limited"]

MAX_BYTES = 512 << 20  # the largest real tokenizer files are near 35 MB
JSON_KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}
LIBRARY_PLACES = re.compile(r"^[A-Z_]+: |\S+\.(?:cc|cpp|h|rs)[(:]\d+[):\d]*\s*(?:\[[^\]]*\])?")
LFS_POINTER = b"version https://git-lfs"


def one_line(error: BaseException, limit: int = 200) -> str:
    """The first line of a library's message, without the places in its source; empty where that was all."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(LIBRARY_PLACES.sub("", lines[0]).strip()[:limit])


@contextmanager
def library_panics(what: str) -> Iterator[None]:
    """Turn a panic of Rust code, which is no Exception, into a TokenizerError that begins with `what`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Ctrl-C and exit pass through
            raise
        raise TokenizerError(f"{what}: the library gave up on it ({one_line(error)})") from error


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn whatever a tokenizer library raises into a TokenizerError that begins with `what`."""
    try:
        with library_panics(what):
            yield
    except InlayerError:
        raise
    except Exception as error:  # the libraries promise no narrower class
        detail = one_line(error)
        raise TokenizerError(f"{what}: {detail}" if detail else what) from error


def read_limited(path: Path) -> bytes:
    """The bytes of a file, unless it is missing, no regular file, or absurdly large."""
    kind = what_is_at(path)
    if kind != "file":
        raise wrong_kind(path, kind)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TokenizerError(
                f"{shown(path)} has {size} bytes; a tokenizer file of more than {MAX_BYTES} is refused"
            )
        data = path.read_bytes()
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if data.startswith(LFS_POINTER):
        raise TokenizerError(f"{shown(path)} is a git-lfs pointer, not the file itself; fetch it with `git lfs pull`")
    return data


def load_json_object(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object; anything else is a TokenizerError saying what is there instead."""
    if not data.strip():
        raise TokenizerError(f"{where} is empty")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise TokenizerError(f"{where} is no JSON: byte 0x{byte:02X} at {error.start} is not UTF-8 text") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at_the_end = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        cause = "; is the file cut short?" if at_the_end else ""
        raise TokenizerError(f"{where} is no valid JSON ({one_line(error)}){cause}") from None
    except RecursionError:
        raise TokenizerError(f"{where} is JSON nested too deeply to be a tokenizer's") from None
    except ValueError as error:  # a number of thousands of digits
        raise TokenizerError(f"{where} is no valid JSON ({one_line(error)})") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{where} holds {JSON_KINDS.get(type(value), 'a list')}, not an object")
    return value
