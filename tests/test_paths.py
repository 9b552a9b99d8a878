"""Documents and docstrings name only files that exist."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"(?<![\w/.~<{*-])((?:[\w-]+/)+[\w.-]+\.(?:py|md|js|css|svg|png|sh|ipynb))(?![\w/*])")
PARENTS = (ROOT, *(ROOT / name for name in ("inlayer", "docs", "tests", "inlayer/learn", "inlayer/learn/content")))
EXAMPLES = re.compile(r"[A-Z]|^(class|my|wrong)/")  # placeholders, and files of imaginary learners


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def prose(file: Path) -> Iterator[str]:
    """The text of a document; of a Python file its docstrings and comments."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield re.sub(r"```.*?```", "", source, flags=re.DOTALL)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield token.string


def missing_paths(file: Path) -> list[str]:
    named = {path for text in prose(file) for path in PATH.findall(text) if not EXAMPLES.search(path)}
    return sorted(path for path in named if not any((parent / path).exists() for parent in (*PARENTS, file.parent)))


def test_every_path_in_prose_exists() -> None:
    files = [file for file in tracked("*.py", "*.md") if "/wrong/" not in str(file)]
    files = [file for file in files if file.name != "small.py"]  # a made-up course
    assert len(files) > 300
    missing = {str(file.relative_to(ROOT)): paths for file in files if (paths := missing_paths(file))}
    assert not missing


def test_a_missing_path_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("See tables/no_such_module.py and docs/architecture.md.", encoding="utf-8")
    assert missing_paths(document) == ["tables/no_such_module.py"]
