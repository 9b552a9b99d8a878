"""Pieces where a normalizer changes the text: spans in order, bytes of the source, rules of spans.py one by one."""

import json

import pytest
import tokenizers

from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.spans import in_bytes, pieces_from_offsets
from tests.tokenizers.samples import llama2, minilm


def own(spelling):
    return lambda token_id: spelling[token_id]


def cut(source, offsets, spelling):
    ids = list(range(len(offsets)))
    return [piece.bytes for piece in pieces_from_offsets(source.encode(), ids, offsets, own(spelling), frozenset())]


def test_offsets_in_bytes():
    assert in_bytes("ab", [(0, 1)]) == [(0, 1)]
    assert in_bytes("é中🙂", [(0, 1), (1, 2), (2, 3), (3, 3)]) == [(0, 2), (2, 5), (5, 9), (9, 9)]


@pytest.mark.parametrize(
    ("source", "offsets", "spelling", "expected"),
    [
        # a character cut into bytes: all claim it, their own bytes divide it
        ("🙂", [(0, 4), (0, 4)], [b"\xf0\x9f", b"\x99\x82"], [b"\xf0\x9f", b"\x99\x82"]),
        # sentencepiece: all but the last claim nothing
        ("é", [(0, 0), (0, 2)], [b"\xc3", b"\xa9"], [b"\xc3", b"\xa9"]),
        # own bytes do not add up (a ligature taken apart): the first to claim has it
        ("ﬁ", [(0, 3), (0, 3)], [b"f", b"i"], ["ﬁ".encode(), b""]),
        # a token that stands for nothing in the text, before one that does
        ("ab", [(0, 0), (0, 2)], ["▁".encode(), b"ab"], [b"", b"ab"]),
        # dropped white space belongs to nobody
        ("a  b ", [(0, 1), (3, 4)], [b"a", b"b"], [b"a", b"b"]),
        # a mark composed into the character before it belongs to its piece, at the end too
        ("e\u0301x", [(0, 1), (3, 4)], ["é".encode(), b"x"], ["e\u0301".encode(), b"x"]),
        ("e\u0301", [(0, 1)], ["é".encode()], ["e\u0301".encode()]),
        ("", [], [], []),
    ],
)
def test_rules(source, offsets, spelling, expected):
    assert cut(source, offsets, spelling) == expected


def test_nfc(small_json):
    config = json.loads(small_json) | {"normalizer": {"type": "NFC"}}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    for text in ("the e\u0301 a\u0308<s>x", "u\u0308ber", "A\u030a\u0323 \u1100\u1161"):
        assert b"".join(piece.bytes for piece in ours.tokens(text)) == text.encode()
    assert ours.decode(ours.encode("u\u0308ber")) == "über"


def test_bert():
    pieces = HuggingFaceTokenizer(minilm()).tokens(" Héllo  embeddings\n")
    assert [piece.bytes for piece in pieces] == [b"", "Héllo".encode(), b"em", b"bed", b"ding", b"s", b""]
    assert [piece.span for piece in pieces[:2]] == [(0, 0), (1, 7)]
    assert pieces[-1].span == (20, 20)
    assert [piece.special for piece in pieces] == [True, False, False, False, False, False, True]


def test_llama2_covers_all_of_a_text():
    ours = HuggingFaceTokenizer(llama2())
    for text in ("Hello  world", "🫠 x", "a\n\tb", "中文 <s>é"):
        assert b"".join(piece.bytes for piece in ours.tokens(text)) == text.encode()


def test_a_block_put_before_the_text_covers_nothing_of_it() -> None:
    """LLaMA-2's way: the text gets a block before it, and unknown characters are cut into bytes."""
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
        pieces = tokenizer.tokens(text)
        assert [piece.bytes for piece in pieces] == wanted
        assert [piece.id for piece in pieces] == made.encode(text).ids
