"""Adapters for other libraries; names are resolved on first use, because each requires its library.

from inlayer.integrations import TextEncoder, EmbedColumn, TableModule, attach
Tested in tests/integrations/.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; Python uses the table below, and a test compares the two
    from inlayer.integrations.datasets import EmbedColumn as EmbedColumn
    from inlayer.integrations.sentence_transformers import TableModule as TableModule
    from inlayer.integrations.sklearn import TextEncoder as TextEncoder
    from inlayer.integrations.transformers import attach as attach

_MODULES = {
    "EmbedColumn": "datasets",
    "TableModule": "sentence_transformers",
    "TextEncoder": "sklearn",
    "attach": "transformers",
}

__all__ = ["EmbedColumn", "TableModule", "TextEncoder", "attach"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'inlayer.integrations' has no attribute {name!r}")
    value = getattr(import_module(f"inlayer.integrations.{_MODULES[name]}"), name)
    globals()[name] = value  # found directly next time
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
