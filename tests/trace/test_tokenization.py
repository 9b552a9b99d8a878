"""Steps 1 to 3: bytes, pieces, ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.trace.tokenization import read
from tests.trace.lines import SAMPLES, bytes_line, sample

BYTES = bytes_line("none")
TEXTS = ["I love dogs", "naïve 🙂 漢字", "", "  a\n\nb  ", "<|endoftext|>x", "e\u0301\0", "the the"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_text_is_read_as_its_tokenizer_does(name: str, text: str) -> None:
    tokenizer = sample(name).tokenizer
    assert tokenizer is not None
    reading = read(text, sample(name), 256)
    assert "".join(character.text for character in reading.characters) == text
    assert bytes.fromhex("".join(character.bytes for character in reading.characters)) == text.encode()
    assert [piece.id for piece in reading.tokens] == tokenizer.encode(text)
    spans = tokenizer.pre_tokens(text)
    if reading.splits is None:
        assert spans is None
        return
    assert [split.span for split in reading.splits] == spans
    for split in reading.splits:
        first, past = split.cells
        inside = reading.tokens[first:past]
        assert all(split.span[0] <= piece.span[0] and piece.span[1] <= split.span[1] for piece in inside)
        if split.merges:
            assert split.merges[-1].id in {piece.id for piece in inside}
    within = sum(split.cells[1] - split.cells[0] for split in reading.splits)
    assert within == sum(bool(piece.bytes) or not piece.special for piece in reading.tokens)


def test_bytes_that_are_no_characters_are_shown_as_hex() -> None:
    trace = sample("smollm2").walk(["🦙"])
    labels = [cell.label for cell in trace.texts[0].cells]
    assert "\ufffd" not in "".join(labels)
    assert any(label == "f0 9f" or label.startswith("f0") for label in labels)


@given(st.text(max_size=40), st.integers(1, 20))
def test_the_beginning_ends_between_characters(text: str, tokens: int) -> None:
    text = text.encode(errors="ignore").decode()
    reading = read(text, BYTES, tokens)
    assert text.startswith(reading.text)
    assert len(reading.text.encode()) >= min(tokens, len(text.encode()))
    assert reading.n_bytes == len(text.encode())
