"""Token spans if a normalizer changes the text: ordered spans, bytes of the source, the rules of offsets.py."""

import json

import pytest
import tokenizers

from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.offsets import byte_offsets, tokens_from_offsets
from tests.tokenizers.samples import llama2, minilm


def token_bytes(source, offsets, spelling):
    ids = list(range(len(offsets)))
    return [token.bytes for token in tokens_from_offsets(source.encode(), ids, offsets, spelling, frozenset())]


def test_byte_offsets():
    assert byte_offsets("ab", [(0, 1)]) == [(0, 1)]
    assert byte_offsets("é中🙂", [(0, 1), (1, 2), (2, 3), (3, 3)]) == [(0, 2), (2, 5), (5, 9), (9, 9)]


@pytest.mark.parametrize(
    ("source", "offsets", "spelling", "expected"),
    [
        # a character split into bytes: all tokens claim it, their own bytes divide it
        ("🙂", [(0, 4), (0, 4)], [b"\xf0\x9f", b"\x99\x82"], [b"\xf0\x9f", b"\x99\x82"]),
        # sentencepiece: all but the last claim nothing
        ("é", [(0, 0), (0, 2)], [b"\xc3", b"\xa9"], [b"\xc3", b"\xa9"]),
        # own bytes do not add up (a decomposed ligature): the first token to claim it gets it
        ("ﬁ", [(0, 3), (0, 3)], [b"f", b"i"], ["ﬁ".encode(), b""]),
        # a token that covers no text, before one that does
        ("ab", [(0, 0), (0, 2)], ["▁".encode(), b"ab"], [b"", b"ab"]),
        # removed whitespace belongs to no token
        ("a  b ", [(0, 1), (3, 4)], [b"a", b"b"], [b"a", b"b"]),
        # a mark composed into the character before it belongs to that token, also at the end
        ("e\u0301x", [(0, 1), (3, 4)], ["é".encode(), b"x"], ["e\u0301".encode(), b"x"]),
        ("e\u0301", [(0, 1)], ["é".encode()], ["e\u0301".encode()]),
        ("", [], [], []),
    ],
)
def test_rules_for_shared_and_removed_bytes(source, offsets, spelling, expected):
    assert token_bytes(source, offsets, spelling) == expected


def test_nfc_tokens_cover_the_text(small_json):
    config = json.loads(small_json) | {"normalizer": {"type": "NFC"}}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    for text in ("the e\u0301 a\u0308<s>x", "u\u0308ber", "A\u030a\u0323 \u1100\u1161"):
        assert b"".join(token.bytes for token in ours.tokens(text)) == text.encode()
    assert ours.decode(ours.encode("u\u0308ber")) == "über"


def test_bert_tokens_skip_white_space():
    tokens = HuggingFaceTokenizer(minilm()).tokens(" Héllo  embeddings\n")
    assert [token.bytes for token in tokens] == [b"", "Héllo".encode(), b"em", b"bed", b"ding", b"s", b""]
    assert [token.span for token in tokens[:2]] == [(0, 0), (1, 7)]
    assert tokens[-1].span == (20, 20)
    assert [token.special for token in tokens] == [True, False, False, False, False, False, True]


def test_llama2_tokens_cover_the_text():
    ours = HuggingFaceTokenizer(llama2())
    for text in ("Hello  world", "🫠 x", "a\n\tb", "中文 <s>é"):
        assert b"".join(token.bytes for token in ours.tokens(text)) == text.encode()


def test_prepended_space_symbol_covers_nothing() -> None:
    """As in Llama-2: `▁` is put before the text, and unknown characters become bytes."""
    vocabulary = (
        {"<unk>": 0} | {f"<0x{value:02X}>": value + 1 for value in range(256)} | {"▁": 257, "日": 258, "x": 259}
    )
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    tokenizer = HuggingFaceTokenizer(made.to_str().encode())
    for text, wanted in (
        ("日x", [b"", "日".encode(), b"x"]),
        ("🙂 x", [b"", b"\xf0", b"\x9f", b"\x99", b"\x82", b" ", b"x"]),
        (" x", [b"", b" ", b"x"]),
        ("é", [b"", b"\xc3", b"\xa9"]),
    ):
        tokens = tokenizer.tokens(text)
        assert [token.bytes for token in tokens] == wanted
        assert [token.id for token in tokens] == made.encode(text).ids
