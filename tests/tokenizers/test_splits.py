"""Splits: where each tokenizer cuts a text before it makes tokens, against what its library says or shows."""

import json
import random

import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from inlayer.errors import TextError
from inlayer.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer, open_tokenizer
from inlayer.tokenizers import merges as merges_module
from inlayer.tokenizers import ranks as ranks_module
from inlayer.tokenizers.charset import unsettled_texts
from inlayer.tokenizers.gguf import open_gguf_tokenizer
from inlayer.tokenizers.gguf_splits import PRE_TOKENIZERS
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.patterns import KINDS
from inlayer.tokenizers.ranks import RankTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.spans import in_bytes
from tests.checkpoint.make_gguf import fields_of_json
from tests.tokenizers.samples import chosen_names, counted, hostile_texts, llama2, minilm, shared
from tests.tokenizers.test_contract import small_sentencepiece
from tests.tokenizers.test_gguf import same
from tests.tokenizers.test_ranks import many_merges

REAL = [*chosen_names(), "llama2", "minilm", "gpt2", "llama3", "llama3 ranks", "kimi-k2"]
SHARED = {
    "gpt2": "gpt2/tokenizer.json",
    "llama3": "llama3/tokenizer.json",
    "llama3 ranks": "llama3/tokenizer.model",
    "kimi-k2": "kimi-k2/tiktoken.model",
}
HARD = [
    "", " ", "a", "\0", "a\0b", "  a   b  ", "\n\n \n", "don't  I'LL", "x = 12345;\n\treturn", "e\u0301\u0323a",
    "中文字", "🙂👩‍👩‍👧🇫🇷❤️", "العربية עברית हिन्दी ไทย 한국어", "a" * 300, " " * 70 + "x", "\u2028\u3000\x85", "½ ﬁ Å",
]  # fmt: skip


def open_real(name: str) -> Tokenizer:
    if name in SHARED:
        return open_tokenizer(shared("data", "tokenizers", *SHARED[name].split("/")))
    data = {"llama2": llama2, "minilm": minilm}.get(name, lambda: counted(name))()
    return HuggingFaceTokenizer(data, where=name)


def spaced_words() -> RankTokenizer:
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    return RankTokenizer(ranks, KINDS["kimi"].pat_str, {"<s>": len(ranks), "<|end|>": len(ranks) + 1})


@pytest.fixture(scope="module", params=REAL)
def real(request) -> tuple[str, Tokenizer]:
    return request.param, open_real(request.param)


@pytest.fixture(scope="module", params=["json", "ranks", "words", "gguf"])
def small(request, small_json) -> Tokenizer:
    match request.param:
        case "json":
            return HuggingFaceTokenizer(small_json)
        case "ranks":
            return spaced_words()
        case "words":
            return WordTokenizer.from_text("a b c", unk="?")
    return open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), where="gguf")


def check(tokenizer: Tokenizer, text: str, parse_special: bool = True) -> list[tuple[int, int]]:
    """Splits in order, each the union of the pieces in it, no piece outside."""
    splits = tokenizer.splits(text, parse_special=parse_special)
    assert splits is not None
    place = 0
    for start, end in splits:
        assert place <= start < end <= len(text.encode())
        place = end
    inside: dict[tuple[int, int], list[tuple[int, int]]] = {span: [] for span in splits}
    for piece in tokenizer.tokens(text, add_special_tokens=False, parse_special=parse_special):
        if piece.bytes:
            owners = [span for span in splits if span[0] <= piece.span[0] and piece.span[1] <= span[1]]
            assert len(owners) == 1, (ascii(text), piece)
            inside[owners[0]].append(piece.span)
            if piece.special and parse_special and isinstance(tokenizer, (HuggingFaceTokenizer, RankTokenizer)):
                assert piece.span == owners[0] or piece.bytes.decode() not in tokenizer.special_tokens  # BERT's [UNK]
    for span, covered in inside.items():
        assert span == (covered[0][0], covered[-1][1]), ascii(text)
    return splits


def keeps_all(tokenizer: Tokenizer) -> bool:
    """Is every byte of a text in a token, as it stands?"""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        normalizer = tokenizer._exact.normalizer
        return tokenizer._byte_level and (normalizer is None or normalizer.normalize_str("e\u0301 ") == "e\u0301 ")
    return isinstance(tokenizer, RankTokenizer)


def tiles(splits: list[tuple[int, int]], size: int) -> bool:
    ends = [0, *(end for _, end in splits)]
    return [start for start, _ in splits] == ends[:-1] and ends[-1] == size


