"""Training text in chunks: text files, or English text from Python's standard library.

[text] -> ids -> rows -> (+ positions) -> hidden states -> decoder -> head -> logits
- files of any size are read block by block, even if they consist of a single line
- a chunk ends at a line break if there is one, otherwise after CHUNK characters. Joined chunks are the file's text
  without a leading byte order mark. A file without text has no chunks
- Python's text is its documentation topics and the docstrings of its modules. They are parsed, but never imported or
  run. The same Python version gives the same text on every machine
- long repeated paragraphs are omitted from this text, because topics quote each other: text in both the training and
  the validation data would make a model look better than it is
- see also: encoding, and the choice of validation text (encoded_corpus.py)
Tested in tests/training/test_corpus.py.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from inlayer.errors import InputError, MissingFileError
from inlayer.files import format_path
from inlayer.tokenizers.bpe_training import check_files, read_blocks

CHUNK = 1 << 14  # characters

# Folders of the standard library with docstrings about tests, not about Python.
TESTS = frozenset({"test", "tests", "idle_test"})
MIN_QUOTE = 60  # characters: a repeated paragraph of this length is a quotation; a shorter paragraph may be a heading


class Chunk(NamedTuple):
    """Part of a text; `starts_file` is True for the first chunk of each file."""

    text: str
    starts_file: bool


def read_chunks(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[Chunk]:
    """Read UTF-8 files in order. A missing file is reported immediately, invalid bytes when they are reached."""
    paths = check_files(files, "a corpus consists of text files, such as folder/*.txt")
    empty = f"and {len(paths) - 1} more are empty" if len(paths) > 1 else "is empty"
    return _chunks(map(read_blocks, paths), InputError(f"no text to train on: {format_path(paths[0])} {empty}"))


def python_chunks() -> Iterator[Chunk]:
    """Yield English text from Python's standard library: one file per documentation topic and per module.

    A Python without sources (zipped or frozen) has only the topics. Raises MissingFileError if there are neither topics
    nor sources.
    """
    seen: set[str] = set()
    texts = ([_without_repeats(text, seen)] for text in chain(_topics(), _docstrings(sysconfig.get_path("stdlib"))))
    message = "this Python contains no documentation topics or sources to train on; pass text files"
    return _chunks(texts, MissingFileError(message))


def cut(text: str, start: int, size: int) -> int:
    """Return the end of a segment of at most `size` characters from `start`: after its last line break, if any."""
    end = start + size
    return len(text) if len(text) <= end else (text.rfind("\n", start, end) + 1 or end)


def _chunks(files: Iterable[Iterable[str]], if_empty: Exception) -> Iterator[Chunk]:
    """Yield the chunks of all files. Raises `if_empty` if there are none."""
    has_text = False
    for texts in files:
        rest, is_first = "", True
        for text in texts:
            rest += text
            while len(rest) > CHUNK:
                end = cut(rest, 0, CHUNK)
                yield Chunk(rest[:end], is_first)
                rest, is_first = rest[end:], False  # kept: the next text may continue its last line
        if rest:
            has_text = True
            yield Chunk(rest, is_first)
    if not has_text:
        raise if_empty


# ---- text from Python's standard library


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics  # one large dict of strings
    except ImportError:
        return []
    return [text for _, text in sorted(topics.items())]


@lru_cache(maxsize=1)  # a few megabytes, needed for the tokenizer and for the model
def _docstrings(library: str) -> list[str]:
    """Return the docstrings of each module of the standard library."""
    root, texts = Path(library), []
    for parent, folders, names in os.walk(root):
        modules = sorted(name for name in names if name.endswith(".py"))
        folders[:] = sorted(set(folders) - TESTS)
        if Path(parent) == root:  # skip installed packages and machine settings, which are next to the library
            modules = [name for name in modules if name.removesuffix(".py") in sys.stdlib_module_names]
            folders[:] = [name for name in folders if name in sys.stdlib_module_names]
        texts += ["\n\n".join(_docstrings_of(Path(parent) / name)) for name in modules]
    return texts


def _docstrings_of(path: Path) -> list[str]:
    """Return docstrings in source order, or none if the file is not valid Python (such as a template)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old sources
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    texts = map(ast.get_docstring, sorted(nodes, key=lambda node: getattr(node, "lineno", 0)))
    return [text.encode(errors="ignore").decode() for text in texts if text]  # drops lone surrogates


def _without_repeats(text: str, seen: set[str]) -> str:
    """Remove long paragraphs that are in `seen`, and add the others to it."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        stripped = paragraph.strip()
        if len(stripped) < MIN_QUOTE or stripped not in seen:
            paragraphs.append(paragraph)
            seen.add(stripped)
    return "\n\n".join(paragraphs)
