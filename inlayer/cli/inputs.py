"""Command-line inputs: texts from arguments, files, and standard input; vectors from .npy files.

- a file is read only up to a limit; bytes that are not valid UTF-8 are an error and are never replaced
- an array is read without pickle, and its size is limited by its file
Tested in tests/test_cli.py.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import InputError, TextError
from inlayer.files import check_is_file, check_path, file_errors, format_path, path_kind, quote, utf8_problem

if TYPE_CHECKING:
    from inlayer.shapes import Array

MAX_TEXT_BYTES = 2**20  # maximum size of one text
MAX_VECTOR_VALUES = 2**26  # maximum size of the vectors: 256 MB in float32


def read_texts(texts: list[str], files: list[str]) -> list[str]:
    """Read the texts of the command line ("-" is standard input), then the files."""
    if texts.count("-") > 1:
        raise InputError('"-" is given more than once, but standard input can be read only once')
    given = [
        _from_standard_input() if text == "-" else check_argument(text, f"text {number}")
        for number, text in enumerate(texts, start=1)
    ]
    for name in files:
        data = read_prefix(check_path(name, "--file"), MAX_TEXT_BYTES, allow_pipe=True)
        given.append(_decode_text(data, format_path(name)))
    return given


def read_prefix(path: Path, limit: int, *, allow_pipe: bool = False) -> bytes:
    """Read at most one byte more than `limit` from a file."""
    if not allow_pipe or path_kind(path) != "special":
        check_is_file(path)
    with file_errors(path), path.open("rb") as file:
        return file.read(limit + 1)


def check_argument(text: str, name: str) -> str:
    """Check a command-line text; TextError if its bytes are not valid UTF-8."""
    if any("\udc80" <= character <= "\udcff" for character in text):  # Python represents invalid bytes this way
        _decode_text(os.fsencode(text), name)
    return text


def check_page_texts(texts: list[str]) -> list[str]:
    """Check the texts that a page opens with against the server's limits."""
    from inlayer.web.request_body import MAX_CHARACTERS, MAX_TEXTS

    if len(texts) > MAX_TEXTS or sum(map(len, texts)) > MAX_CHARACTERS:
        raise InputError(f"the page accepts at most {MAX_TEXTS} texts with {MAX_CHARACTERS:,} characters in total")
    return [check_argument(text, f"text {number}") for number, text in enumerate(texts, start=1)]


def _from_standard_input() -> str:
    if sys.stdin is None:
        raise InputError("standard input is closed")
    with file_errors("standard input"):
        return _decode_text(sys.stdin.buffer.read(MAX_TEXT_BYTES + 1), "standard input")


def _decode_text(data: bytes, name: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{name} is larger than {MAX_TEXT_BYTES:,} bytes, the limit for a text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"{name} is {utf8_problem(error)}") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def parse_token_pair(text: str) -> tuple[int, int]:
    """Parse two token indices, such as "1,2" or "1 2"."""
    pair = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*,\s*|\s+)([0-9]{1,9})\s*", text)
    if pair is None:
        raise InputError(f"--swap is {quote(text)}; specify the indices of two tokens, such as 0,2")
    return int(pair[1]), int(pair[2])


def read_vectors(name: str) -> Array:
    """Read the array in a .npy file."""
    import numpy as np

    from inlayer.encoding.outputs import map_array

    mapped = map_array(check_is_file(check_path(name, "--embeds")))
    is_float = mapped.dtype.kind == "f" and mapped.dtype.itemsize <= 8
    if not is_float or mapped.ndim not in (2, 3) or mapped.size > MAX_VECTOR_VALUES:
        expected = f"float16, float32, or float64 (T, D) or (B, T, D), with at most {MAX_VECTOR_VALUES:,} values"
        raise InputError(f"{format_path(name)} has dtype {mapped.dtype} and shape {mapped.shape}; expected {expected}")
    return np.array(mapped, dtype=mapped.dtype.newbyteorder("="), order="C")
