"""Tables: token ids -> rows.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- `StoredTable` reads rows from wherever they are stored, without torch (tables/stored.py)
- everything else needs torch and is imported on first use: `Table` in memory and trainable (tables/memory.py),
  `StoredEmbedding`, a StoredTable as a module, and `MappedTable`, one in a safetensors file
  (tables/stored_embedding.py), `look_up` for a bare tensor (tables/lookup.py)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inlayer.tables.stored import RowSource, StoredTable

if TYPE_CHECKING:
    from inlayer.tables.lookup import add_up, check_id_range, look_up
    from inlayer.tables.memory import Table
    from inlayer.tables.stored_embedding import MappedTable, StoredEmbedding

__all__ = [
    "MappedTable",
    "RowSource",
    "StoredEmbedding",
    "StoredTable",
    "Table",
    "add_up",
    "check_id_range",
    "look_up",
]

_TORCH_MODULES = {
    "MappedTable": "stored_embedding",
    "StoredEmbedding": "stored_embedding",
    "Table": "memory",
    "add_up": "lookup",
    "check_id_range": "lookup",
    "look_up": "lookup",
}


def __getattr__(name: str) -> Any:
    if name not in _TORCH_MODULES:
        raise AttributeError(f"module 'inlayer.tables' has no attribute {name!r}")
    return getattr(import_module(f"inlayer.tables.{_TORCH_MODULES[name]}"), name)
