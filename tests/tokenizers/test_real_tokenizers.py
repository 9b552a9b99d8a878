"""Real tokenizers against `tokenizers`, on hostile text. INLAYER_ALL_TOKENIZERS=1 tests all files, not one per kind."""

import json

import pytest
import tokenizers

from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.shared_data import shared
from tests.tokenizers.samples import added_tokens, hostile_texts, llama3_ranks, minilm, real_json, real_names

FAST = {"deepseek-v3", "qwen-3", "qwen-3.5", "minimax-m3", "glm-4", "llama2", "deepseek-r1-distill-llama-8b"}
EXACT = {"minilm", "jiutian-139moe-chat", "deepseek-v2", "deepseek-coder-33b-base", "janus-1.3b"}


@pytest.fixture(scope="module", params=real_names())
def real(request):
    """Return the name, the file, our tokenizer and theirs, opened once for all tests in this file."""
    data = real_json(request.param)
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    theirs.no_truncation()
    theirs.no_padding()
    return request.param, data, HuggingFaceTokenizer(data, source=request.param), theirs


def test_ids_equal_tokenizers(real):
    name, data, ours, theirs = real
    texts = hostile_texts(1000, 11, added_tokens(data))
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts)]
    for text, mine, other in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    for text, other in list(zip(texts, expected, strict=True))[:200]:
        assert ours.encode(text) == other, ascii(text)
    if pytest.importorskip("gigatoken") and name in FAST | EXACT:
        assert (ours._fast_path is not None) == (name in FAST)


def test_special_tokens_as_plain_text(real):
    _, data, ours, theirs = real
    texts = hostile_texts(300, 12, added_tokens(data))
    theirs.encode_special_tokens = True
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    theirs.encode_special_tokens = False
    batch = ours.encode_batch(texts, add_special_tokens=False, parse_special=False)
    for text, mine, other in zip(texts, batch, expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    if any(token["special"] for token in json.loads(data)["added_tokens"]):  # control: the option has an effect
        assert ours.encode_batch(texts, add_special_tokens=False) != batch


def test_tokens_and_decode(real):
    _, data, ours, theirs = real
    byte_level = ours._byte_level and json.loads(data)["normalizer"] in (None, {"type": "Sequence", "normalizers": []})
    # DeepSeek-Coder adds "ü" as a token; the byte-level decoder of `tokenizers` reads it as a byte, and so do we
    letters = [token for token in added_tokens(data) if len(token) == 1]
    for text in hostile_texts(40, 13, added_tokens(data)):
        ids = ours.encode(text)
        tokens = ours.tokens(text)
        assert [token.id for token in tokens] == ids
        if byte_level:
            assert b"".join(token.bytes for token in tokens) == text.encode()
            bare = ours.encode(text, add_special_tokens=False)
            assert ours.decode_bytes(bare) == text.encode()
            assert ours.decode(bare) == text or any(letter in text for letter in letters)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids)


def test_long_runs_equal_tokenizers(real):
    _, _, ours, theirs = real
    for unit in (" ", "a", "\n", "中", "=", "1", "é ", " \n", "Aa"):
        text = unit * 4100
        assert ours.encode(text) == theirs.encode(text).ids, unit


def test_truncation_and_padding_are_off():
    data = minilm()  # its file truncates and pads to 128
    assert json.loads(data)["truncation"]
    assert json.loads(data)["padding"]
    ours = HuggingFaceTokenizer(data)
    assert len(ours.encode("word " * 500)) == 502
    assert ours.encode("word") == [101, 2773, 102]
    assert ours.encode_batch(["word", "word word"]).counts.tolist() == [3, 4]
    assert ours.pad_id == 0


def recorded_ids(name: str) -> tuple[list[str], list[list[int]]]:
    """Read the texts and ids that llama.cpp has recorded for a tokenizer."""
    path = shared("data", "tokenizer-fixtures", f"ggml-vocab-{name}.gguf.inp")
    texts = path.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = path.with_suffix(".out").read_text(encoding="utf-8").splitlines()[: len(texts)]
    assert len(texts) >= len(lines) > 40
    return texts[: len(lines)], [[int(token_id) for token_id in line.split()] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-bpe tiktoken", "deepseek-llm"])
def test_ids_equal_recorded_ids(tmp_path, name):
    texts, expected = recorded_ids(name.split()[0])
    if name == "gpt-2":
        ours = open_tokenizer(shared("data", "tokenizers", "gpt2"))
    elif name == "llama-bpe tiktoken":
        (tmp_path / "tokenizer.model").write_bytes(llama3_ranks())
        ours = open_tokenizer(tmp_path)
    else:
        names = {"llama-bpe": "deepseek-r1-distill-llama-8b", "deepseek-llm": "deepseek-llm-7b-base"}
        ours = HuggingFaceTokenizer(real_json(names[name]))
    assert [row.tolist() for row in ours.encode_batch(texts, add_special_tokens=False)] == expected
