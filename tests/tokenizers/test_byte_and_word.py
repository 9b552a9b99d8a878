"""ByteTokenizer and WordTokenizer, the two without files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import DtypeError, IdRangeError, InputError, TextError
from inlayer.tokenizers import ByteTokenizer, WordTokenizer

BYTES = ByteTokenizer()


def test_ids_are_utf8_bytes():
    assert BYTES.encode("Hi") == [72, 105]
    assert BYTES.get_vocab_size() == 256
    assert BYTES.decode([72, 105]) == "Hi"


@given(st.text())
def test_every_string_is_restored(text):
    ids = BYTES.encode(text)
    assert ids == list(text.encode())
    assert BYTES.decode(ids) == text
    assert BYTES.decode_bytes(ids) == text.encode()
    assert b"".join(token.bytes for token in BYTES.tokens(text)) == text.encode()


@given(st.binary())
def test_invalid_utf8_is_kept_as_bytes(data):
    assert BYTES.decode_bytes(list(data)) == data
    assert BYTES.decode(list(data)) == data.decode(errors="replace")


def test_nul_and_emoji_bytes():
    assert BYTES.encode("\0🙂") == [0, 0xF0, 0x9F, 0x99, 0x82]


def test_words_are_numbered_in_order():
    words = WordTokenizer.from_text("I love dogs")
    assert words.encode("I love dogs") == [0, 1, 2]
    assert words.decode([2, 1, 0]) == "dogs love I"
    assert words.get_vocab_size() == 3
    assert [(token.bytes, token.span) for token in words.tokens(" dogs  I")] == [(b"dogs", (1, 5)), (b"I", (7, 8))]
    assert words.encode_batch(["I", "", "dogs love"]).flat.tolist() == [0, 2, 1]


def test_word_spans_are_byte_offsets():
    words = WordTokenizer.from_text("über 世界 é")
    assert [token.span for token in words.tokens("世界 über\u3000é")] == [(0, 6), (7, 12), (15, 17)]


def test_unknown_words_are_named_or_become_unk():
    with pytest.raises(TextError, match="word 2 of text 1, 'cats'"):
        WordTokenizer.from_text("I love dogs").encode_batch(["I", "I love cats"])
    with pytest.raises(TextError, match="word 1 of the text, 'cats'"):
        WordTokenizer.from_text("I love dogs").encode("love cats")
    words = WordTokenizer.from_text("I love dogs", unk="<unk>")
    assert words.encode("love cats") == [1, 3]
    assert words.special_tokens == {"<unk>": 3}
    assert words.decode([1, 3], skip_special_tokens=True) == "love"
    assert words.get_vocab_size() == 4


def test_invalid_words_are_rejected():
    with pytest.raises(InputError, match="twice"):
        WordTokenizer(["a", "b", "a"])
    with pytest.raises(InputError, match="whitespace"):
        WordTokenizer(["a b"])
    with pytest.raises(InputError, match="does not preserve the exact bytes"):
        WordTokenizer(["a"]).decode_bytes([0])
    with pytest.raises(DtypeError, match="from_text"):
        WordTokenizer("abc")  # would be three words
    with pytest.raises(IdRangeError, match=r"id 1 at \[0\]"):
        WordTokenizer(["a"]).decode([1])
