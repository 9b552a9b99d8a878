"""N-gram memories in a walk: rows, bytes and shared rows equal the library's, on the terminal and in JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from rich.console import Console

import inlayer
from inlayer.trace.terminal import show
from tests.checkpoint.test_ngram_tables import write_engram, write_longcat
from tests.trace.schema import FILE

TEXTS = ["the dog The dog", "do"]


@pytest.fixture(scope="module")
def engram(tmp_path_factory: pytest.TempPathFactory) -> inlayer.checkpoint.model.Model:
    folder = tmp_path_factory.mktemp("engram")
    write_engram(folder)
    return inlayer.load(folder)


def test_rows_and_bytes_are_those_of_the_files(engram: inlayer.checkpoint.model.Model) -> None:
    trace = inlayer.walk(TEXTS[0], engram)
    ids = torch.tensor([[token.id for token in trace.texts[0].tokens]])
    raw = (Path(engram.source) / "model.safetensors").read_bytes()
    for facts, memory in zip(trace.ngram_memories, engram.ngram_memories, strict=True):
        expected = engram.embeddings.ngram_ids(ids, layer=facts.layer)[0]
        assert facts.rows == memory.spec.rows
        for token, rows in zip(facts.reads[0], expected.tolist(), strict=True):
            assert [row for read in token for row in read.rows] == rows
            assert [read.order for read in token] == [2, 3, 4]
            for read in token:
                for row, offset in zip(read.rows, read.offsets, strict=True):
                    stored = raw[offset : offset + memory.spec.width]
                    values = torch.frombuffer(bytearray(stored), dtype=torch.float8_e4m3fn).float()
                    ratio = torch.from_numpy(memory.table.rows(row).astype(np.float32)) / values
                    assert ratio[values != 0].unique().numel() <= 2  # the scales of two blocks
        distinct = {row for rows in expected.tolist() for row in rows}
        assert (facts.rows_read, facts.bytes_read) == (len(distinct), len(distinct) * 66)


def test_ngrams_that_share_rows(engram: inlayer.checkpoint.model.Model) -> None:
    trace = inlayer.walk(TEXTS, engram)
    facts = trace.ngram_memories[0]
    assert facts.normalized
    groups = [group for group in facts.shared if group.n_shared_heads == group.n_heads]
    whole = {(group.order, *group.texts): group.occurrences for group in groups}
    assert whole[2, "the do", "The do"] == [(0, 1), (0, 5)]
    assert whole[3, "the dog", "The dog"] == [(0, 2), (0, 6)]
    for group in facts.shared:  # each group really reads the same rows, and padding is in none
        reads = [facts.reads[b][t] for b, t in group.occurrences]
        rows = [next(read.rows for read in found if read.order == group.order) for found in reads]
        same = sum(len(set(heads)) == 1 for heads in zip(*rows, strict=True))
        assert same >= group.n_shared_heads
        assert all(trace.texts[b].tokens[t].mask for b, t in group.occurrences)
    assert facts.reads[1][-1][0].text == "<pad>"


def test_window_starts_with_the_history(engram: inlayer.checkpoint.model.Model) -> None:
    whole, window = inlayer.walk(TEXTS[0], engram), inlayer.walk(TEXTS[0], engram, first_token=4)
    for one, other in zip(whole.ngram_memories, window.ngram_memories, strict=True):
        assert other.reads[0] == one.reads[0][4:]
    alone = inlayer.walk("The dog", engram)
    assert alone.ngram_memories[0].reads[0] != window.ngram_memories[0].reads[0]  # control: without the tokens before


def test_json_and_terminal(engram: inlayer.checkpoint.model.Model) -> None:
    trace = inlayer.walk(TEXTS, engram)
    jsonschema.validate(json.loads(trace.to_json()), json.loads(FILE.read_text()))
    for columns in (60, 100):
        output = io.StringIO()
        show(trace, Console(file=output, width=columns, force_terminal=False), step=4)
        text = output.getvalue()
        assert "n-gram memory, read by layer 14: layers.14.engram.embed.weight" in " ".join(text.split())
        assert f"{trace.ngram_memories[0].reads[0][1][0].offsets[0]:,}" in text
        assert f"{trace.ngram_memories[0].rows_read} rows located, " in " ".join(text.split())
        assert all(len(line) <= columns for line in text.splitlines())
    assert "the same rows for 'the␣do' and 'The␣do' at tokens 1 of text 1, 5 of text 1" in " ".join(text.split())


def test_rows_that_are_part_of_the_hidden_states(tmp_path: Path) -> None:
    """LongCat-Flash: the stage, its value, and the gradients of step 8 include the n-grams."""
    write_longcat(tmp_path, torch.float32)
    model = inlayer.load(tmp_path)
    trace = inlayer.walk("12 12 3", model, tokenizer=inlayer.ByteTokenizer(), dims=96)
    assert [stage.name for stage in trace.stages] == ["n-grams"]
    ids = torch.tensor([list(b"12 12 3")])
    hidden = model.embeddings(ids)
    assert torch.equal(torch.tensor([token.hidden for token in trace.texts[0].tokens]), hidden[0])
    assert trace.ngram_memories[0].layer is None
    assert trace.ngram_memories[0].n_tensors == 12
    output = io.StringIO()
    show(trace, Console(file=output, width=100, force_terminal=False), step=4)
    assert f"{trace.ngram_memories[0].rows_read} rows read, " in output.getvalue()
    window = inlayer.walk("12 12 3", model, tokenizer=inlayer.ByteTokenizer(), dims=96, first_token=3)
    shown = torch.tensor([token.hidden for token in window.texts[0].tokens])
    torch.testing.assert_close(shown, hidden[0, 3:], rtol=1e-5, atol=1e-6)
    layer = inlayer.load(tmp_path, trainable=True).embeddings
    layer(ids).sum().backward()
    row = trace.backward.rows[0]
    torch.testing.assert_close(torch.tensor(row.total), layer.token_embedding.weight.grad[row.id], rtol=1e-5, atol=1e-6)
