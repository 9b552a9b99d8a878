"""Pre-tokens: where each tokenizer splits a text, against what its library reports or reveals."""

import json
import random
from functools import lru_cache

import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from inlayer.errors import TextError
from inlayer.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer, open_tokenizer
from inlayer.tokenizers import merges as merges_module
from inlayer.tokenizers import tiktoken as tiktoken_module
from inlayer.tokenizers.gguf_tokenizer import PRE_TOKENIZERS, open_gguf_tokenizer
from inlayer.tokenizers.gigatoken import texts_with_unstable_characters
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.offsets import byte_offsets
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.tiktoken import ENCODINGS, TiktokenTokenizer, parse_ranks
from tests.checkpoint.make_gguf import fields_of_json
from tests.shared_data import shared
from tests.tokenizers.samples import hostile_texts, llama3_ranks, minilm, real_json, real_names
from tests.tokenizers.test_contract import small_sentencepiece
from tests.tokenizers.test_gguf_tokenizer import same
from tests.tokenizers.test_tiktoken import many_merges

TIKTOKEN = ("llama3 tiktoken", "kimi-k2 tiktoken")
HARD = [
    "", " ", "a", "\0", "a\0b", "  a   b  ", "\n\n \n", "don't  I'LL", "x = 12345;\n\treturn", "e\u0301\u0323a",
    "中文字", "🙂👩‍👩‍👧🇫🇷❤️", "العربية עברית हिन्दी ไทย 한국어", "a" * 300, " " * 70 + "x", "\u2028\u3000\x85", "½ ﬁ Å",
]  # fmt: skip


@lru_cache(maxsize=1)
def open_real(name: str) -> Tokenizer:
    if name == "small tiktoken":
        return small_tiktoken()
    if name == "kimi-k2 tiktoken":
        return open_tokenizer(shared("data", "tokenizers", "kimi-k2", "tiktoken.model"))
    if name == "llama3 tiktoken":
        ranks, encoding = parse_ranks(llama3_ranks(), name), ENCODINGS["llama3"]
        return TiktokenTokenizer(ranks, encoding.pat_str, encoding.special_tokens(len(ranks)))
    return HuggingFaceTokenizer(real_json(name), source=name)


def small_tiktoken() -> TiktokenTokenizer:
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    return TiktokenTokenizer(ranks, ENCODINGS["kimi"].pat_str, {"<s>": len(ranks), "<|end|>": len(ranks) + 1})


@pytest.fixture(scope="module", params=real_names(*TIKTOKEN))
def real(request) -> str:
    return request.param  # opened in the tests: see tests/shared_data.py


@pytest.fixture(scope="module", params=["json", "tiktoken", "words", "gguf"])
def small(request, small_json) -> Tokenizer:
    match request.param:
        case "json":
            return HuggingFaceTokenizer(small_json)
        case "tiktoken":
            return small_tiktoken()
        case "words":
            return WordTokenizer.from_text("a b c", unk="?")
    return open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), source="gguf")


def check(tokenizer: Tokenizer, text: str, parse_special: bool = True) -> list[tuple[int, int]]:
    """Check that pre-tokens are in order, each the union of its tokens, and that no token is outside."""
    spans = tokenizer.pre_tokens(text, parse_special=parse_special)
    assert spans is not None
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text.encode())
        last = end
    inside: dict[tuple[int, int], list[tuple[int, int]]] = {span: [] for span in spans}
    for token in tokenizer.tokens(text, add_special_tokens=False, parse_special=parse_special):
        if token.bytes:
            owners = [span for span in spans if span[0] <= token.span[0] and token.span[1] <= span[1]]
            assert len(owners) == 1, (ascii(text), token)
            inside[owners[0]].append(token.span)
            if token.special and parse_special and isinstance(tokenizer, (HuggingFaceTokenizer, TiktokenTokenizer)):
                assert token.span == owners[0] or token.bytes.decode() not in tokenizer.special_tokens  # BERT's [UNK]
    for span, covered in inside.items():
        assert span == (covered[0][0], covered[-1][1]), ascii(text)
    return spans


def covers_all(tokenizer: Tokenizer) -> bool:
    """Does some token cover every byte of a text?"""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        normalizer = tokenizer._exact.normalizer
        return tokenizer._byte_level and (normalizer is None or normalizer.normalize_str("e\u0301 ") == "e\u0301 ")
    return isinstance(tokenizer, TiktokenTokenizer)


def tiles(spans: list[tuple[int, int]], size: int) -> bool:
    ends = [0, *(end for _, end in spans)]
    return [start for start, _ in spans] == ends[:-1] and ends[-1] == size


def is_certain(tokenizer: Tokenizer, text: str) -> bool:
    return not isinstance(tokenizer, TiktokenTokenizer) or not texts_with_unstable_characters([text])


