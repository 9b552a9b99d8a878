"""Reading a tokenizer's files as data from strangers: bounded, typed errors, nothing executed.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- the Rust libraries raise plain Exception, and on some malformed files they panic: PanicException is a BaseException,
  so that `except Exception` misses it. Here both become a one-line TokenizerError
- not here: what the files mean
Checked with hostile files in tests/text/test_open.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inlayer.errors import InlayerError, MissingFileError, TokenizerError

__all__ = ["library_errors", "load_json_object", "one_line", "read_limited"]

MAX_BYTES = 512 << 20  # the largest real tokenizer files are near 35 MB


def one_line(error: BaseException, limit: int = 200) -> str:
    """The first line of a library's message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:limit]


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn whatever a tokenizer library raises into a TokenizerError that begins with `what`."""
    try:
        yield
    except InlayerError:
        raise
    except Exception as error:  # the libraries promise no narrower class
        raise TokenizerError(f"{what}: {one_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Ctrl-C and exit pass through
            raise
        raise TokenizerError(f"{what}: the library gave up on it ({one_line(error)})") from error


def read_limited(path: Path) -> bytes:
    """The bytes of a file, unless it is missing or absurdly large."""
    if not path.is_file():
        raise MissingFileError(f"{path} is not a file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise TokenizerError(f"{path} has {size} bytes; a tokenizer file of more than {MAX_BYTES} is refused")
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error


def load_json_object(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object; anything else is a TokenizerError saying what is there instead."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{where} is no valid JSON ({one_line(error)}); is the file cut short?") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{where} holds a JSON {type(value).__name__}, not an object")
    return value