def is_certain(tokenizer: Tokenizer, text: str) -> bool:
    return not isinstance(tokenizer, RankTokenizer) or not unsettled_texts([text]).size


@pytest.mark.parametrize("parse_special", [True, False])
def test_splits_hold_the_pieces(real, parse_special):
    name, ours = real
    texts = [*HARD, *hostile_texts(120, 41, list(ours.special_tokens)[:12])]
    counts = 0
    for text in texts:
        if name == "llama2" or not is_certain(ours, text):
            assert ours.splits(text, parse_special=parse_special) is None
            continue
        splits = check(ours, text, parse_special)
        counts += len(splits)
        assert not keeps_all(ours) or tiles(splits, len(text.encode()))
    assert counts > 500 or name == "llama2"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
@example("<s><s> <|end|>a", True)
@example("a<s>b", False)
def test_random_text(small, text, parse_special):
    if is_certain(small, text):
        splits = check(small, text, parse_special)
        assert not keeps_all(small) or tiles(splits, len(text.encode()))
    else:
        assert small.splits(text) is None


def pre_tokenized(engine: tokenizers.Tokenizer, text: str) -> list[tuple[int, int]]:
    """Theirs. Two that share a character (its bytes cut apart) are not comparable, nor is one that covers nothing."""
    return list(in_bytes(text, [offsets for _, offsets in engine.pre_tokenizer.pre_tokenize_str(text)]))


def test_equal_to_the_pre_tokenizer(real):
    """Elementwise, for texts that come to it as they are: no added token in them, nothing a normalizer changes."""
    name, ours = real
    if not isinstance(ours, HuggingFaceTokenizer) or name == "llama2":
        assert not hasattr(ours, "_exact") or getattr(ours._exact, "pre_tokenizer", None) is None  # none to ask
        return
    engine = ours._exact
    compared, other = 0, 0
    for text in [*HARD, *hostile_texts(400, 42)]:
        unchanged = engine.normalizer is None or engine.normalizer.normalize_str(text) == text
        if unchanged and not any(token.content in text for token in ours._added.values()):
            theirs = [span for span in pre_tokenized(engine, text) if span[0] < span[1]]
            assert ours.splits(text) == theirs, ascii(text)
            compared += 1
            other += theirs != [match.span() for match in regex.finditer(rb"\s*\S+", text.encode())]
    assert compared > 50
    assert other > 10  # the control: it is not any cut that would do


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
def test_every_kind_of_step(small_json, step):
    config = json.loads(small_json)
    spell = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    config["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, spell]}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    for text in [*HARD, *hostile_texts(100, 43)]:
        assert check(ours, text) == pre_tokenized(ours._exact, text), ascii(text)


@pytest.mark.parametrize("name", [name for name in PRE_TOKENIZERS if name])
def test_every_rule_of_a_gguf(small_json, name):
    """Falcon's rule cuts after bytes were spelled as characters: inside of letters, where `½` is one of them."""
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, name)), where=name)
    for text in [*HARD, *hostile_texts(25, 44, ["<s>", "<|end|>"])]:
        splits = check(ours, text)
        assert not keeps_all(ours) or tiles(splits, len(text.encode()))
    if name == "falcon":
        assert ours.splits("aò") == [(0, 2), (2, 3)]


def test_a_gguf_splits_like_its_file(small_json):
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), where="gguf")
    theirs = HuggingFaceTokenizer(small_json)
    for text in hostile_texts(200, 45, ["<s>", "<|end|>"]):
        assert ours.splits(text) == theirs.splits(text)


@pytest.mark.parametrize("name", KINDS)
def test_tiktoken_cuts_there_too(name):
    """tiktoken looks a split up before it merges. In a vocabulary of all our splits, and of all runs of two and three
    of them, its tokens are our splits if and only if it cuts where we do: a cut we missed leaves no token for the
    whole, one too many lets it find the longer run.
    """
    pattern = KINDS[name].pat_str
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    ours = RankTokenizer(ranks, pattern, {"<s>": len(ranks)})
    draw = random.Random(46)
    texts = [text for text in [*HARD, *hostile_texts(700, 46, ["<s>"])] if is_certain(ours, text)]
    expected = {}
    for text in texts:
        splits = ours.splits(text, parse_special=False)
        assert splits is not None
        expected[text] = [text.encode()[start:end] for start, end in splits]
    runs = {
        b"".join(parts[place : place + size])
        for parts in expected.values()
        for size in (1, 2, 3)
        for place in range(len(parts))
    }
    tokens = [bytes([value]) for value in range(256)] + sorted(run for run in runs if len(run) > 1)
    draw.shuffle(tokens)
    probe = tiktoken.Encoding(
        "probe", pat_str=pattern, mergeable_ranks={t: n for n, t in enumerate(tokens)}, special_tokens={}
    )
    for text, parts in expected.items():
        assert probe.decode_tokens_bytes(probe.encode_ordinary(text)) == parts, ascii(text)
    wrong = KINDS["cl100k" if name == "llama3" else "llama3"].pat_str  # the control
    probe = tiktoken.Encoding(
        "probe", pat_str=wrong, mergeable_ranks={t: n for n, t in enumerate(tokens)}, special_tokens={}
    )
    assert any(probe.decode_tokens_bytes(probe.encode_ordinary(text)) != parts for text, parts in expected.items())


