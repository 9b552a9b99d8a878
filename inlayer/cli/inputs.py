"""What a user gives to walk: texts from arguments, files and standard input, vectors from a .npy file.

- a file is read only up to a limit, whatever it claims to be; bytes that are no UTF-8 are an error, never replaced
- an array is read without pickle, and no larger than its file
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import InputError, TextError
from inlayer.paths import check_path, quoted, shown, what_is_at, wrong_kind

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["opening_texts", "read_places", "read_start", "read_texts", "read_vectors"]

MAX_BYTES = 2**20  # of a text
MAX_VALUES = 2**26  # of vectors: 256 MB in float32


def read_texts(texts: list[str], files: list[str]) -> list[str]:
    """The texts of the command line, "-" being standard input, then those of files."""
    if texts.count("-") > 1:
        raise InputError('"-" is standard input, which can be read once; it is given more than once')
    said = [
        _from_standard_input() if text == "-" else check_argument(text, f"text {number}")
        for number, text in enumerate(texts, start=1)
    ]
    for name in files:
        data = read_start(check_path(name, "--file"), MAX_BYTES, or_pipe=True)
        said.append(_text(data, shown(name)))
    return said


def read_start(path: Path, most: int, *, or_pipe: bool = False) -> bytes:
    """A file, or one byte more than the most that is wanted of it."""
    kind = what_is_at(path)
    if kind in {"nothing", "folder"} or (kind != "file" and not or_pipe):
        raise wrong_kind(path, kind)
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}") from error


def check_argument(text: str, name: str) -> str:
    """A text of the command line; TextError where its bytes are no UTF-8."""
    if any("\udc80" <= character <= "\udcff" for character in text):  # as Python hands them over
        _text(os.fsencode(text), name)
    return text


def opening_texts(texts: list[str]) -> list[str]:
    """Check the texts that a page opens with: its server must accept them."""
    from inlayer.web.schemas import check_texts

    return check_texts([check_argument(text, f"text {number}") for number, text in enumerate(texts, start=1)])


def _from_standard_input() -> str:
    if sys.stdin is None:
        raise InputError("standard input is closed: there is nothing to read")
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"standard input cannot be read: {error.strerror}") from error
    return _text(data, "standard input")


def _text(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} holds more than {MAX_BYTES:,} bytes, the longest text that is walked")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"{name} is no UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def read_places(said: str) -> tuple[int, int]:
    """Two places, as in "1,2" or "1 2"."""
    places = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*,\s*|\s+)([0-9]{1,9})\s*", said)
    if places is None:
        raise InputError(f"--swap is {quoted(said)}; give the places of two tokens, such as 0,2")
    return int(places[1]), int(places[2])


def read_vectors(name: str) -> Tensor:
    """The array of a .npy file, as a tensor."""
    import numpy as np
    import torch

    path = check_path(name, "--embeds")
    kind = what_is_at(path)
    if kind != "file":
        raise wrong_kind(path, kind)
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise InputError(f"{shown(name)} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the header is read as Python: a stranger's may raise anything
        raise InputError(f"{shown(name)} is no array that numpy.save wrote without pickle: {error}") from None
    if mapped.dtype.kind != "f" or mapped.dtype.itemsize > 8:
        raise InputError(f"{shown(name)} holds {mapped.dtype}; vectors are float16, float32 or float64")
    if mapped.ndim not in (2, 3):
        raise InputError(f"{shown(name)} has shape {mapped.shape}; vectors are (T, D) or (B, T, D)")
    if mapped.size > MAX_VALUES:
        raise InputError(f"{shown(name)} holds {mapped.size:,} values; at most {MAX_VALUES:,} are walked")
    return torch.from_numpy(np.array(mapped, dtype=mapped.dtype.newbyteorder("="), order="C"))
