"""Tables that only some models have, on exported pages: per layer, for values, by distance, n-gram memories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import inlayer
from inlayer.inspection.html import inspect_page
from inlayer.trace import Pipeline
from inlayer.trace.html import export
from tests.checkpoint.test_ngram_tables import DAMAGED, write_engram
from tests.families.survey import save_tiny
from tests.families.test_value import saved as saved_values
from tests.families.tiny import VOCAB
from tests.trace.test_per_layer import opened_with_words
from tests.trace.test_relative import BUCKETS, saved

pytestmark = pytest.mark.slow
TEXT = "w5 w6 w7"


def opened(open_file: Any, folder: Path, model: inlayer.Model, step: int) -> Any:
    """The exported page of a walk, at one step."""
    file = folder / "walk.html"
    file.write_text(export(Pipeline(model), [TEXT], step=step), encoding="utf-8")
    return open_file(file)


def test_per_layer_strips_have_the_bytes_of_each_block(open_file: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_tiny("gemma4_text", "causal", str(tmp_path))
    model = inlayer.load(tmp_path)
    words = inlayer.WordTokenizer.from_text(" ".join(f"w{number}" for number in range(VOCAB - 10)))
    model.__dict__["tokenizer"] = words  # in place of the cached property
    facts = inlayer.walk(TEXT, model).per_layer
    assert facts is not None
    assert facts.offsets is not None
    assert facts.row_bytes is not None
    watched = opened(open_file, tmp_path, model, 4)
    cells = [cell for cell in watched.shown() if cell["field"] == "perLayer"]
    assert len(cells) == 3 * facts.layers
    for cell in cells:
        assert float(cell["value"]) == facts.norms[0][int(cell["t"])][int(cell["s"])]
    watched.page.hover("[data-field=perLayer][data-t='1'][data-s='2']")
    start = facts.offsets[0][1] + 2 * facts.row_bytes // facts.layers
    shown = watched.inspector()
    assert f"{start:,}" in shown
    raw = (tmp_path / "model.safetensors").read_bytes()
    row = torch.frombuffer(bytearray(raw[start : start + 4 * facts.width]), dtype=torch.float32)
    extra = model.embeddings.per_layer_embedding
    assert extra is not None
    expected = extra.look_up(torch.tensor([[model.tokenizer.encode(TEXT)[1]]]))[0, 0]
    assert torch.equal(row * facts.width**0.5, expected[2])
    assert not torch.equal(row * facts.width**0.5, expected[1])  # control: another block


def test_vectors_without_a_table(open_file: Any, tmp_path: Path) -> None:
    save_tiny("embedding_gemma2_text", "encoder", str(tmp_path))
    watched = opened(open_file, tmp_path, opened_with_words(tmp_path), 4)
    assert "Each block gets a projection of the token's row." in watched.text(".per-layer")
    assert "Tensor" not in watched.text(".per-layer")
    watched.page.hover("[data-field=perLayer][data-t='1'][data-s='2']")
    assert "token 1, block 2" in watched.inspector()


def test_experts_of_each_token(open_file: Any, tmp_path: Path) -> None:
    save_tiny("deepseek_v4", "causal", str(tmp_path))
    model = opened_with_words(tmp_path)
    watched = opened(open_file, tmp_path, model, 4)
    experts = inlayer.walk(TEXT, model).routing[0].experts[0]
    shown = watched.page.locator(".routing tbody tr td:nth-child(2)").all_inner_texts()
    assert shown == [", ".join(map(str, one)) for one in experts]


def test_value_embeddings_are_those_of_the_trace(open_file: Any, tmp_path: Path) -> None:
    saved_values(tmp_path, torch.float32)
    model = inlayer.load(tmp_path)
    words = inlayer.WordTokenizer.from_text(" ".join(f"w{number}" for number in range(VOCAB - 10)))
    model.__dict__["tokenizer"] = words  # in place of the cached property
    facts = inlayer.walk(TEXT, model).value_embeddings
    assert facts is not None
    assert facts.offsets is not None
    watched = opened(open_file, tmp_path, model, 4)
    cells = [cell for cell in watched.shown() if cell["field"] == "value"]
    assert [float(cell["value"]) for cell in cells] == [value for row in facts.vectors[0] for value in row]
    watched.page.hover("[data-field=value][data-t='1'][data-d='3']")
    assert f"{facts.offsets[0][1]:,}" in watched.inspector()


@pytest.mark.parametrize(
    ("name", "kind", "settings"),
    [("bloom", "causal", {}), ("t5", "seq2seq", BUCKETS), ("deberta", "masked", {"relative_attention": True})],
)
def test_relative_positions_are_those_of_the_trace(
    open_file: Any, tmp_path: Path, name: str, kind: str, settings: dict[str, Any]
) -> None:
    _, model = saved(tmp_path, name, kind, torch.float32, **settings)
    facts = inlayer.walk(TEXT, model).positions.relative
    assert facts is not None
    watched = opened(open_file, tmp_path, model, 6)
    shown = watched.shown()
    biases = {(int(cell["s"]), int(cell["id"])): float(cell["value"]) for cell in shown if cell["field"] == "bias"}
    assert biases == {(s, at): value for s, values in enumerate(facts.bias) for at, value in enumerate(values)}
    slopes = [float(cell["value"]) for cell in shown if cell["field"] == "slope"]
    assert slopes == facts.slopes
    buckets = [int(cell["value"]) for cell in shown if cell["field"] == "bucket"]
    column = facts.columns.index
    matrix = [facts.rows[column(key - query)] for query in range(3) for key in range(3)] if facts.rows else []
    assert buckets == facts.rows + matrix
    if facts.rows:
        watched.page.hover("[data-field=bucket]")
        assert f"{facts.offsets[0]:,}" in watched.inspector()


@pytest.mark.parametrize("damaged", [False, True])
def test_inspect_page_has_the_memories_and_their_check(browser: Any, tmp_path: Path, damaged: bool) -> None:
    write_engram(tmp_path, change=DAMAGED["no rows"][0] if damaged else None)
    report = inlayer.inspect(tmp_path)
    file = tmp_path / "inspect.html"
    file.write_text(inspect_page(report, inlayer.load(tmp_path)), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#facts dd")
    shown = page.inner_text("#facts")
    page.close()
    for memory in report.ngrams:
        assert f"in layer {memory.layer}: {memory.heads} hash heads" in shown
        assert f"{memory.rows:,} x {memory.width}" in shown
    assert "N-grams" in shown
    assert shown.count(" in 1 tensor") == (1 if damaged else 2)
    assert ("the files do not match the config" in shown) is damaged