@pytest.mark.parametrize("parse_special", [True, False])
def test_pre_tokens_contain_the_tokens(real, parse_special):
    ours = open_real(real)
    texts = [*HARD, *hostile_texts(80, 41, list(ours.special_tokens)[:12])]
    counts = 0
    for text in texts:
        if real == "llama2" or not is_certain(ours, text):
            assert ours.pre_tokens(text, parse_special=parse_special) is None
            continue
        spans = check(ours, text, parse_special)
        counts += len(spans)
        assert not covers_all(ours) or tiles(spans, len(text.encode()))
    assert counts > 300 or real == "llama2"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
@example("<s><s> <|end|>a", True)
@example("a<s>b", False)
def test_random_text_is_covered(small, text, parse_special):
    if is_certain(small, text):
        spans = check(small, text, parse_special)
        assert not covers_all(small) or tiles(spans, len(text.encode()))
    else:
        assert small.pre_tokens(text) is None


def pre_tokenized(engine: tokenizers.Tokenizer, text: str) -> list[tuple[int, int]]:
    """Return the pre-tokens of `tokenizers` as byte offsets."""
    return list(byte_offsets(text, [offsets for _, offsets in engine.pre_tokenizer.pre_tokenize_str(text)]))


def test_pre_tokens_equal_the_library(real):
    """For texts without added tokens that the normalizer leaves unchanged."""
    ours = open_real(real)
    if not isinstance(ours, HuggingFaceTokenizer) or real == "llama2":
        assert getattr(ours._exact, "pre_tokenizer", None) is None  # nothing to compare with
        return
    engine = ours._exact
    compared, other = 0, 0
    for text in [*HARD, *hostile_texts(400, 42)]:
        unchanged = engine.normalizer is None or engine.normalizer.normalize_str(text) == text
        if unchanged and not any(token.content in text for token in ours._added.values()):
            theirs = [span for span in pre_tokenized(engine, text) if span[0] < span[1]]
            assert ours.pre_tokens(text) == theirs, ascii(text)
            compared += 1
            other += theirs != [match.span() for match in regex.finditer(rb"\s*\S+", text.encode())]
    assert compared > 50
    assert other > 10  # control: splitting at whitespace would not pass


STEPS = [
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
    {"type": "BertPreTokenizer"},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "MergedWithPrevious"},
    {"type": "Digits", "individual_digits": True},
    {"type": "UnicodeScripts"},
    {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False},
    {"type": "Split", "pattern": {"Regex": r"\s"}, "behavior": "Removed", "invert": False},
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["type"])
def test_every_type_of_pre_tokenizer(small_json, step):
    config = json.loads(small_json)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    config["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, byte_level]}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    for text in [*HARD, *hostile_texts(100, 43)]:
        assert check(ours, text) == pre_tokenized(ours._exact, text), ascii(text)


@pytest.mark.parametrize("name", [name for name in PRE_TOKENIZERS if name])
def test_every_gguf_pre_tokenizer(small_json, name):
    """Falcon splits digits after bytes are spelled as characters, such as `½`, so it can split inside a letter."""
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, name)), source=name)
    for text in [*HARD, *hostile_texts(25, 44, ["<s>", "<|end|>"])]:
        spans = check(ours, text)
        assert not covers_all(ours) or tiles(spans, len(text.encode()))
    if name == "falcon":
        assert ours.pre_tokens("aò") == [(0, 2), (2, 3)]


