"""Public names document their arguments, results and errors in Google style, and their examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import operator
import re
import shutil
from dataclasses import is_dataclass
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest

import inlayer

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"
PUBLIC = sorted(set(inlayer.__all__) - {"__version__"})
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(inlayer, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(inlayer, name))]
METHODS = [f"Model.{name}" for name in ("neighbors", "analogy", "project")] + ["Report.ids"]
RETURNED = {"Model", "Report", "Trace"}  # made by a function; what matters are their attributes
NO_ARGUMENTS = {"ByteTokenizer", "InlayerError"}
BY_FIELD = {"TrainConfig"}  # the help of each field is the help of a flag
SLOW = {"attach", "train"}


def section(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\n((?:^(?: .*)?\n?)+)", text, flags=re.MULTILINE)
    return found[1] if found else ""


def described(text: str, name: str) -> list[str]:
    """The names that a section describes."""
    return re.findall(r"^    (\w+):", section(text, name), flags=re.MULTILINE)


def doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_function_documents_its_contract(name: str) -> None:
    function = operator.attrgetter(name)(inlayer)
    text = doc(function)
    assert described(text, "Args") == [one for one in inspect.signature(function).parameters if one != "self"]
    assert section(text, "Returns")
    assert all(error[0].isupper() for error in described(text, "Raises"))
    assert described(text, "Raises")
    assert section(text, "Example")  # which test_examples_run runs


@pytest.mark.parametrize("name", CLASSES)
def test_class_documents_its_contract(name: str) -> None:
    kind = getattr(inlayer, name)
    text = doc(kind)
    if name in RETURNED:
        members = vars(kind)["__annotations__"] if is_dataclass(kind) else dir(inlayer.load("default"))
        assert set(described(text, "Attributes")) <= set(members)
        assert len(described(text, "Attributes")) > 5
    elif name not in NO_ARGUMENTS:
        parameters = list(inspect.signature(kind).parameters)
        assert set(described(text, "Args")) <= set(parameters)
        assert name in BY_FIELD or described(text, "Args") == parameters
        assert described(text, "Raises")


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_are_documented(name: str) -> None:
    kind = getattr(inlayer, name)
    for member in (member for member in vars(kind) if not member.startswith("_")):
        value = inspect.getattr_static(kind, member)
        if isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value):
            assert inspect.getdoc(getattr(kind, member)), f"{name}.{member}"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PUBLIC])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a `model` and a `book.txt`."""
    value = getattr(inlayer, name)
    module = importlib.import_module(value.__module__)
    shutil.copytree(SAMPLE, tmp_path / "model")
    (tmp_path / "book.txt").write_text("\n".join(topics.topics.values())[:100_000], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"inlayer": inlayer, "torch": importlib.import_module("torch")} | vars(module)
    found = doctest.DocTestFinder(recurse=inspect.isclass(value)).find(value, name, module, globs=names)
    assert any(test.examples for test in found if test.name == name)
    assert "+SKIP" not in "".join(test.docstring for test in found)
    messages: list[str] = []
    for test in found:
        runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
        runner.run(test, out=messages.append)
    assert not messages, "".join(messages)
