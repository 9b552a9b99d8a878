"""Every example runs offline in an empty folder, and shows what it promises."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from safetensors.torch import save_file

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
OFFLINE = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
MAX_LINES = 50


def run(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    env = os.environ | OFFLINE
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", env=env, check=False)


def test_examples_are_listed_with_their_purpose() -> None:
    assert (len(SCRIPTS), len(NOTEBOOKS)) == (11, 2)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(.+?)\]\(\1\) \|", readme, flags=re.MULTILINE)) == sorted(SCRIPTS + NOTEBOOKS)
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(.+?)` \|", page, flags=re.MULTILINE)) == sorted(SCRIPTS + NOTEBOOKS)
    for name in SCRIPTS:
        source = (EXAMPLES / name).read_text(encoding="utf-8")
        assert source.count("\n") <= MAX_LINES, name
        docstring = ast.get_docstring(ast.parse(source))
        assert docstring is not None
        assert docstring.splitlines()[0].endswith("."), name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs(name: str, tmp_path: Path) -> None:
    if library := {"attach_transformers.py": "transformers", "classify_texts.py": "sklearn"}.get(name):
        pytest.importorskip(library)
    done = run(name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert ": False" not in done.stdout  # what a script claims about itself is true
    assert not list(tmp_path.iterdir())  # and it leaves nothing behind
    if name == "choose_initialization.py":
        page = (ROOT / "docs" / "howto" / "layer.md").read_text(encoding="utf-8")
        documented = [float(loss) for loss in re.findall(r"\| (\d\.\d+) \|$", page, flags=re.MULTILINE)]
        measured = [float(loss) for loss in re.findall(r"loss (.+)$", done.stdout, flags=re.MULTILINE)]
        assert len(documented) == 7
        assert measured == pytest.approx(documented, abs=0.1)


@pytest.mark.slow
def test_gate_fails_on_damage_and_on_nothing(tmp_path: Path) -> None:
    rows = torch.randn(100, 8)
    rows[7] = float("nan")
    save_file({"wte.weight": rows}, tmp_path / "model.safetensors")
    damaged = run("inspect_in_ci.py", "model.safetensors", cwd=tmp_path)
    assert damaged.returncode == 1
    assert "FAIL nan-rows" in damaged.stdout
    missing = run("inspect_in_ci.py", "nothing", cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "nothing: not found" in missing.stderr


def printed(book: nbformat.NotebookNode) -> list[str]:
    """The text that each code cell shows."""
    outputs = [cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code"]
    return ["".join(one.get("text") or one["data"]["text/plain"] for one in cell) for cell in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_shows_its_real_output(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in OFFLINE.items():
        monkeypatch.setenv(key, value)
    stored = nbformat.read(EXAMPLES / name, as_version=4)
    shown = printed(stored)
    assert len(shown) >= 5
    client = NotebookClient(stored, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    with ThreadPoolExecutor(1) as pool:  # in a thread: browser tests hold the event loop of this one
        pool.submit(asyncio.run, client.async_execute()).result()
    assert printed(stored) == shown
