"""Lookups under torch.compile: one graph, with the values of eager mode.

In its own process, because pytest's type checks cannot be compiled.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from inlayer.tables import MappedEmbedding, Table
from inlayer.tables import table as table_module
from safetensors.torch import save_file
import sys, tempfile, pathlib

table_module.MIN_BUFFERED_BYTES = 1
ids = torch.tensor([[1, 2], [6, 0]])
path = pathlib.Path(tempfile.mkdtemp()) / "t.safetensors"
save_file({"rows": torch.randn(7, 4)}, path)
for table in (Table(7, 4, padding_idx=1), MappedEmbedding(path)):
    assert table.weight.shape == (7, 4)  # a stored table is mapped before it is traced
    compiled = torch.compile(table, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        first, second = compiled(ids), compiled(ids.flip(0))
    assert torch.equal(first, table.weight[ids])  # the second call did not reuse its memory
    assert torch.equal(second, table.weight[ids.flip(0)])
    assert torch.equal(compiled(ids), table(ids))
table = Table(7, 4, padding_idx=1)
torch.compile(table, backend="aot_eager", fullgraph=True)(ids).sum().backward()
assert bool((table.weight.grad[1] == 0).all()) and bool((table.weight.grad[2] == 1).all())
exported = torch.export.export(table, (ids,)).module()
assert torch.equal(exported(ids.flip(0)), table(ids.flip(0)))
"""


@pytest.mark.slow
def test_compiled_and_exported_rows_equal_eager_rows() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True)
