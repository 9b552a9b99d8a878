"""Old names of inlayer.files, kept only until every package imports that module."""

from __future__ import annotations

from pathlib import Path

from inlayer.errors import MissingFileError
from inlayer.files import base_name, check_path, not_a_file, path_kind, printable, quoted, shown

__all__ = ["check_path", "last_part", "printable", "quoted", "shown", "what_is_at", "wrong_kind"]

last_part = base_name


def what_is_at(path: Path) -> str:
    return {"missing": "nothing", "special": "no regular file"}.get(kind := path_kind(path), kind)


def wrong_kind(path: Path, kind: str) -> MissingFileError:
    return not_a_file(path, "missing" if kind == "nothing" else kind)
