"""Second tables in a walk: bytes, norms and values match the file and the library, also on the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import inlayer
from inlayer.trace.terminal import show
from tests.families.survey import save_tiny
from tests.families.test_value import saved
from tests.families.tiny import VOCAB
from tests.trace.schema import FILE

PER_LAYER = "model.embed_tokens_per_layer.weight"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> inlayer.Model:
    folder = tmp_path_factory.mktemp("gemma")
    torch.manual_seed(0)
    save_tiny("gemma4_text", "causal", str(folder))
    words = " ".join(f"w{number}" for number in range(VOCAB - 10))
    model = inlayer.load(folder)
    model.__dict__["tokenizer"] = inlayer.WordTokenizer.from_text(words)  # in place of the cached property
    return model


def test_facts_are_those_of_the_file(gemma: inlayer.Model) -> None:
    trace = inlayer.walk(["w5 w6 w5", "w7"], gemma)
    facts = trace.per_layer
    assert facts is not None
    assert (facts.tensor, facts.rows, facts.layers, facts.width) == (PER_LAYER, VOCAB, 4, 256)
    file = Path(gemma.source) / "model.safetensors"
    with safe_open(file, "np") as opened:
        table = opened.get_tensor(PER_LAYER)
    ids = torch.tensor([[token.id for token in text.tokens] for text in trace.texts])
    assert facts.offsets is not None
    assert facts.row_bytes == 4096
    raw = file.read_bytes()
    offsets = [offset for text in facts.offsets for offset in text]
    for row, offset in zip(ids.flatten().tolist(), offsets, strict=True):
        assert raw[offset : offset + 4096] == table[row].tobytes()
    torch.testing.assert_close(torch.tensor(facts.norms), gemma.embeddings.per_layer(ids).norm(dim=-1))
    window = inlayer.walk("w5 w6 w5", gemma, first_token=1).per_layer
    assert window is not None
    assert window.norms[0] == facts.norms[0][1:]
    assert window.norms[0][0] != facts.norms[0][0]  # control: another token


def test_heads_of_each_layer_type(gemma: inlayer.Model) -> None:
    rotary = {facts.layer_type: facts for facts in inlayer.walk("w5 w6", gemma).positions.rotary}
    assert (rotary["full_attention"].head_dim, rotary["full_attention"].n_pairs) == (32, 16)
    assert (rotary["sliding_attention"].head_dim, rotary["sliding_attention"].n_pairs) == (16, 8)


def test_terminal_and_json_show_them(gemma: inlayer.Model) -> None:
    trace = inlayer.walk("w5 w6", gemma)
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    for columns in (60, 120):
        output = io.StringIO()
        show(trace, Console(file=output, width=columns, force_terminal=False), step=4)
        text = output.getvalue()
        assert f"per-layer table: {PER_LAYER}" in text
        assert all(len(line) <= columns for line in text.splitlines())
        assert trace.per_layer is not None
        assert f"byte {trace.per_layer.offsets[0][1]:,}" in text
    assert inlayer.walk("I love dogs", "default").per_layer is None


def test_vectors_without_a_second_table(tmp_path: Path) -> None:
    """EmbeddingGemma-2 projects them from the token's row."""
    save_tiny("embedding_gemma2_text", "encoder", str(tmp_path))
    trace = inlayer.walk("w5 w6", opened_with_words(tmp_path))
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    facts = trace.per_layer
    assert facts is not None
    assert (facts.tensor, facts.rows, facts.offsets) == ("", 0, None)
    ids = torch.tensor([[token.id for token in trace.texts[0].tokens]])
    vectors = inlayer.load(tmp_path).embeddings.per_layer(ids)
    torch.testing.assert_close(torch.tensor(facts.norms), vectors.norm(dim=-1))
    assert "per-layer embeddings: projections of the token's row" in printed(trace, 80)


def test_experts_of_each_token(tmp_path: Path) -> None:
    """DeepSeek-V4: the first blocks choose the experts of a token by its id."""
    save_tiny("deepseek_v4", "causal", str(tmp_path))
    opened = opened_with_words(tmp_path)
    names = [table.name for table in opened.tables if table.role == "routing"]
    assert names
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        tables = [file.get_tensor(name) for name in names]
    tables[0][5], tables[0][6] = (3, 1), (0, 2)
    tensors = load_file(tmp_path / "model.safetensors") | {names[0]: torch.from_numpy(tables[0])}
    save_file(tensors, tmp_path / "model.safetensors")
    trace = inlayer.walk(["w5 w6 w7", "w8 w9 w5"], opened_with_words(tmp_path), first_token=1)
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    assert [facts.tensor for facts in trace.routing] == names
    raw = (tmp_path / "model.safetensors").read_bytes()
    for facts, table in zip(trace.routing, tables, strict=True):
        for t, token in enumerate(trace.texts[0].tokens):
            assert facts.experts[0][t] == table[token.id].tolist()
            assert facts.offsets is not None
            assert raw[facts.offsets[0][t] :][: facts.row_bytes] == table[token.id].tobytes()
    for columns in (40, 120):
        text = printed(trace, columns)
        assert "routing:" in text
        assert all(len(line) <= columns for line in text.splitlines())
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # strict: raises on other characters
    show(trace, Console(file=ascii_only, width=16, force_terminal=False), step=4)
    assert inlayer.walk("I love dogs", "default").routing == []


def opened_with_words(folder: Path) -> inlayer.Model:
    opened = inlayer.load(folder)
    words = " ".join(f"w{number}" for number in range(VOCAB - 10))
    opened.__dict__["tokenizer"] = inlayer.WordTokenizer.from_text(words)  # in place of the cached property
    return opened


def printed(trace: inlayer.Trace, columns: int) -> str:
    output = io.StringIO()
    show(trace, Console(file=output, width=columns, force_terminal=False), step=4)
    return output.getvalue()


def test_value_embeddings(tmp_path: Path) -> None:
    model = saved(tmp_path, torch.float32)
    opened = inlayer.load(tmp_path)
    words = " ".join(f"w{number}" for number in range(VOCAB - 10))
    opened.__dict__["tokenizer"] = inlayer.WordTokenizer.from_text(words)
    trace = inlayer.walk("w5 w6 w7", opened, first_token=1, first_channel=2, dims=4)
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    facts, ids = trace.value_embeddings, [token.id for token in trace.texts[0].tokens]
    assert facts is not None
    assert (facts.rows, facts.width, facts.layers) == (VOCAB, 32, [1, 3])
    theirs = model.model.value_embeddings.weight.detach()
    assert facts.vectors[0] == theirs[ids, 2:6].tolist()
    assert facts.vectors[0] != theirs[ids, 1:5].tolist()  # control: another channel
    raw = (tmp_path / "model.safetensors").read_bytes()
    assert facts.offsets is not None
    for row, offset in zip(ids, facts.offsets[0], strict=True):
        assert raw[offset : offset + 128] == theirs[row].numpy().tobytes()
    for columns in (50, 120):
        output = io.StringIO()
        show(trace, Console(file=output, width=columns, force_terminal=False), step=4)
        assert "value embeddings: model.value_embeddings.weight" in " ".join(output.getvalue().split())
        assert all(len(line) <= columns for line in output.getvalue().splitlines())
