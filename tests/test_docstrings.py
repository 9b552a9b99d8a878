"""Public names document their arguments, results and errors in Google style, and their examples run."""

from __future__ import annotations

import builtins
import doctest
import importlib
import inspect
import operator
import re
import shutil
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import pytest

import inlayer

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"
PUBLIC = sorted(set(inlayer.__all__) - {"__version__"})
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(inlayer, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(inlayer, name))]
TORCH_HOOKS = {"extra_repr", "reset_parameters"}  # called by torch, not by users
RETURNED = {"Model", "Report", "Trace"}  # made by a function; what matters are their attributes
NO_ARGUMENTS = {"ByteTokenizer", "InlayerError"}
SLOW = {"attach", "train"}


def members(name: str) -> dict[str, Any]:
    """The public methods and properties of a class and its bases, as functions with a docstring if one has it."""
    kind = getattr(inlayer, name)
    found: dict[str, Any] = {}
    for base in (base for base in kind.__mro__ if base.__module__.startswith("inlayer")):
        for member in (member for member in vars(base) if not member.startswith("_") and member not in TORCH_HOOKS):
            value = vars(base)[member]
            function = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
            if inspect.isfunction(function) and (member not in found or not found[member].__doc__):
                found[member] = function  # an override may leave its docstring to its base
    return dict(sorted(found.items()))


def is_property(kind: type, member: str) -> bool:
    return isinstance(inspect.getattr_static(kind, member), (property, cached_property))


MEMBERS = [(name, member) for name in CLASSES for member in members(name)]
PROPERTIES = [f"{name}.{member}" for name, member in MEMBERS if is_property(getattr(inlayer, name), member)]
METHODS = [f"{name}.{member}" for name, member in MEMBERS if f"{name}.{member}" not in PROPERTIES]


