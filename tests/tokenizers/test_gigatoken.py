"""The fast path: small tokenizers with one feature changed, each with the same ids as `tokenizers`."""

import json
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import tokenizers

from inlayer.errors import TokenizerError
from inlayer.tokenizers import gigatoken
from inlayer.tokenizers.gigatoken import can_overlap, equal_shares, is_supported
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.tokenizers.samples import hostile_texts, llama2

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


DIGITS = {"type": "Digits", "individual_digits": True}


def token(content, index, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": 340 + index, "content": content, **base, **flags}


def split(behavior, invert, last=BYTE_LEVEL):
    first = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": behavior, "invert": invert}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [first, last]}}


def added(*tokens):
    return {"added_tokens": list(tokens)}


PLAIN = token("<x>", 0)
# The changed feature -> the change, and whether the fast path may open.
CHANGES = {
    "nothing": ({}, True),
    "nfc": ({"normalizer": {"type": "NFC"}}, True),
    "empty sequence": ({"normalizer": {"type": "Sequence", "normalizers": []}}, True),
    "prefix space": ({"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True}}, True),
    "qwen split": (split("Isolated", False), True),
    "removed, inverted": (split("Removed", True), True),
    "a plain token": (added(PLAIN), True),
    "not special": (added(token("<x>", 0, special=False)), True),
    "lstrip": (added(token("<x>", 0, lstrip=True)), True),
    "rstrip": (added(token("<x>", 0, rstrip=True)), True),
    "whitespace tokens": (added(token("  ", 0), token("\n\n", 1)), True),
    "tokens in tokens": (added(token("<x>", 0), token("<x>y", 1), token("x>y<", 2)), True),
    "normalized token": (added(token("<x>", 0, normalized=True)), True),
    "nfkc": ({"normalizer": {"type": "NFKC"}}, False),
    "nfd": ({"normalizer": {"type": "NFD"}}, False),
    "lowercase": ({"normalizer": {"type": "Lowercase"}}, False),
    "strip": ({"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}, False),
    "replace": ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}}, False),
    "prepend": ({"normalizer": {"type": "Prepend", "prepend": "▁"}}, False),
    "no pre-tokenizer": ({"pre_tokenizer": None}, False),
    "no regex": ({"pre_tokenizer": BYTE_LEVEL}, False),
    "digits first": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]}},
        False,
    ),
    "metaspace": (
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}},
        False,
    ),
    "contiguous": (split("Contiguous", False), False),
    "removed": (split("Removed", False), False),
    "split, then regex": (split("Isolated", False, {**BYTE_LEVEL, "use_regex": True}), False),
    "split, then prefix space": (split("Isolated", False, {**BYTE_LEVEL, "add_prefix_space": True}), False),
    "single word": (added(token("<x>", 0, single_word=True)), False),
    "a gap in the ids": (added(token("<x>", 7)), False),
    "already a token": (added(token("the", 0, special=False)), False),
    "normalized under nfc": (added(token("<x>", 0, normalized=True)) | {"normalizer": {"type": "NFC"}}, False),
    "overlapping tokens": (added(token("<x>y", 0, normalized=True), token("<x>", 1), token("y<x", 2)), False),
    "dropout": ({"model": {"dropout": 0.5}}, True),  # turned off, then like the others
    "suffix": ({"model": {"end_of_word_suffix": "</w>"}}, False),
    "unknown": ({"model": {"unk_token": "a"}}, True),
    "ignore merges": ({"model": {"ignore_merges": True}}, True),
    "template": (
        {"post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [72], "tokens": ["i"]},
                               "</s>": {"id": "</s>", "ids": [73, 74], "tokens": ["j", "k"]}},
        }},
        True,
    ),
}  # fmt: skip


def modified(small_json: bytes, change: dict) -> bytes:
    config = json.loads(small_json)
    config["added_tokens"] = config["added_tokens"] + change.get("added_tokens", [])
    config["model"] |= change.get("model", {})
    config |= {key: value for key, value in change.items() if key not in {"added_tokens", "model"}}
    return json.dumps(config).encode()


@pytest.mark.parametrize("name", CHANGES)
def test_every_feature_equals_tokenizers(small_json, name):
    change, expect_fast_path = CHANGES[name]
    data = modified(small_json, change)
    ours = HuggingFaceTokenizer(data)
    config = json.loads(data)
    config["model"]["dropout"] = None
    theirs = tokenizers.Tokenizer.from_str(json.dumps(config))
    specials = [entry["content"] for entry in config["added_tokens"]] + [
        " <x> ",
        "a<x>b",
        "<x>\u0338",
        "the\u0301",
        "<x>y<x",
    ]
    texts = hostile_texts(500, 21, specials)
    for text, mine, other in zip(texts, ours.encode_batch(texts), theirs.encode_batch_fast(texts), strict=True):
        assert mine.tolist() == other.ids, ascii(text)
    if pytest.importorskip("gigatoken"):
        assert (ours._fast_path is not None) == expect_fast_path


@pytest.mark.parametrize("name", ["single word", "overlapping tokens", "contiguous", "no pre-tokenizer", "suffix"])
def test_gigatoken_alone_would_differ(small_json, name, monkeypatch):
    """Control: gigatoken accepts these and encodes them differently; the self-check alone finds only some of them."""
    gigatoken = pytest.importorskip("gigatoken")
    if metadata.version("gigatoken") != "0.10.0":
        pytest.skip("measured with gigatoken 0.10.0")
    data = modified(small_json, CHANGES[name][0])
    texts = hostile_texts(500, 21, ["<x>", "a<x>b", "<x>y<x"])
    rows = gigatoken.Tokenizer.from_json(data).encode_batch_list(texts)
    theirs = tokenizers.Tokenizer.from_str(data.decode()).encode_batch_fast(texts)
    assert [row for row, other in zip(rows, theirs, strict=True) if row != other.ids]


