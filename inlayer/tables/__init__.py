"""ids -> rows: the tables, and looking rows up in them.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- `Table` in memory (tables/memory.py), `StoredTable` wherever its bytes are (tables/stored.py), `MappedTable` in a
  safetensors file (tables/mapped.py), `look_up` for a bare tensor
"""

from inlayer.tables.lookup import add_up, check_id_range, look_up
from inlayer.tables.mapped import MappedTable
from inlayer.tables.memory import Table
from inlayer.tables.stored import StoredTable

__all__ = ["MappedTable", "StoredTable", "Table", "add_up", "check_id_range", "look_up"]