def section(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\n((?:^(?: .*)?\n?)+)", text, flags=re.MULTILINE)
    return found[1] if found else ""


def described(text: str, name: str) -> list[str]:
    """The names that a section describes."""
    return re.findall(r"^    (\w+):", section(text, name), flags=re.MULTILINE)


def doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def inherited_doc(name: str) -> str:
    """The docstring of a function or member; an override may leave it to the method that it overrides."""
    return inspect.getdoc(operator.attrgetter(name)(inlayer)) or ""


def may_raise(function: Any) -> bool:
    """Return whether its own code raises an error on purpose."""
    return re.search(r"^ +raise ", inspect.getsource(inspect.unwrap(function)), flags=re.MULTILINE) is not None


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_function_documents_its_contract(name: str) -> None:
    function = operator.attrgetter(name)(inlayer)
    text, signature = inherited_doc(name), inspect.signature(function)
    assert described(text, "Args") == [one for one in signature.parameters if one not in {"self", "cls"}]
    assert section(text, "Returns") or signature.return_annotation == "None"
    assert all(error[0].isupper() or error in vars(builtins) for error in described(text, "Raises"))
    assert described(text, "Raises") or not may_raise(function)
    assert section(text, "Example")  # test_examples_run runs it


@pytest.mark.parametrize("name", PROPERTIES)
def test_property_is_in_an_example(name: str) -> None:
    """Its own, or that of its class."""
    kind, member = name.split(".")
    text = inherited_doc(name)
    assert text
    assert section(text, "Example") or f".{member}" in section(doc(getattr(inlayer, kind)), "Example")


@pytest.mark.parametrize("name", CLASSES)
def test_class_documents_its_contract(name: str) -> None:
    kind = getattr(inlayer, name)
    text = doc(kind)
    if name in RETURNED:
        model = inlayer.load("default")
        own = [field.name for field in fields(kind)] if is_dataclass(kind) else {*vars(model)} - {*dir(kind)}
        named = {*described(text, "Attributes"), *re.findall(r"`(\w+)`", section(text, "Attributes"))}
        assert {one for one in own if one[0] != "_"} <= named
        assert set(described(text, "Attributes")) <= {*own, *dir(model)}
    elif name not in NO_ARGUMENTS:
        parameters = list(inspect.signature(kind).parameters)
        assert described(text, "Args") == parameters
        assert described(text, "Raises")


REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
DEEPER = re.findall(  # positions, adapters, the server, and results, which are not imported from inlayer itself
    r"^::: inlayer\.([\w.]+)\.(\w+)$(?:\n    options:\n      members: (\[.*\])$)?",
    "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md"))),
    re.MULTILINE,
)
ENDLESS = {"serve"}  # runs until Ctrl-C
NOT_IN_EXAMPLES = {"make_app", "TrainingReport", "LossSummary"}  # made by a command, or by a run of inlayer.train


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "listed"), DEEPER)
def test_other_names_of_the_reference_document_their_contract(
    module: str, name: str, listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module.startswith("integrations."):
        pytest.importorskip(module.partition(".")[2])
    home = importlib.import_module(f"inlayer.{module}")
    value = getattr(home, name)
    shown = [key for key in vars(value) if key[0] != "_" and key not in TORCH_HOOKS and (not listed or key in listed)]
    own = [getattr(vars(value)[key], "__func__", vars(value)[key]) for key in shown]
    is_result = section(doc(value), "Attributes") != ""
    if is_result:  # made by a function; what matters are its attributes
        attributes = getattr(value, "__dataclass_fields__", getattr(value, "_fields", ()))
        assert not attributes or described(doc(value), "Attributes") == list(attributes)
        assert section(doc(value), "Example") or name in NOT_IN_EXAMPLES
    for one in [*[value] * (not is_result), *filter(inspect.isfunction, own if inspect.isclass(value) else [])]:
        text, signature = doc(one), inspect.signature(one)
        parameters = [parameter for parameter in signature.parameters if parameter not in {"self", "cls"}]
        assert re.findall(r"^    (?:\*+)?(\w+):", section(text, "Args"), flags=re.MULTILINE) == parameters
        assert section(text, "Returns") or signature.return_annotation in {"None", None} or inspect.isclass(one)
        assert described(text, "Raises") or not may_raise(one)
        assert section(text, "Example") or name in ENDLESS | NOT_IN_EXAMPLES
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    names = {"inlayer": inlayer, "np": np, "torch": importlib.import_module("torch")} | vars(home) | {name: value}
    run_examples(doctest.DocTestFinder().find(value, name, globs=names))


def test_the_reference_has_more_than_the_main_names() -> None:
    assert len(DEEPER) >= 17
    names = {name for _, name, _ in DEEPER}
    assert {"RotaryPositions", "TextEncoder", "serve", "Tokenizer", "Neighbor", "LayerSpec", "StoredTable"} <= names


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PUBLIC])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a `model` and a `book.txt`."""
    value = getattr(inlayer, name)
    module = importlib.import_module(value.__module__)
    shutil.copytree(SAMPLE, tmp_path / "model")
    (tmp_path / "book.txt").write_text("\n".join(topics.topics.values())[:100_000], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {one: getattr(inlayer, one) for one in PUBLIC}  # the imports that docs/reference/index.md gives
    names |= {"inlayer": inlayer, "np": np, "torch": importlib.import_module("torch")}
    finder = doctest.DocTestFinder(recurse=False)
    found = finder.find(value, name, module, globs=names)
    assert any(test.examples for test in found)
    for member in members(name).values() if inspect.isclass(value) else ():
        found += finder.find(member, f"{name}.{member.__name__}", False, globs=names)
    run_examples(found)


def run_examples(found: list[doctest.DocTest]) -> None:
    assert "+SKIP" not in "".join(test.docstring for test in found)
    messages: list[str] = []
    for test in found:
        runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
        runner.run(test, out=messages.append)
    assert not messages, "".join(messages)
