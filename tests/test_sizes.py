"""Sizes: files and functions stay short, and no new function takes many parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "inlayer"
CONTENT = PACKAGE / "learn" / "content"  # the course
MAX_FILE_LINES, MAX_BODY_LINES, MAX_PARAMETERS = 400, 60, 7

# Public contracts whose keyword arguments users write one by one; docs/decisions.md says why.
MANY_PARAMETERS = {
    "checkpoint/encode_mixin.py:EncodeMixin.encode",
    "embeddings.py:Embeddings.__init__",
    "head.py:Head.__init__",
    "integrations/datasets.py:EmbedColumn.__init__",
    "positions/absolute.py:LearnedPositions.__init__",
    "positions/rotary.py:RotaryPositions.__init__",
    "tables/table.py:Table.__init__",
    "trace/pipeline.py:walk",
}


def modules() -> Iterator[tuple[str, str]]:
    for file in PACKAGE.rglob("*.py"):
        if CONTENT not in file.parents:
            yield file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8")


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        inside = f"{prefix}{child.name}." if isinstance(child, (ast.ClassDef, ast.FunctionDef)) else prefix
        yield from functions(child, inside)


def all_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for file, source in modules():
        yield from functions(ast.parse(source), f"{file}:")


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's body without its docstring; the options of a command are in its signature."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def n_parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def is_command(function: ast.FunctionDef) -> bool:
    """Whether Typer makes a command of it: its parameters are the options."""
    return any("command(" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_files_are_short() -> None:
    assert [name for name, source in modules() if source.count("\n") > MAX_FILE_LINES] == []


def test_function_bodies_are_short() -> None:
    found = list(all_functions())
    assert len(found) > 1000
    assert [name for name, function in found if body_lines(function) > MAX_BODY_LINES] == []


def test_only_listed_functions_take_many_parameters() -> None:
    found = list(all_functions())
    many = {name for name, function in found if n_parameters(function) > MAX_PARAMETERS and not is_command(function)}
    assert many == MANY_PARAMETERS


def test_sizes_are_counted() -> None:
    source = 'def f(self, a, /, b, *, c):\n    """Doc.\n\n    More.\n    """\n    x = 1\n    return x\n'
    (_, function), *_ = functions(ast.parse(source), "")
    assert (body_lines(function), n_parameters(function)) == (2, 3)
