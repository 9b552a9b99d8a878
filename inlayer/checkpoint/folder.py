"""Folder: a checkpoint's files, local or remote. LocalFolder: files on this machine.

source -> [files] -> Store -> Model
- a store opens a file by its plain name and does not know whether its bytes are local or remote
- symbolic links must stay inside the folder, except those into the blobs of the hub's cache, which consists of links
- see also: remote folders (checkpoint/remote/source.py)
Tested in tests/checkpoint/test_folder.py; remote folders are tested in tests/checkpoint/remote/.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path

from inlayer.errors import CheckpointError, MissingFileError
from inlayer.files import file_errors, format_path, path_kind
from inlayer.formats.row_reader import ByteFile, LocalFile
from inlayer.tokenizers.open import find_in_folder

PLAIN_NAME = re.compile(r"(?!\.)[^/\\\0:]{1,250}")


class Folder(ABC):
    """A checkpoint's files, by their plain names."""

    kind: str  # "folder", "hub", or "url"
    remote: bool  # true if bytes are downloaded when they are read

    @abstractmethod
    def describe(self, file: str | None) -> str:
        """Return the source in messages and reports: the folder, or one file in it."""

    @abstractmethod
    def list_names(self) -> list[str] | None:
        """Return the names of all files; None if the server cannot list them."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether the folder has a file of this name."""

    @abstractmethod
    def open(self, name: str) -> ByteFile:
        """Open a file for reading by byte range."""

    @abstractmethod
    def local_path(self, name: str) -> Path:
        """Return the path of a small file on this machine, downloaded if necessary; it may be missing."""

    @abstractmethod
    def find_tokenizer(self) -> Path | None:
        """Return the tokenizer's path on this machine, next to the files it needs, or None if there is no tokenizer."""


class LocalFolder(Folder):
    """A folder on this machine."""

    kind, remote = "folder", False

    def __init__(self, path: Path) -> None:
        self.path = path

    def describe(self, file: str | None) -> str:
        return format_path(self.path / (file or ""))

    def list_names(self) -> list[str]:
        with file_errors(self.path, kind=MissingFileError):
            return sorted(entry.name for entry in self.path.iterdir())

    def has(self, name: str) -> bool:
        return path_kind(self.path / name) != "missing"

    def open(self, name: str) -> LocalFile:
        return LocalFile(self.local_path(name))

    def local_path(self, name: str) -> Path:
        return check_link(self.path / name)

    def find_tokenizer(self) -> Path | None:
        for name in self.list_names():
            if name.endswith((".json", ".model", ".tiktoken", ".txt")):
                self.local_path(name)
        return find_in_folder(self.path)


def is_plain_name(name: str) -> bool:
    """Return whether an untrusted name is printable and stays in the same folder."""
    return PLAIN_NAME.fullmatch(name) is not None and name.isprintable()


def check_link(path: Path) -> Path:
    """Return a path in a checkpoint's folder, checked not to be a link out of it or out of the hub's cache."""
    with file_errors(path, "cannot be accessed", MissingFileError):
        is_link = path.is_symlink()
    if not is_link:
        return path
    try:
        real, home = path.resolve(), path.parent.resolve()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{format_path(path)} is a broken symbolic link") from error
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    if not any(real.is_relative_to(allowed) for allowed in (home, *blobs)):
        problem = "is a symbolic link that points outside its folder; copy its target into the folder"
        raise CheckpointError(f"{format_path(path)} {problem}")
    return path
