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
# below a folder of the project: any name, with any suffix or none
IN_PROJECT = re.compile(r"(?<![\w/.~<{*-])((?i:inlayer|docs|tests|scripts|benchmarks|examples)/[\w./-]*\w)(?![\w*<{(])")
DOCSTRING = re.compile(r"[rRuU]?(?:'{3}|\"{3})")
PARENTS = (ROOT, *(ROOT / name for name in ("inlayer", "docs", "tests", "inlayer/learn", "inlayer/learn/content")))
# Placeholders, files of imaginary learners, what a command writes, and names that we decided against.
EXAMPLES = re.compile(
    r"(^|/)[A-Z_]+(/|\.(py|md|ipynb)$|$)|^(class|my|wrong|path|run|inspect)/|gather\.py$|^(report|node)\.html$"
    r"|^training\.png$|^torch\.py$"
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
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and (starts_statement or DOCSTRING.match(token.string))
        if token.type == tokenize.COMMENT or is_docstring:
            yield token.string
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            starts_statement = token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def missing_paths(file: Path) -> list[str]:
    """Paths that do not exist, and names of files that no folder has."""
    texts, parents = list(prose(file)), (*PARENTS, file.parent)
    named = {path for text in texts for pattern in (FILE, FOLDER, IN_PROJECT) for path in pattern.findall(text)}
    if file.suffix == ".md":  # code blocks too
        named.update(IN_PROJECT.findall(file.read_text(encoding="utf-8")))
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


@pytest.mark.parametrize(
    "path",
    [
        "inlayer/trace/nosuch.txt", "inlayer/trace/nosuch.json", "docs/nosuch.yml", "inlayer/learn/nosuch.cfg",
        "scripts/nosuch.ts", "inlayer/nosuch", "Inlayer/nosuch.py", "tests/X_nosuch.py", "README2.md",
    ],
)  # fmt: skip
def test_a_missing_path_of_any_form_is_found(tmp_path: Path, path: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"See `{path}`.", encoding="utf-8")
    assert missing_paths(file) == [path]


@pytest.mark.parametrize("quotes", ['r"""', "'", '"', "'''"])
def test_every_form_of_docstring_is_read(tmp_path: Path, quotes: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"def f():\n    {quotes}See inlayer/nosuch.py{quotes.lstrip('r')}\n", encoding="utf-8")
    assert missing_paths(file) == ["inlayer/nosuch.py"]


def test_code_is_not_prose(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text('path = "tables/no_such_module.py"\n', encoding="utf-8")
    assert missing_paths(file) == []
