"""An adapter whose library is not installed names the pip command."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import importlib, sys
class Blocked:
    def find_spec(name, *_):
        if name == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked)
try:
    importlib.import_module("inlayer.integrations." + sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""

SENTENCE_TRANSFORMERS = "needs sentence-transformers: pip install sentence-transformers"


@pytest.mark.parametrize(
    ("adapter", "missing", "expected"),
    [
        ("sklearn", "sklearn", "needs scikit-learn: pip install scikit-learn"),
        ("sentence_transformers", "sentence_transformers", SENTENCE_TRANSFORMERS),
        ("sentence_transformers", "torch", "needs torch: pip install 'inlayer[torch]'"),
        ("transformers", "torch", "needs torch: pip install 'inlayer[torch]'"),
        ("transformers", "jaxtyping", "needs torch: pip install 'inlayer[torch]'"),
        ("transformers", "transformers", None),  # these two do not import their library
        ("datasets", "datasets", None),
        ("sklearn", "scipy", "ModuleNotFoundError"),  # a broken installation is not a missing extra
    ],
)  # fmt: skip
def test_missing_library_is_named(adapter: str, missing: str, expected: str | None) -> None:
    command = [sys.executable, "-c", BLOCKED, adapter, missing]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if expected is None or expected == "ModuleNotFoundError":
        assert printed.split(" ")[0] == (expected or "")
    else:
        assert printed == f"MissingExtraError inlayer.integrations.{adapter} {expected}"
