"""Corpus: the text to learn from, in chunks: text files, or the English that every Python carries.

[text] -> ids -> rows -> (+ positions) -> hidden states -> decoder -> head -> logits
- a file of any size passes through little memory: it is read block by block, also where it is one endless line
- a chunk ends at a line end where there is one, else at CHUNK characters. Chunks of a file joined are its text, only a
  byte order mark is dropped; a file without text has no chunk
- Python's own text are its documentation topics and the docstrings of its modules. These are found in the source as
  data: nothing is imported for them, nothing runs. The same Python gives the same text, whatever the machine
- a longer paragraph that came before is left out there: topics quote each other, and a text to learn from that is also
  in the validation text would flatter a model
- not here: ids, what is learned from and what validates (training/tokens.py)
Checked in tests/training/test_corpus.py.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from inlayer.errors import InputError, MissingFileError
from inlayer.paths import shown
from inlayer.tokenizers.train import check_files, decode_file

__all__ = ["CHUNK", "Chunk", "cut", "python_chunks", "read_chunks"]

CHUNK = 1 << 14  # characters

# Folders of the standard library whose docstrings say what a test does, not what Python does.
TESTS = frozenset({"test", "tests", "idle_test"})
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")  # where a statement has statements, in their order
REPEATED = 60  # characters: a paragraph this long that came before is a quotation, a shorter one may be a heading


class Chunk(NamedTuple):
    """A piece of text; `starts_file` is True for the first one of each file."""

    text: str
    starts_file: bool


def read_chunks(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[Chunk]:
    """The text of UTF-8 files, in their order. A file that is not there is told at once, bad bytes when they come."""
    return _read_all(check_files(files, "a corpus is made of text files"))


def python_chunks() -> Iterator[Chunk]:
    """English that comes with Python: each documentation topic, and each module's docstrings, is a file of its own.

    A Python without sources (zipped or frozen) has its topics alone; one without either is a MissingFileError.
    """
    seen: set[str] = set()
    found = False
    for text in chain(_topics(), map("\n\n".join, _docstrings())):
        for chunk in _chunk([_without_repeats(text, seen)]):
            found = True
            yield chunk
    if not found:
        raise MissingFileError(
            "this Python carries neither its documentation topics (pydoc_data) nor its sources, so there is no text "
            "to learn from; give text files of your own"
        )


def cut(text: str, start: int, size: int) -> int:
    """Where a piece of at most `size` characters ends that begins at `start`: after a line end, where there is one."""
    end = start + size
    return len(text) if len(text) <= end else (text.rfind("\n", start, end) + 1 or end)


def _read_all(paths: Sequence[Path]) -> Iterator[Chunk]:
    found = False
    for path in paths:
        for chunk in _chunk(decode_file(path)):
            found = True
            yield chunk
    if not found:
        others = f" and {len(paths) - 1} more hold" if len(paths) > 1 else " holds"
        raise InputError(f"{shown(paths[0])}{others} no text to learn from: every file is empty")


def _chunk(texts: Iterable[str]) -> Iterator[Chunk]:
    """The parts of one file's text as chunks. The last part of a text waits: the next may belong to its line."""
    waiting, is_first = "", True
    for text in texts:
        waiting += text
        while len(waiting) > CHUNK:
            end = cut(waiting, 0, CHUNK)
            yield Chunk(waiting[:end], is_first)
            waiting, is_first = waiting[end:], False
    if waiting:
        yield Chunk(waiting, is_first)


# ---- the text that every Python carries


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics  # one large dict of strings
    except ImportError:
        return []
    return [text for _, text in sorted(topics.items())]


def _docstrings() -> Iterator[list[str]]:
    """The docstrings of each module of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    for parent, folders, names in os.walk(root):
        modules = sorted(name for name in names if name.endswith(".py"))
        folders[:] = sorted(set(folders) - TESTS)
        if Path(parent) == root:  # what is not Python's lies beside: installed packages, settings of this machine
            modules = [name for name in modules if name.removesuffix(".py") in sys.stdlib_module_names]
            folders[:] = [name for name in folders if name in sys.stdlib_module_names]
        for name in modules:
            yield _docstrings_of(Path(parent) / name)


def _docstrings_of(path: Path) -> list[str]:
    """In the order of the source. None where a file is no Python: a template may lie among them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old sources hold old escapes
            waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    found = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text:
                found.append(inspect.cleandoc(text).encode(errors="ignore").decode())  # a lone surrogate is no text
        waiting += reversed([child for name in BLOCKS for child in getattr(node, name, ())])
    return found


def _without_repeats(text: str, seen: set[str]) -> str:
    """The text without the longer paragraphs that are in `seen`, where all the others are put."""
    kept = []
    for part in text.split("\n\n"):
        words = part.strip()
        if len(words) < REPEATED or words not in seen:
            kept.append(part)
            seen.add(words)
    return "\n\n".join(kept)
