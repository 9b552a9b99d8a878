"""Nearest rows of a table: one query compared with a pass over its bytes, and many queries compared with faiss.

- one query over 163,840 x 7,168 bfloat16 in a file, without torch. The lower bound is one numpy pass over the same
  bytes: the sum of the mapped file as 64-bit integers, on one core
- 1,000 queries over 262,144 x 640 float32, compared with the exact flat index of faiss-cpu on unit vectors. Our time
  includes reading the file and normalizing the rows; that of faiss does not include building its index. The lower
  bound is the matrix product of rows and queries, by numpy
Each runs in its own process. The files are in the page cache, because the first round is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from benchmarks.measure import Result, interleave, milliseconds, ratio
from inlayer.formats.row_reader import FileRows
from inlayer.geometry.nearest import nearest
from inlayer.tables.stored_table import StoredTable

ONE = (163_840, 7_168, "bfloat16")
MANY = (262_144, 640, "float32")
QUERIES, K = 1_000, 10
BLOCK = 4_096  # rows written at once


def write_table(path: Path, rows: int, width: int, dtype: str) -> None:
    """Write a table of random rows, without a header."""
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    generator = np.random.default_rng(0)
    with path.open("wb") as output:
        for start in range(0, rows, BLOCK):
            block = generator.standard_normal((min(BLOCK, rows - start), width), np.float32)
            output.write(block.astype(kind).tobytes())


def open_table(path: Path, rows: int, width: int, dtype: str) -> StoredTable:
    """Open a table as a model does."""
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    return StoredTable(FileRows(path, 0, rows, width * kind.itemsize), width, kind)


def one_query(path: Path) -> dict[str, list[float]]:
    """Seconds of one query, and of one pass over the bytes."""
    table = open_table(path, *ONE)
    query = np.random.default_rng(1).standard_normal((1, ONE[1]))
    words: npt.NDArray[np.uint64] = table.source.memory_map().reshape(-1).view(np.uint64)
    peers: dict[str, Callable[[], object]] = {
        "numpy pass": lambda: np.add.reduce(words),
        "inlayer": lambda: nearest(table, query, K),
    }
    return interleave(peers, rounds=5)


def many_queries(path: Path) -> dict[str, list[float]]:
    """Seconds of many queries by inlayer and by faiss; the results are compared."""
    import faiss

    table = open_table(path, *MANY)
    queries = np.random.default_rng(1).standard_normal((QUERIES, MANY[1])).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(MANY[1])
    for _, rows in table.blocks(BLOCK):
        index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    block = table.rows(range(BLOCK))
    scores = np.empty((QUERIES, BLOCK), np.float32)

    def products() -> None:
        for _ in range(MANY[0] // BLOCK):
            np.matmul(queries, block.T, out=scores)

    ours, theirs = nearest(table, queries, K)[1], index.search(queries, K)[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    peers: dict[str, Callable[[], object]] = {
        "inlayer": lambda: nearest(table, queries, K),
        "faiss": lambda: index.search(queries, K),
        "products": products,
    }
    return interleave(peers, rounds=5)


def in_process(name: str, path: Path) -> dict[str, list[float]]:
    """Run one measurement in a new process."""
    command = [sys.executable, "-m", "benchmarks.neighbors", name, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, list[float]] = json.loads(done.stdout)
    return measured


def run() -> Iterator[Result]:
    """Yield one result per size."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for name, size, queries, compared in (
            ("one_query", ONE, 1, {"limit: one numpy pass": ("numpy pass", {"at_most": 3.0})}),
            (
                "many_queries", MANY, QUERIES,
                {"faiss IndexFlatIP": ("faiss", {"at_most": 1.0}), "limit: matrix products": ("products", {})},
            ),
        ):  # fmt: skip
            path = Path(folder) / "table"
            write_table(path, *size)
            seconds = in_process(name, path)
            sizes: dict[str, Any] = dict(zip(("rows", "width", "dtype"), size, strict=True)) | {"queries": queries}
            yield Result(
                name=f"neighbors_{name}",
                ratios=[
                    ratio(f"inlayer / {label}", seconds["inlayer"], seconds[peer], **target)
                    for label, (peer, target) in compared.items()
                ],
                measured=milliseconds(seconds),
                sizes=sizes,
            )


if __name__ == "__main__":
    if sys.argv[1] == "one_query":
        sys.modules["torch"] = None  # type: ignore[assignment]  # an import of torch would fail
    print(json.dumps({"one_query": one_query, "many_queries": many_queries}[sys.argv[1]](Path(sys.argv[2]))))
