"""ids -> rows: the tables, and looking rows up in them.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- `Table` in memory (rows/table.py), `StoredTable` wherever its bytes are (rows/stored.py), `MappedTable` in a
  safetensors file (rows/mapped.py), `look_up` for a bare tensor
"""

from inlayer.rows.lookup import add_up, check_id_range, look_up
from inlayer.rows.mapped import MappedTable
from inlayer.rows.stored import StoredTable
from inlayer.rows.table import Table

__all__ = ["MappedTable", "StoredTable", "Table", "add_up", "check_id_range", "look_up"]
