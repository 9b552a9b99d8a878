"""A trace holds what the library computes, and its rendering fits the terminal."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from inlayer import ByteTokenizer, Embeddings, WordTokenizer
from inlayer.errors import InputError
from inlayer.walk import show, trace_texts

TEXTS = ["I love dogs", "naïve 🙂", ""]


def layer(positions: str) -> Embeddings:
    return Embeddings(257, 8, 16, positions=positions, padding_idx=256, seed=0)


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary"])
def test_every_number_is_the_librarys(positions: str) -> None:
    tokenizer, made = ByteTokenizer(), layer(positions)
    trace = trace_texts(TEXTS, tokenizer, made, dims=5)
    ids, _ = tokenizer.encode_batch(TEXTS).padded(256)
    hidden, rows = made(ids), made.token_embedding(ids)
    assert trace.shape == tuple(hidden.shape)
    for b, text in enumerate(trace.texts):
        assert b"".join(bytes.fromhex(cell.bytes) for cell in text.cells) == TEXTS[b].encode()
        assert len(text.cells) + text.padding == ids.shape[1]
        for t, cell in enumerate(text.cells):
            assert cell.id == ids[b, t]
            assert cell.row == rows[b, t, :5].tolist()
            assert cell.hidden == hidden[b, t, :5].tolist()
            if cell.added is not None:
                torch.testing.assert_close(torch.tensor(cell.row) + torch.tensor(cell.added), hidden[b, t, :5])
            else:
                assert cell.hidden == cell.row  # nothing was added
            assert (cell.cos is not None) == (positions == "rotary")
    assert trace.texts[0].cells[0].row != trace.texts[0].cells[1].row


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_rendering_fits(columns: int) -> None:
    out = io.StringIO()
    words = WordTokenizer.from_text("I love dogs " + "x" * 50)
    made = Embeddings(5, 64, 3, padding_idx=4, seed=0)
    console = Console(file=out, width=columns, highlight=False)
    show(trace_texts(["I love dogs", "x" * 50], words, made, dims=64), console)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= columns for line in lines)
    assert any("(2, 3, 64)" in line for line in lines)
    assert any("padding, id 4" in line for line in lines)
    assert not any(line.endswith(" ") for line in lines)


def test_a_long_text_is_folded() -> None:
    out = io.StringIO()
    made = Embeddings(257, 8, padding_idx=256, seed=0)
    show(trace_texts(["ab" * 5000], ByteTokenizer(), made), Console(file=out, width=80))
    assert len(out.getvalue().splitlines()) < 80
    assert "9,988 more" in out.getvalue()


def test_nothing_to_walk_is_an_error() -> None:
    with pytest.raises(InputError, match="no text"):
        trace_texts([], ByteTokenizer(), layer("none"))
    with pytest.raises(InputError, match="dims"):
        trace_texts(["a"], ByteTokenizer(), layer("none"), dims=0)
