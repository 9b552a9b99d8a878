"""Real tokenizers against `tokenizers`, on hostile text. INLAYER_ALL_TOKENIZERS=1 runs all, not one per kind."""

import json

import pytest
import tokenizers

from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.tokenizers.samples import added_tokens, chosen_names, counted, hostile_texts, llama2, minilm, shared

FAST = {"deepseek-v3", "qwen-3", "qwen-3.5", "minimax-m3", "glm-4", "llama2", "deepseek-r1-distill-llama-8b"}
EXACT = {"minilm", "jiutian-139moe-chat", "deepseek-v2", "deepseek-coder-33b-base", "janus-1.3b"}


@pytest.fixture(scope="module", params=[*chosen_names(), "llama2", "minilm"])
def real(request):
    """Name, file, ours and theirs; opened once for all tests of this file."""
    data = {"llama2": llama2, "minilm": minilm}.get(request.param, lambda: counted(request.param))()
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    theirs.no_truncation()
    theirs.no_padding()
    return request.param, data, HuggingFaceTokenizer(data, where=request.param), theirs


def test_ids_equal_tokenizers(real):
    name, data, ours, theirs = real
    texts = hostile_texts(1000, 11, added_tokens(data))
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts)]
    for text, mine, other in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    for text, other in list(zip(texts, expected, strict=True))[:200]:
        assert ours.encode(text) == other, ascii(text)
    if pytest.importorskip("gigatoken") and name in FAST | EXACT:
        assert (ours._fast_path() is not None) == (name in FAST)


def test_specials_as_plain_text(real):
    _, data, ours, theirs = real
    texts = hostile_texts(300, 12, added_tokens(data))
    theirs.encode_special_tokens = True
    expected = [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    theirs.encode_special_tokens = False
    batch = ours.encode_batch(texts, add_special_tokens=False, parse_special=False)
    for text, mine, other in zip(texts, batch, expected, strict=True):
        assert mine.tolist() == other, ascii(text)
    if any(token["special"] for token in json.loads(data)["added_tokens"]):  # the control: the option does something
        assert ours.encode_batch(texts, add_special_tokens=False) != batch


def test_pieces_and_decode(real):
    _, data, ours, theirs = real
    byte_level = ours._byte_level and json.loads(data)["normalizer"] in (None, {"type": "Sequence", "normalizers": []})
    # DeepSeek-Coder adds "ü" as a token; the byte-level decoder of `tokenizers` takes it for a byte, and so do we
    letters = [token for token in added_tokens(data) if len(token) == 1]
    for text in hostile_texts(40, 13, added_tokens(data)):
        ids = ours.encode(text)
        pieces = ours.tokens(text)
        assert [piece.id for piece in pieces] == ids
        if byte_level:
            assert b"".join(piece.bytes for piece in pieces) == text.encode()
            bare = ours.encode(text, add_special_tokens=False)
            assert ours.decode_bytes(bare) == text.encode()
            assert ours.decode(bare) == text or any(letter in text for letter in letters)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids)


def test_long_runs(real):
    _, _, ours, theirs = real
    for unit in (" ", "a", "\n", "中", "=", "1", "é ", " \n", "Aa"):
        text = unit * 4100
        assert ours.encode(text) == theirs.encode(text).ids, unit


def test_nothing_is_cut_or_padded():
    data = minilm()  # its file asks for truncation to 128 and padding to 128
    assert json.loads(data)["truncation"]
    assert json.loads(data)["padding"]
    ours = HuggingFaceTokenizer(data)
    assert len(ours.encode("word " * 500)) == 502
    assert ours.encode("word") == [101, 2773, 102]
    assert ours.encode_batch(["word", "word word"]).counts.tolist() == [3, 4]
    assert ours.pad_id == 0


@pytest.mark.parametrize(
    ("folder", "fixture"),
    [("gpt2/tokenizer.json", "gpt-2"), ("llama3/tokenizer.json", "llama-bpe"), ("llama3/tokenizer.model", "llama-bpe")],
)
def test_recorded_fixtures(folder, fixture):
    """llama.cpp's recorded text -> ids."""
    from inlayer.tokenizers import open_tokenizer

    ours = open_tokenizer(shared("data", "tokenizers", *folder.split("/")))
    base = shared("data", "tokenizer-fixtures", f"ggml-vocab-{fixture}.gguf.inp")
    texts = base.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    expected = [list(map(int, line.split())) for line in base.with_suffix(".out").read_text().split("\n")[: len(texts)]]
    assert [row.tolist() for row in ours.encode_batch(texts, add_special_tokens=False)] == expected
    assert len(texts) > 40
