"""Type checkers: what users copy from the README, the docs, and the examples passes `mypy --strict` as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console import ROOT

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
DOCUMENTS = {
    page: "".join(PYTHON.findall(page.read_text(encoding="utf-8")))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
SETUP = """
import torch
import inlayer
model, ids, hidden = inlayer.load(), torch.tensor([[1, 2]]), torch.zeros(1, 2, 128)
layer, head = inlayer.Embeddings(8, 128, positions="rotary"), inlayer.Head(128, 8)
"""
RETURNED = {  # typical calls, and what an editor shows for them
    "model": "inlayer.checkpoint.model.Model",
    "model.tokenizer": "inlayer.tokenizers.base.Tokenizer",
    "model.tokenizer.encode_batch(['a']).padded(0)": "tuple[torch._tensor.Tensor, torch._tensor.Tensor]",
    "model.embeddings(ids)": "torch._tensor.Tensor",
    "model.head(hidden)": "torch._tensor.Tensor",
    "model.table.rows([1])": "numpy.ndarray[",
    "model.encode(['a'])": "numpy.ndarray[",
    "model.encode('a', pool='none')": "inlayer.encoding.encode.TokenVectors",
    "next(model.encode_iter(['a'], pool='none')).offsets": "numpy.ndarray[",
    "model.similarity('a', 'b')": "numpy.ndarray[",
    "model.neighbors('seven')[0].score": "float",
    "model.neighbors(model.table.rows([1])[0])": "list[",
    "model.project().points": "numpy.ndarray[",
    "layer(ids)": "torch._tensor.Tensor",
    "layer(inputs_embeds=hidden)": "torch._tensor.Tensor",
    "layer.rotary(ids)": "tuple[torch._tensor.Tensor, torch._tensor.Tensor]",
    "layer.token_embedding(ids)": "torch._tensor.Tensor",
    "head(hidden)": "torch._tensor.Tensor",
    "head.loss(hidden, ids)": "torch._tensor.Tensor",
    "head.tie(layer)": "inlayer.head.Head",
    "inlayer.Table(8, 4)(ids)": "torch._tensor.Tensor",
    "inlayer.mean_pool(hidden)": "torch._tensor.Tensor",
    "inlayer.walk('a').texts[0].tokens[0].hidden": "list[float]",
    "inlayer.inspect().findings[0].code": "str",
    "inlayer.describe({}).positions": "Literal['none'] | Literal['learned'] | ",
}
WRONG = [  # spelling mistakes, and arguments of the wrong kind
    "inlayer.load('default', dtype=3)",
    "model.encode('a', pool='sum')",
    "model.neighbors('a', table='output')",
    "layer(hidden, 'rotary')",
    "inlayer.Embeddings(8, 4, positions='rotery')",
    "inlayer.Embeddings(8, 4, init='xavier')",
    "inlayer.Embeddings(8, 4, norm_eps=1e-5, norm_at='end')",
    "inlayer.Table(8, 4).resize(9, init='median')",
    "head.loss(hidden, ids, reduction='max')",
    "inlayer.walk('a', positions='rope')",
    "inlayer.TrainConfig(preset='tiny')",
    "inlayer.TrainConfig(lr_schedule='cos')",
]
CACHE = ROOT / ".mypy_cache" / "users"  # not the one of the package itself, which may be checked at the same time


def check(folder: Path) -> list[str]:
    """Check the scripts in a folder as a user would, with untyped libraries allowed; return the lines of the report."""
    untyped = ["--ignore-missing-imports", *(f"--untyped-calls-exclude={name}" for name in ("torch", "transformers"))]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", *untyped]
    command += [f"--cache-dir={CACHE}", "--follow-imports=silent", "."]
    env = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_documents_and_examples_pass_strict_checks(tmp_path: Path) -> None:
    for page, code in DOCUMENTS.items():
        if code:
            name = page.relative_to(ROOT).with_suffix(".py").as_posix().replace("/", "_").replace("-", "_")
            (tmp_path / name).write_text(code, encoding="utf-8")
    for script in SCRIPTS:
        shutil.copy(script, tmp_path / f"examples_{script.name}")
    assert len(list(tmp_path.iterdir())) > 20
    assert check(tmp_path) == []


@pytest.mark.slow
def test_calls_have_precise_types(tmp_path: Path) -> None:
    lines = [*SETUP.strip().splitlines(), *(f"reveal_type({call})" for call in RETURNED), *WRONG]
    (tmp_path / "calls.py").write_text("\n".join(lines), encoding="utf-8")
    found: dict[str, str] = {}
    for line in check(tmp_path):
        number, kind, text = re.fullmatch(r"calls\.py:(\d+): (\w+): (.*)", line).groups()
        found.setdefault(lines[int(number) - 1], f"{kind}: {text}".replace("builtins.", ""))
    for call, returned in RETURNED.items():
        shown = found.pop(f"reveal_type({call})")
        assert shown.startswith("note: Revealed type is "), (call, shown)
        assert returned in shown, call
    assert found.keys() == set(WRONG)
    assert all(message.startswith("error: ") for message in found.values()), found