def test_gguf_pre_tokens_equal_the_original(small_json):
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), source="gguf")
    theirs = HuggingFaceTokenizer(small_json)
    for text in hostile_texts(200, 45, ["<s>", "<|end|>"]):
        assert ours.pre_tokens(text) == theirs.pre_tokens(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
def test_tiktoken_splits_at_the_same_places(name):
    """tiktoken looks up a pre-token before it merges. Given a vocabulary of all our pre-tokens, and of all runs of two
    and three of them, its tokens equal our pre-tokens only if it splits where we do: with a missing boundary the
    whole is not in the vocabulary, and with an extra one tiktoken finds the longer run.
    """
    pattern = ENCODINGS[name].pat_str
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    ours = TiktokenTokenizer(ranks, pattern, {"<s>": len(ranks)})
    draw = random.Random(46)
    texts = [text for text in [*HARD, *hostile_texts(700, 46, ["<s>"])] if is_certain(ours, text)]
    expected = {}
    for text in texts:
        spans = ours.pre_tokens(text, parse_special=False)
        assert spans is not None
        expected[text] = [text.encode()[start:end] for start, end in spans]
    runs = {
        b"".join(parts[start : start + size])
        for parts in expected.values()
        for size in (1, 2, 3)
        for start in range(len(parts))
    }
    tokens = [bytes([value]) for value in range(256)] + sorted(run for run in runs if len(run) > 1)
    draw.shuffle(tokens)
    probe = tiktoken.Encoding(
        "probe", pat_str=pattern, mergeable_ranks={t: n for n, t in enumerate(tokens)}, special_tokens={}
    )
    for text, parts in expected.items():
        assert probe.decode_tokens_bytes(probe.encode_ordinary(text)) == parts, ascii(text)
    wrong = ENCODINGS["cl100k" if name == "llama3" else "llama3"].pat_str  # control
    probe = tiktoken.Encoding(
        "probe", pat_str=wrong, mergeable_ranks={t: n for n, t in enumerate(tokens)}, special_tokens={}
    )
    assert any(probe.decode_tokens_bytes(probe.encode_ordinary(text)) != parts for text, parts in expected.items())


def tiktoken_pre_tokens(pat_str: str, text: str) -> list[tuple[int, int]] | None:
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    return TiktokenTokenizer(ranks, pat_str, {"<s>": len(ranks)}).pre_tokens(text)


def test_tiktoken_pre_tokens_are_certain_or_none(monkeypatch):
    assert tiktoken_pre_tokens(r"\S+|\s+", "th<s> <s><s>") == [(0, 2), (2, 5), (5, 6), (6, 9), (9, 12)]
    assert tiktoken_pre_tokens(r"\S+|\s+", "th \U0001fae8") is None  # an emoji that some Unicode tables lack
    # `$` is the end of the text for tiktoken, and for `regex` also the position before a final line break
    assert tiktoken_pre_tokens(r"\S+$|\S|\s+", "th th") == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert tiktoken_pre_tokens(r"\S+$|\S|\s+", "th\n") is None
    assert tiktoken_pre_tokens(r"\x{74}h|[\s\S]", "th") is None  # a syntax that `regex` does not support
    monkeypatch.setattr(tiktoken_module, "MAX_SPLIT_SECONDS", 0.01)
    assert tiktoken_pre_tokens(r"(?:(?:a|aa)+)+[bc]|[\s\S]", "a" * 60 + "!") is None
    monkeypatch.setattr(merges_module, "MAX_PRE_TOKEN_BYTES", 4)
    assert tiktoken_pre_tokens(r"\S+|\s+", "abcd") == [(0, 4)]
    assert tiktoken_pre_tokens(r"\S+|\s+", "abcde") is None


@pytest.mark.parametrize("pre_tokenizer", [None, {"type": "Sequence", "pretokenizers": []}])
def test_tokenizers_without_pre_tokenization(small_json, pre_tokenizer):
    config = json.loads(small_json) | {"pre_tokenizer": pre_tokenizer}
    bare = HuggingFaceTokenizer(json.dumps(config).encode())
    for tokenizer in (ByteTokenizer(), SentencePieceTokenizer(small_sentencepiece("bpe")), bare):
        assert tokenizer.pre_tokens("a b") is None
        assert tokenizer.pre_tokens("<s> a<|end|>") is None
        assert tokenizer.pre_tokens("") is None


def test_words_are_pre_tokens():
    words = WordTokenizer.from_text("über I")
    assert words.pre_tokens(" dogs\u3000über  I\n") == [(1, 5), (8, 13), (15, 16)]  # known or not
    assert words.pre_tokens(" \n") == words.pre_tokens("") == []


def test_bert_pre_tokens():
    ours = HuggingFaceTokenizer(minilm())
    assert ours.pre_tokens(" Héllo  embeddings!\n") == [(1, 7), (9, 19), (19, 20)]
    assert ours.pre_tokens("a[SEP][SEP] b") == [(0, 1), (1, 6), (6, 11), (12, 13)]
    assert ours.pre_tokens("x\0y") == [(0, 3)]  # one word, with a character removed from its middle
    assert ours.pre_tokens("中文") == [(0, 3), (3, 6)]
    assert ours.pre_tokens("\0 \t") == ours.pre_tokens("") == []


def test_decomposed_character_belongs_to_the_first_pre_token(small_json):
    """NFKC turns `½` into `1⁄2`, which is three pre-tokens. The first covers it, the others cover nothing."""
    config = json.loads(small_json) | {"normalizer": {"type": "NFKC"}}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert len(ours.tokens("½")) > 2
    assert check(ours, "½") == [(0, 2)]
    assert check(ours, "a ½ b") == [(0, 1), (1, 4), (4, 6)]


def test_prefix_space_covers_nothing(small_json):
    config = json.loads(small_json)
    config["pre_tokenizer"]["add_prefix_space"] = True
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert check(ours, "the day") == [(0, 3), (3, 7)]


@pytest.mark.parametrize("text", ["ab\ud800c", "\udfff"])
def test_lone_surrogate_is_an_error(small, text):
    for tokenizer in (small, ByteTokenizer()):
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer.pre_tokens(text)
