"""Names: one class name means one thing, and two files share a name only if they play the same role."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "inlayer"
CONTENT = PACKAGE / "learn" / "content"  # learners' files repeat names on purpose

# Files that play the same role in sibling packages.
SAME_ROLE = {
    "__init__.py": "a package",
    "app.py": "the application object that commands or routes join",
    "compare.py": "compares two models, and its command",
    "course.py": "the course, and its routes",
    "html.py": "a package's page as one document",
    "inspect.py": "inspection, and its command",
    "neighbors.py": "nearest rows of a query, and the commands that print them",
    "open.py": "chooses the class for a source",
    "questions.py": "exercises, and the commands that ask them",
    "terminal.py": "prints a package's facts on a terminal",
    "train.py": "training, and its command",
}


def modules() -> list[Path]:
    return [file for file in PACKAGE.rglob("*.py") if CONTENT not in file.parents]


def test_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in modules():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(file.relative_to(PACKAGE)))
    assert len(homes) > 100
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_file_names_are_unique_or_play_the_same_role() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file in modules():
        homes[file.name].append(str(file.relative_to(PACKAGE)))
    repeated = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: files for name, files in repeated.items() if name not in SAME_ROLE} == {}
    assert SAME_ROLE.keys() <= repeated.keys()  # no exception that nothing needs