def test_failed_self_check_disables_the_fast_path(small_json, monkeypatch):
    gigatoken = pytest.importorskip("gigatoken")
    other = json.loads(small_json)
    other["model"]["merges"] = other["model"]["merges"][:10]
    wrong = gigatoken.Tokenizer.from_json(json.dumps(other))
    monkeypatch.setattr(gigatoken.Tokenizer, "from_json", lambda _: wrong)
    ours = HuggingFaceTokenizer(small_json)
    assert ours.encode_batch(["the rest of the year"])[0].tolist() == ours.encode("the rest of the year")
    assert ours._fast_path is None


def test_self_check_with_texts_that_cannot_be_encoded():
    """`tokenizers` raises for a byte outside the vocabulary if the unknown token is also outside it."""
    vocab = [*"abcdefghijklmnopqrstuvwxyz▁", *(f"<0x{byte:02X}>" for byte in range(256) if byte != 0xE2)]
    model = {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": []}
    model["vocab"] = {token: index for index, token in enumerate(vocab)}
    config = {"version": "1.0", "added_tokens": [], "normalizer": gigatoken.REPLACE_SPACES, "model": model}
    tokenizer = HuggingFaceTokenizer(json.dumps(config).encode())
    assert tokenizer.encode_batch(["ab"]).flat.tolist() == [0, 1]
    assert tokenizer._fast_path is None
    with pytest.raises(TokenizerError, match="cannot encode these texts: Unk token `<unk>` not found"):
        tokenizer.encode_batch(["…"])


def test_byte_fallback_with_ignore_merges_is_unsupported():
    config = json.loads(llama2())
    ids = {token["content"]: token["id"] for token in config["added_tokens"]}
    assert is_supported(config, ids.get)
    config["model"]["ignore_merges"] = True
    assert not is_supported(config, ids.get)


def test_can_overlap_is_symmetric():
    assert can_overlap(["abc"], ["cd"])
    assert can_overlap(["cd"], ["abc"])
    assert can_overlap(["b"], ["abc"])
    assert can_overlap(["abc"], ["b"])
    assert not can_overlap(["<a>"], ["<b>", "<c>"])
    assert not can_overlap([], ["a"])


def test_same_ids_without_gigatoken(small_json, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(small_json)
    texts = hostile_texts(50, 22, ["<s>"])
    code = f"""
import sys
sys.modules["gigatoken"] = None
from inlayer.tokenizers import open_tokenizer
from tests.tokenizers.samples import hostile_texts
ours = open_tokenizer({str(path)!r})
print([row.tolist() for row in ours.encode_batch(hostile_texts(50, 22, ["<s>"]))], ours._fast_path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = [row.tolist() for row in HuggingFaceTokenizer(small_json).encode_batch(texts)]
    assert done.stdout.strip() == f"{expected} None"


@pytest.mark.parametrize("kind", ["byte-level", "byte fallback"])
def test_ids_do_not_depend_on_the_number_of_threads(small_json, kind, monkeypatch):
    tokenizer = HuggingFaceTokenizer(small_json if kind == "byte-level" else llama2())
    texts = [*hostile_texts(300, 5, ["<s>"]), "", "a", " a b", ""]
    expected = tokenizer.encode_batch(texts)
    assert tokenizer._fast_path is not None
    monkeypatch.setattr(gigatoken, "SHARE_CHARACTERS", 100)
    for cores in (2, 3, 7):
        monkeypatch.setattr(gigatoken, "core_count", lambda cores=cores: cores)
        assert len(equal_shares(texts)) == cores
        assert tokenizer.encode_batch(texts) == expected


def test_shares_have_all_texts_in_order_and_about_equal_sizes(monkeypatch):
    monkeypatch.setattr(gigatoken, "SHARE_CHARACTERS", 1)
    monkeypatch.setattr(gigatoken, "core_count", lambda: 3)
    texts = ["abcd"] * 5 + [""] * 5 + ["ab"] * 20
    shares = equal_shares(texts)
    assert [text for share in shares for text in share] == texts
    assert [sum(map(len, share)) for share in shares] == [20, 20, 20]
    assert equal_shares(["a" * 50, "b"]) == [["a" * 50, "b"]]  # the library splits it
    assert equal_shares([]) == [[]]
    monkeypatch.setattr(gigatoken, "SHARE_CHARACTERS", 100)
    assert equal_shares(texts) == [texts]


def test_ctrl_c_while_the_fast_path_opens_ends_the_program(small_json, monkeypatch, tmp_path):
    """gigatoken alone ignores it during one import, and panics during another call of Python code."""
    pytest.importorskip("gigatoken")

    def interrupt(name, *_):
        if name == "awkward":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "awkward", raising=False)
        patch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=interrupt), *sys.meta_path])
        tokenizer = HuggingFaceTokenizer(small_json)
        with pytest.raises(KeyboardInterrupt):
            tokenizer.encode_batch(["one text"] * 99)
    assert tokenizer.encode_batch(["one text"])[0].tolist() == tokenizer.encode("one text")  # as in a notebook
    assert tokenizer._fast_path is not None
    (tmp_path / "tokenizer.json").write_bytes(small_json)
    code = """
import numpy
from inlayer.tokenizers import open_tokenizer
def interrupt(*_):
    raise KeyboardInterrupt
numpy.lib.NumpyVersion.__init__ = interrupt
open_tokenizer("tokenizer.json").encode_batch(["one text"] * 99)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.endswith("\nKeyboardInterrupt\n")
