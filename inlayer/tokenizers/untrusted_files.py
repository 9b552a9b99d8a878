"""Reading untrusted tokenizer files: size limits, one-line errors, and no crash when a library panics.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- libraries raise plain Exception, and the Rust ones panic on some malformed files. PanicException derives from
  BaseException, so `except Exception` misses it; here both become a one-line TokenizerError
- elsewhere: the meaning of the files (tokenizer_json.py, tiktoken.py, sentencepiece.py)
Tested with malformed files in tests/tokenizers/test_malformed_files.py and tests/tokenizers/test_open.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inlayer.errors import InlayerError, MissingFileError, TokenizerError
from inlayer.files import not_a_file, path_kind, printable, shown

__all__ = ["library_errors", "one_line", "parse_json_object", "read_file"]

MAX_FILE_BYTES = 512 << 20  # the largest real tokenizer files have about 35 MB
JSON_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
SOURCE_LOCATIONS = re.compile(r"^[A-Z_]+: |\S+\.(?:cc|cpp|h|rs)[(:]\d+[):\d]*\s*(?:\[[^\]]*\])?")
LFS_POINTER = b"version https://git-lfs"


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return the first line of a library's message, without locations in its source code."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(SOURCE_LOCATIONS.sub("", lines[0]).strip()[:limit])


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Convert any exception or panic of a tokenizer library to a TokenizerError that starts with `what`."""
    try:
        yield
    except InlayerError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # Ctrl-C, SystemExit
        detail = one_line(error)
        raise TokenizerError(f"{what}: {detail}" if detail else what) from error


def read_file(path: Path) -> bytes:
    """Read a regular file of reasonable size."""
    kind = path_kind(path)
    if kind != "file":
        raise not_a_file(path, kind)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise TokenizerError(f"{shown(path)} has {size} bytes; tokenizer files may have at most {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if data.startswith(LFS_POINTER):
        raise TokenizerError(f"{shown(path)} is a git-lfs pointer, not the file itself; fetch it with `git lfs pull`")
    return data


def parse_json_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object, or raise a TokenizerError that says what the file contains instead."""
    if not data.strip():
        raise TokenizerError(f"{where} is empty")
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise TokenizerError(f"{where} is not valid JSON: byte 0x{byte:02X} at {error.start} is not UTF-8") from None
    except ValueError as error:  # JSONDecodeError, or a number with thousands of digits
        truncated = getattr(error, "pos", 0) >= len(text.rstrip()) or str(error).startswith("Unterminated string")
        hint = "; is the file truncated?" if truncated else ""
        raise TokenizerError(f"{where} is not valid JSON ({one_line(error)}){hint}") from None
    except RecursionError:
        raise TokenizerError(f"{where} is nested too deeply for a tokenizer file") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{where} contains {JSON_KINDS.get(type(value), 'a list')}, not a JSON object")
    return value
