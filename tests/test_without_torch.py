"""The light core in an environment without torch: open checkpoints, read rows, describe configs, tokenize, inspect.

The environment is a folder of links to every installed package except torch and those that import it; Python runs in
isolated mode with that folder and the source tree as its only search paths.
"""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import inlayer

SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])
SOURCE = Path(inlayer.__file__).parent.parent
NEED_TORCH = ("torch", "functorch", "transformers", "jaxtyping", "accelerate")

LIGHT = """
import json, sys
import inlayer
folder = sys.argv[1]
default = inlayer.load("default")
rows = default.table.rows([1, 2])
assert inlayer.inspect("default").exit_code == 0
opened = {name: inlayer.load(f"{folder}/{name}").table.rows([[0, 1]]).tolist() for name in json.loads(sys.argv[2])}
spec = inlayer.describe({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
halves = inlayer.load("default", dtype="bfloat16").table.rows(1)
report = inlayer.inspect("default")
errors = []
for name in ("Embeddings", "Head", "Table", "walk"):
    try:
        getattr(inlayer, name)
    except inlayer.InlayerError as error:
        errors.append(str(error))
try:
    default.embeddings
except ImportError as error:
    errors.append(str(error))
assert "torch" not in sys.modules
print(json.dumps({
    "rows": rows.tolist(), "opened": opened, "errors": errors, "halves": str(halves.dtype),
    "tokens": default.tokenizer.encode("I love dogs"), "positions": spec.positions,
    "report": report.to_dict(),
}))
"""


IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules.update(torch=None, jaxtyping=None)
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        if found.name != "inlayer.checkpoint.layer":  # builds the torch modules of a model
            importlib.import_module(found.name)
"""


def light_core() -> list[str]:
    contracts = configparser.ConfigParser()
    contracts.read(SOURCE / ".importlinter")
    return contracts["importlinter:contract:light-core"]["source_modules"].split()


def test_every_module_of_the_light_core_imports_without_torch() -> None:
    """Imports inside a call are allowed, so the import contract ignores them; this test finds those at the top."""
    assert {"inlayer.encoding", "inlayer.ragged", "inlayer.checkpoint", "inlayer.formats"} <= set(light_core())
    subprocess.run([sys.executable, "-c", IMPORT_ALL, *light_core()], check=True)


def test_the_diagram_shows_every_package_and_the_light_core() -> None:
    diagram = (SOURCE / "docs/architecture.svg").read_text(encoding="utf-8")
    boxes = re.findall(r'<rect [^>]*fill="([^"]+)"[^>]*/><text [^>]*>([^<]+)</text><text [^>]*>([^<]+)</text>', diagram)
    (light,) = re.findall(r'fill="([^"]+)"[^>]*/><text [^>]*>light core', diagram)
    names = {path.stem for path in (SOURCE / "inlayer").iterdir() if path.suffix == ".py" or path.is_dir()}
    names = {name for name in names if not name.startswith("__")} - {"samples"}  # a folder of data
    assert names <= set(re.findall(r"\w+", " ".join(" ".join(texts) for _, *texts in boxes)))
    shown = {name for fill, title, _ in boxes if fill == light for name in title.split(", ")}
    assert shown | {"tables"} == {name.split(".")[1] for name in light_core()}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without-torch")
    for entry in SITE_PACKAGES.iterdir():
        if not entry.name.startswith(NEED_TORCH) and entry.suffix != ".pth" and "inlayer" not in entry.name:
            (folder / entry.name).symlink_to(entry)
    return folder


def run(packages: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = f"import sys; sys.path[:0] = {[str(SOURCE), str(packages)]!r}\n"
    command = [sys.executable, "-I", "-S", "-c", paths + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_light_core_works_without_torch(packages: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    table = torch.arange(32.0).view(8, 4)
    save_file({"wte.weight": table.to(torch.bfloat16)}, tmp_path / "model.safetensors")
    torch.save({"wte.weight": table}, tmp_path / "old.bin")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "unknown")
    writer.add_tensor("token_embd.weight", table.numpy())
    for step in ("header_to_file", "kv_data_to_file", "tensors_to_file"):
        getattr(writer, f"write_{step}")()
    writer.close()
    files = ["model.safetensors", "old.bin", "model.gguf"]
    done = run(packages, LIGHT, str(tmp_path), json.dumps(files))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    model = inlayer.load("default")
    assert found["rows"] == model.embeddings.token_embedding(torch.tensor([1, 2])).tolist()
    assert found["opened"] == {name: [table[:2].tolist()] for name in files}
    assert found["tokens"] == model.tokenizer.encode("I love dogs")
    assert found["report"] == json.loads(json.dumps(inlayer.inspect("default").to_dict()))
    assert (found["halves"], found["positions"]) == ("bfloat16", "rotary")
    needs = ["inlayer.Embeddings", "inlayer.Head", "inlayer.Table", "inlayer.walk", "Model.embeddings"]
    assert found["errors"] == [f"{name} needs torch: pip install 'inlayer[torch]'" for name in needs]


def test_command_that_needs_torch_says_how_to_install_it(packages: Path) -> None:
    done = run(packages, "sys.argv = ['inlayer', 'walk', 'Hi']\nfrom inlayer.__main__ import main\nmain()")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "inlayer: this command needs torch: pip install 'inlayer[torch]'\n"


def test_environment_really_has_no_torch(packages: Path) -> None:
    assert "No module named 'torch'" in run(packages, "import torch").stderr
    assert run(packages, "import numpy, inlayer.checkpoint").returncode == 0
