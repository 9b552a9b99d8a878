"""Single functions of the installed `sglang` package, which cannot be imported without a GPU stack.

They are taken from its files through the syntax tree and run as they are; only "cuda" devices become "cpu".
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn


class Struct:
    """In place of msgspec.Struct."""

    def __init_subclass__(cls, *, frozen: bool) -> None:
        dataclasses.dataclass(frozen=frozen)(cls)


class OnCpu(ast.NodeTransformer):
    """Puts tensors on the CPU."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node


def extract(file: str, *names: str, **given: Any) -> SimpleNamespace:
    """Top-level functions, classes and constants of a file of the package; `given` are names that it imports."""
    try:
        path = importlib.metadata.distribution("sglang").locate_file(file)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sglang has no wheel for Python 3.10")
    tree = OnCpu().visit(ast.parse(Path(str(path)).read_text(encoding="utf-8")))
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    chosen = [node for node in tree.body if _name(node) in names]
    assert {_name(node) for node in chosen} == set(names)
    scope: dict[str, Any] = {"torch": torch, "np": np, "nn": nn, "msgspec": SimpleNamespace(Struct=Struct)} | given
    exec(compile(ast.Module([*future, *chosen], []), str(path), "exec"), scope)
    return SimpleNamespace(**{name: scope[name] for name in names})


def _name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def engram() -> SimpleNamespace:
    """The pure functions of DeepSeek's Engram."""
    return extract(
        "sglang/srt/layers/engram.py", "_MILLER_RABIN_WITNESSES", "_is_prime", "_find_next_prime", "EngramLayout",
        "build_compressed_token_map", "compute_hash_multipliers", "compute_engram_hash_ids", "EngramHasher",
        MM_PAD_SHIFT_VALUE=1_000_000,
    )  # fmt: skip
