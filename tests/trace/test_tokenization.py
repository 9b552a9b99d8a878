"""Steps 1 to 3: bytes, pre-tokens, ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trace.pipelines import SAMPLES, random_bytes, sample  # some are slow tests
from tests.trace.test_terminal import rendered

BYTES = random_bytes("none")
TEXTS = ["I love dogs", "naïve 🙂 漢字", "", "  a\n\nb  ", "<|endoftext|>x", "e\u0301\0", "the the"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_tokenization_matches_the_tokenizer(name: str, text: str) -> None:
    tokenizer = sample(name).tokenizer
    assert tokenizer is not None
    trace = sample(name).walk([text]).texts[0]
    tokens = tokenizer.tokens(text)
    assert "".join(character.text for character in trace.characters) == text
    assert bytes.fromhex("".join(character.bytes for character in trace.characters)) == text.encode()
    assert [token.id for token in trace.tokens] == [token.id for token in tokens] == tokenizer.encode(text)
    spans = tokenizer.pre_tokens(text)
    assert tokenizer._analyze(text) == (tokenizer.tokens(text), spans)
    if trace.pre_tokens is None:
        assert spans is None
        return
    assert [pre_token.span for pre_token in trace.pre_tokens] == spans
    for pre_token in trace.pre_tokens:
        first, past = pre_token.tokens
        inside = tokens[first:past]
        assert all(pre_token.span[0] <= token.span[0] and token.span[1] <= pre_token.span[1] for token in inside)
        if pre_token.merges:
            assert pre_token.merges[-1].id in {token.id for token in inside}
    within = sum(pre_token.tokens[1] - pre_token.tokens[0] for pre_token in trace.pre_tokens)
    assert within == sum(bool(token.bytes) or not token.special for token in tokens)


def test_partial_characters_are_labeled_by_their_bytes() -> None:
    trace = sample("smollm2").walk(["🦙"])
    labels = [token.label for token in trace.texts[0].tokens]
    assert "\ufffd" not in "".join(labels)
    assert any(label.startswith("\\xf0") for label in labels)


def test_normalized_text_is_shown_beside_the_source_text() -> None:
    trace = sample("minilm").walk(["Hello Wörld [MASK]", "plain  text"])
    assert [text.normalized for text in trace.texts] == ["hello world [MASK]", None]
    assert [token.token for token in trace.texts[0].tokens if token.mask] == [
        "[CLS]",
        "hello",
        "world",
        "[MASK]",
        "[SEP]",
    ]
    shown = rendered(trace, 80, step=3)
    assert "the tokenizer normalizes text 1 to: hello world [MASK]" in shown
    assert "57 c3 b6 72 6c 64  in vocabulary: world\n" in shown
    assert shown.count("in vocabulary") == 2
    assert sample("default").walk(["Hello Wörld"]).texts[0].normalized is None


@given(st.text(max_size=40), st.integers(1, 20))
def test_shown_text_ends_at_a_character_boundary(text: str, tokens: int) -> None:
    text = text.encode(errors="ignore").decode()
    trace = BYTES.walk([text], max_tokens=tokens).texts[0]
    assert text.startswith(trace.text)
    assert len(trace.text.encode()) >= min(tokens, len(text.encode()))
    assert trace.n_bytes == len(text.encode())
