"""Documents and docstrings name only files that exist."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = re.compile(
    r"(?<![\w/.~<{*\"'-])((?:[\w-]+/)*[\w-][\w.-]*\.(?:py|md|js|css|svg|png|sh|ipynb|html|toml))(?![\w/*(])"
)
FOLDER = re.compile(r"(?<![\w/.~<{*:-])((?:[\w-]+/)+)(?![\w/*<{.])")
PARENTS = (ROOT, *(ROOT / name for name in ("inlayer", "docs", "tests", "inlayer/learn", "inlayer/learn/content")))
# Placeholders, files of imaginary learners, what a command writes, and names that we decided against.
EXAMPLES = re.compile(
    r"[A-Z]|^(class|my|wrong|path|run|inspect)/|gather\.py$|^(report|node)\.html$|^training\.png$|^torch\.py$"
)


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def prose(file: Path) -> Iterator[str]:
    """The text of a document; for a Python file, its docstrings and comments."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield re.sub(r"```.*?```", "", source, flags=re.DOTALL)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield token.string


def missing_paths(file: Path) -> list[str]:
    """Paths that do not exist, and names of files that no folder has."""
    texts, parents = list(prose(file)), (*PARENTS, file.parent)
    named = {path for text in texts for path in (*FILE.findall(text), *FOLDER.findall(text))}
    return sorted(
        path
        for path in named
        if not EXAMPLES.search(path)
        and not any((parent / path).exists() for parent in parents)
        and path not in file_names()
    )


@cache
def file_names() -> frozenset[str]:
    return frozenset(path.name for path in tracked())


@pytest.mark.slow
def test_every_path_in_prose_exists() -> None:
    files = [file for file in tracked("*.py", "*.md") if "/wrong/" not in str(file)]
    files = [file for file in files if file.name != "small.py"]  # a made-up course
    assert len(files) > 300
    missing = {str(file.relative_to(ROOT)): paths for file in files if (paths := missing_paths(file))}
    assert not missing


MISSING = ["no_such_folder/", "no_such_module.py", "tables/no_such_module.py"]
PROSE = (
    "See tables/no_such_module.py, no_such_module.py, no_such_folder/, docs/architecture.md, table.py and tests/web/."
)


@pytest.mark.parametrize(
    ("name", "text"),
    [("page.md", PROSE), ("module.py", f'"""{PROSE}"""\n'), ("code.py", f"x = 1  # {PROSE}\n")],
    ids=["document", "docstring", "comment"],
)
def test_a_missing_path_is_found(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert missing_paths(file) == MISSING


def test_code_is_not_prose(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text('path = "tables/no_such_module.py"\n', encoding="utf-8")
    assert missing_paths(file) == []
