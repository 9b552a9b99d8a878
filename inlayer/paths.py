"""The floor: a path or a file's words as a message shows them, and what stands at a path.

- a path is shown as it was given, on one line; what stands there is named for what it is: nothing, a folder, a device
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from inlayer.errors import DtypeError, InputError, MissingFileError

__all__ = ["check_path", "last_part", "printable", "quoted", "shown", "what_is_at", "wrong_kind"]


def printable(text: str) -> str:
    """The text on one line: line breaks and tabs as a space, as the command line has them; NULs, lone surrogates and
    their like as escapes.
    """
    return "".join(
        character if character.isprintable() else " " if character.isspace() else ascii(character)[1:-1]
        for character in text
    )


def shown(path: str | os.PathLike[str]) -> str:
    """A path as it was given, fit for a message."""
    text = os.fspath(path)
    short = text if len(text) <= 300 else f"{text[:60]}...{text[-60:]}"
    return printable(short)


def quoted(value: object, most: int = 80) -> str:
    """A stranger's word or value in quotes, short and on one line."""
    text = repr(value[: most + 1]) if isinstance(value, str) else repr(value)
    return printable(text if len(text) <= most else text[:most] + "...")


def check_path(path: object, name: str = "path") -> Path:
    """A path that was given by the user. The empty one is an error: it would mean the current folder."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        kind = type(path).__name__ if text is None else f"{type(path).__name__} of bytes"
        raise DtypeError(f"{name} is a {kind}; it is a str or a pathlib.Path")
    if not text:
        raise InputError(f'{name} is empty; the current folder is "."')
    return Path(text)


def what_is_at(path: Path) -> str:
    """One of "file", "folder", "nothing", "no regular file"; a path the system cannot look up is an error."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be looked up: {error.strerror}") from error
    except ValueError:  # a NUL, or a character the file system's encoding lacks
        raise MissingFileError(f"{shown(path)} holds a character that no path can hold") from None
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "no regular file"


def wrong_kind(path: Path, kind: str) -> MissingFileError:
    """The error for a path where a file should be; `kind` is what is there."""
    if kind == "nothing":
        return MissingFileError(f"{shown(path)} is not there")
    if kind == "folder":
        return MissingFileError(f"{shown(path)} is a folder, not a file")
    return MissingFileError(f"{shown(path)} is no regular file (a device, pipe or socket)")


def last_part(path: Path) -> str:
    """What a path is called, without where it lies."""
    return path.name if path.name not in {"", ".."} else path.resolve().name or str(path)
