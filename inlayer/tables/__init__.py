"""Tables: token ids -> rows.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- `StoredTable` reads rows from wherever they are stored, without torch (tables/stored_table.py)
- everything else needs torch and is imported on first use: `Table` in memory and trainable, `StoredEmbedding` (a
  StoredTable as a module), `MappedEmbedding` (a table in a safetensors file), and `look_up` for a tensor
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inlayer.formats.row_reader import RowSource
from inlayer.tables.stored_table import StoredTable

if TYPE_CHECKING:
    from inlayer.tables.stored_embedding import MappedEmbedding, StoredEmbedding
    from inlayer.tables.table import Table, add_into_buffer, check_id_range, look_up

__all__ = [
    "MappedEmbedding", "RowSource", "StoredEmbedding", "StoredTable", "Table", "add_into_buffer", "check_id_range",
    "look_up",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'inlayer.tables' has no attribute {name!r}")
    home = "stored_embedding" if name in ("MappedEmbedding", "StoredEmbedding") else "table"
    return getattr(import_module(f"inlayer.tables.{home}"), name)