def rank_splits(pat_str: str, text: str) -> list[tuple[int, int]] | None:
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    return RankTokenizer(ranks, pat_str, {"<s>": len(ranks)}).splits(text)


def test_rank_files_say_nothing_uncertain(monkeypatch):
    assert rank_splits(r"\S+|\s+", "th<s> <s><s>") == [(0, 2), (2, 5), (5, 6), (6, 9), (9, 12)]
    assert rank_splits(r"\S+|\s+", "th \U0001fae8") is None  # an emoji younger than some tables
    # `$` is the end of a text to tiktoken, to `regex` also the place before a last line break
    assert rank_splits(r"\S+$|\S|\s+", "th th") == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert rank_splits(r"\S+$|\S|\s+", "th\n") is None
    assert rank_splits(r"\x{74}h|[\s\S]", "th") is None  # another dialect
    monkeypatch.setattr(ranks_module, "SPLIT_SECONDS", 0.01)
    assert rank_splits(r"(?:(?:a|aa)+)+[bc]|[\s\S]", "a" * 60 + "!") is None
    monkeypatch.setattr(merges_module, "LONGEST", 4)
    assert rank_splits(r"\S+|\s+", "abcd") == [(0, 4)]
    assert rank_splits(r"\S+|\s+", "abcde") is None


@pytest.mark.parametrize("pre_tokenizer", [None, {"type": "Sequence", "pretokenizers": []}])
def test_kinds_that_do_not_cut(small_json, pre_tokenizer):
    config = json.loads(small_json) | {"pre_tokenizer": pre_tokenizer}
    bare = HuggingFaceTokenizer(json.dumps(config).encode())
    for tokenizer in (ByteTokenizer(), SentencePieceTokenizer(small_sentencepiece("bpe")), bare):
        assert tokenizer.splits("a b") is None
        assert tokenizer.splits("<s> a<|end|>") is None
        assert tokenizer.splits("") is None


def test_words():
    words = WordTokenizer.from_text("über I")
    assert words.splits(" dogs\u3000über  I\n") == [(1, 5), (8, 13), (15, 16)]  # whether it knows them or not
    assert words.splits(" \n") == words.splits("") == []


def test_bert():
    ours = HuggingFaceTokenizer(minilm())
    assert ours.splits(" Héllo  embeddings!\n") == [(1, 7), (9, 19), (19, 20)]
    assert ours.splits("a[SEP][SEP] b") == [(0, 1), (1, 6), (6, 11), (12, 13)]
    assert ours.splits("x\0y") == [(0, 3)]  # one word, from the middle of which a character was dropped
    assert ours.splits("中文") == [(0, 3), (3, 6)]
    assert ours.splits("\0 \t") == ours.splits("") == []


def test_one_character_taken_apart(small_json):
    """NFKC makes `1⁄2` of `½`: three splits of one character. The first has it, the others cover nothing."""
    config = json.loads(small_json) | {"normalizer": {"type": "NFKC"}}
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert len(ours.tokens("½")) > 2
    assert check(ours, "½") == [(0, 2)]
    assert check(ours, "a ½ b") == [(0, 1), (1, 4), (4, 6)]


def test_a_space_put_before_the_text(small_json):
    config = json.loads(small_json)
    config["pre_tokenizer"]["add_prefix_space"] = True
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert check(ours, "the day") == [(0, 3), (3, 7)]


@pytest.mark.parametrize("text", ["ab\ud800c", "\udfff"])
def test_a_lone_surrogate(small, text):
    for tokenizer in (small, ByteTokenizer()):
        with pytest.raises(TextError, match="lone surrogate"):
            tokenizer.splits(text)
