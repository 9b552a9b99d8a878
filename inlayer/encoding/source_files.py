"""The arguments of `inlayer embed`: files, folders, patterns, standard input, or texts.

[arguments] -> files -> rows of texts -> vectors
- in a folder or pattern, files with other suffixes are skipped and counted, and hidden files in a folder are ignored
- a file given by name, or by a pattern that ends in its suffix, is read as text if its suffix is not known
- a file that a pattern matches several times through links is read once
- see also: reading the files (encoding/reader.py)
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path

from inlayer.errors import InputError, MissingFileError
from inlayer.files import format_path, not_a_file_error, path_kind

SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
PACKED = (".gz", ".zst")
READABLE = f"{', '.join(SUFFIXES)}, .gz, or .zst"
# An argument that looks like a path, a pattern, or a file name is not interpreted as a text.
PATH_LIKE = re.compile(
    r"(?:\.{0,2}|~)/.*|\S*/\S*|\S*[*?\[]\S*\.\S*|\S*\.\S*[*?\[]\S*|\S*\w\.[A-Za-z]\w{1,4}", re.DOTALL
)


def file_kind(path: Path) -> str:
    """Return the suffix that determines how to read a file, without .gz and .zst, or "" if it is not known."""
    inner = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = inner.suffix.lower()
    return kind if kind in SUFFIXES and (inner is path or kind != ".parquet") else ""


def find_sources(arguments: list[str]) -> tuple[list[Path | str], list[Path]]:
    """Interpret each argument as a file, a folder, a pattern, "-" for standard input, or otherwise a text.

    Also returns the files that were skipped because their suffix is not known.
    """
    sources: list[Path | str] = []
    skipped: list[Path] = []
    for argument in arguments:
        path = Path(argument)
        is_text = argument in ("", "-") or len(argument) > 4096 or "\0" in argument  # as a path, "" would be "."
        kind = "text" if is_text else path_kind(path)
        if kind == "folder":
            found = sorted(file for file in path.rglob("*") if file.is_file())
            found = [file for file in found if not any(part[0] == "." for part in file.relative_to(path).parts)]
            files = [file for file in found if file_kind(file)]
            skipped += [file for file in found if not file_kind(file)]
            if not files:
                raise MissingFileError(f"{format_path(path)} has no files to read: {READABLE}")
            sources += files
        elif kind == "file":
            sources.append(path)
        elif kind == "missing" and any(mark in argument for mark in "*?[") and (found := _matches(argument)):
            files = [file for file in found if file_kind(file) or file.suffix == path.suffix != ""]
            if not files:
                raise MissingFileError(f"{format_path(path)} matches no files to read: {READABLE}")
            sources += files
            skipped += [file for file in found if file not in files]
        elif kind == "special" or (kind == "missing" and file_kind(path)):
            raise not_a_file_error(path, kind)
        elif kind == "missing" and PATH_LIKE.fullmatch(argument):
            advice = "to embed it as text, pass it on standard input (-)"
            raise MissingFileError(f"{format_path(path)}: not found; {advice}")
        else:
            sources.append(argument)
    if sources.count("-") > 1:
        raise InputError('"-" is given more than once, but standard input can be read only once')
    return sources, skipped


def _matches(pattern: str) -> list[Path]:
    names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  # absolute and relative patterns alike
    files = [path for path in map(Path, names) if path.is_file()]
    # A link may point back to its own folder.
    return list({file.resolve(): file for file in reversed(files)}.values())[::-1]
