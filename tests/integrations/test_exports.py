"""The names that `inlayer.integrations` exports, and the model that all adapters open."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import inlayer
from inlayer import integrations
from inlayer.errors import InputError


def test_names_are_exported_and_match_those_for_type_checkers() -> None:
    assert dir(integrations) == integrations.__all__ == ["EmbedColumn", "TableModule", "TextEncoder", "attach"]
    for name, module in integrations._MODULES.items():
        home = importlib.import_module(f"inlayer.integrations.{module}")
        assert getattr(integrations, name) is getattr(home, name)
    assert integrations.attach is inlayer.attach
    tree = ast.parse(Path(integrations.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.asname, node.module) for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {(name, f"inlayer.integrations.{module}") for name, module in integrations._MODULES.items()}
    with pytest.raises(AttributeError, match="no attribute 'TextEncodr'"):
        _ = integrations.TextEncodr


def test_importing_the_package_loads_no_library() -> None:
    code = "import inlayer.integrations, sys; print({'torch', 'sklearn', 'datasets', 'transformers'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def use(name: str, *source: Any) -> Any:
    if name == "EmbedColumn":
        return integrations.EmbedColumn(*source)({"text": ["I love dogs"]})["embedding"]
    if name == "TextEncoder":
        return integrations.TextEncoder(*source).fit_transform(["I love dogs"])
    module = integrations.TableModule(*source)
    return module(module.preprocess(["I love dogs"]))["sentence_embedding"].numpy()


@pytest.mark.parametrize("name", ["EmbedColumn", "TableModule", "TextEncoder"])
def test_only_an_omitted_source_is_the_sample_model(name: str) -> None:
    assert use(name).tolist() == inlayer.load().encode(["I love dogs"]).tolist()
    with pytest.raises(InputError, match=r"source is None; pass anything that inlayer\.load accepts, or omit it"):
        use(name, None)
