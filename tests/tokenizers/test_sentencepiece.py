"""SentencePieceTokenizer against the library."""

import base64
import json

import pytest
import sentencepiece

from inlayer.errors import InputError, TokenizerError
from inlayer.tokenizers import open_tokenizer
from tests.tokenizers.malformed import charsmap
from tests.tokenizers.samples import hostile_texts
from tests.tokenizers.test_contract import small_sentencepiece


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_ids_equal_the_library(tmp_path, kind):
    data = small_sentencepiece(kind)
    (tmp_path / "tokenizer.model").write_bytes(data)
    ours = open_tokenizer(tmp_path)
    theirs = sentencepiece.SentencePieceProcessor()
    theirs.LoadFromSerializedProto(data)
    texts = hostile_texts(400, 41, ["<s>", "</s>", "<unk>", "<0x0A>"])
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text, out_type=int) == ours.encode(text), ascii(text)
        assert ours.decode(mine) == theirs.decode(mine.tolist())
    assert ours.get_vocab_size() == theirs.get_piece_size()
    assert ours.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}


def test_byte_fallback_tokens_have_one_byte_each(tmp_path):
    (tmp_path / "x.model").write_bytes(small_sentencepiece("bpe"))
    tokens = open_tokenizer(tmp_path).tokens("the 🫠")
    assert [(token.bytes, token.span) for token in tokens[-4:]] == [
        (b"\xf0", (4, 5)), (b"\x9f", (5, 6)), (b"\xab", (6, 7)), (b"\xa0", (7, 8)),
    ]  # fmt: skip
    assert b"".join(token.bytes for token in tokens) == "the 🫠".encode()


def test_bos_and_eos_are_added_if_configured(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(small_sentencepiece("bpe"))
    bare = open_tokenizer(tmp_path).encode("the")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True, "add_eos_token": True}))
    ours = open_tokenizer(tmp_path)
    assert ours.encode("the") == [1, *bare, 2]
    assert ours.encode_batch(["the"])[0].tolist() == [1, *bare, 2]
    assert ours.encode("the", add_special_tokens=False) == bare
    assert ours.tokens("the")[-1] == (2, b"", (3, 3), True)
    with pytest.raises(InputError, match="does not preserve the exact bytes"):
        ours.decode_bytes([1])


@pytest.mark.parametrize("data", [b"", b"\x0a", b"garbage", b"\x00" * 50])
def test_invalid_files_are_rejected(tmp_path, data):
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model"):
        open_tokenizer(tmp_path)


def test_token_that_is_not_utf8_is_rejected(tmp_path):
    data = small_sentencepiece("bpe")
    start = data.index("▁t".encode())
    (tmp_path / "tokenizer.model").write_bytes(data[:start] + b"\xff" + data[start + 1 :])
    with pytest.raises(TokenizerError, match="token that is not valid UTF-8"):
        open_tokenizer(tmp_path)


def test_damaged_charsmap_is_rejected(tmp_path):
    """sentencepiece 0.2.2 validates the map itself; older versions would read out of bounds."""
    data = small_sentencepiece("unigram")
    start = data.index(base64.b64decode(charsmap()))
    broken = data[: start + 4] + (0x7FFFFC00).to_bytes(4, "little") + data[start + 8 :]
    (tmp_path / "tokenizer.model").write_bytes(broken)
    with pytest.raises(TokenizerError, match="precompiled_charsmap is invalid"):
        open_tokenizer(tmp_path)
