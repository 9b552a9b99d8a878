"""The contract of every tokenizer, checked for one of each kind."""

import base64
import copy
import io
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers

from inlayer.errors import IdRangeError, TextError
from inlayer.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer, byte_and_word, open_tokenizer
from inlayer.trace import Pipeline
from tests.tokenizers.conftest import TRAINING_TEXT
from tests.tokenizers.samples import hostile_texts


def small_ranks() -> bytes:
    tokens = [bytes([value]) for value in range(256)] + [b"th", b"the", b" t", b" the", "你".encode()]
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def small_sentencepiece(kind: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING_TEXT.splitlines()), model_writer=model, vocab_size=340, model_type=kind,
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


@pytest.fixture(scope="module", params=["bytes", "words", "json", "tiktoken", "sentencepiece"])
def tokenizer(request, small_json, tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("contract")
    match request.param:
        case "bytes":
            return ByteTokenizer()
        case "words":
            return WordTokenizer.from_text("a b c", unk="?")
        case "json":
            (folder / "tokenizer.json").write_bytes(small_json)
        case "tiktoken":
            (folder / "x.tiktoken").write_bytes(small_ranks())
            return open_tokenizer(folder, pat_str=r"\w+| ?\S+|\s+", special_tokens={"<s>": 261, "<|end|>": 263})
        case "sentencepiece":
            (folder / "tokenizer.model").write_bytes(small_sentencepiece("bpe"))
    return open_tokenizer(folder)


@pytest.mark.parametrize("options", [{}, {"add_special_tokens": False}, {"parse_special": False}])
def test_encode_batch_equals_encode(tokenizer, options):
    texts = hostile_texts(200, 1, ["<s>", "<|end|>"])
    ours, theirs = tokenizer.encode_batch(texts, **options), [tokenizer.encode(text, **options) for text in texts]
    assert [row.tolist() for row in ours] == theirs
    assert tokenizer.encode_batch(iter(texts), **options) == ours  # any iterable
    assert len(tokenizer.encode_batch([])) == 0


def count_lists(monkeypatch) -> list[int]:
    """Record every list of ids that tokenizers or sentencepiece returns; tiktoken must return arrays only."""
    made: list[int] = []
    ids, encode = tokenizers.Encoding.ids, sentencepiece.SentencePieceProcessor.encode

    def record(result):
        rows = result if isinstance(result, list) and result and not isinstance(result[0], int) else [result]
        made.extend(len(row) for row in rows if isinstance(row, list))
        return result

    monkeypatch.setattr(tokenizers.Encoding, "ids", property(lambda self: record(ids.__get__(self))))
    monkeypatch.setattr(
        sentencepiece.SentencePieceProcessor,
        "encode",
        lambda self, *texts, **options: record(encode(self, *texts, **options)),
    )
    for name in ("encode", "encode_ordinary", "encode_batch"):
        monkeypatch.delattr(tiktoken.Encoding, name)
    return made


def test_encode_batch_makes_no_list_per_text(tokenizer, monkeypatch):
    """U+329EE is not assigned in any Unicode version, so the exact libraries are used, not gigatoken."""
    texts = [f"a b \U000329ee {index}" for index in range(2_500)]
    expected = [tokenizer.encode(text) for text in texts]
    made = count_lists(monkeypatch)
    assert [row.tolist() for row in tokenizer.encode_batch(texts)] == expected
    assert len(made) <= 3  # tokenizers: one per block of 1,024 texts; the others: none
    assert sum(made) == (sum(map(len, expected)) if made else 0)
    if type(tokenizer).__name__ == "HuggingFaceTokenizer":
        before = len(made)
        assert tokenizer.encode("a b"), "nothing was recorded"
        assert len(made) == before + 1, "lists are not recorded"
    if type(tokenizer).__name__ == "SentencePieceTokenizer":
        assert tokenizer._exact.encode("a b", return_type=int)
        assert len(made) == 1, "lists are not recorded"


def test_tokens_have_the_ids_and_ordered_spans(tokenizer):
    for text in hostile_texts(150, 2, ["<s>", "<|end|>"]):
        tokens = tokenizer.tokens(text)
        assert [token.id for token in tokens] == tokenizer.encode(text)
        source, end = text.encode(), 0
        for token in tokens:
            assert end <= token.span[0] <= token.span[1] <= len(source)
            assert token.bytes == source[slice(*token.span)]
            end = token.span[1]


def count_encodings(monkeypatch) -> list[str]:
    """Record every call that finds the tokens of texts."""
    calls: list[str] = []

    def record(owner, name):
        original = getattr(owner, name)

        def recorded(*args, **options):
            calls.append(name)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, recorded)

    for owner, *names in (
        (tokenizers.Tokenizer, "encode", "encode_batch_fast"),
        (tiktoken.Encoding, "encode_to_numpy"),
        (sentencepiece.SentencePieceProcessor, "encode"),
        (ByteTokenizer, "_analyze", "encode", "encode_batch"),
        (byte_and_word, "find_words"),
    ):
        for name in names:
            record(owner, name)
    return calls


def test_walk_encodes_a_text_once(tokenizer, monkeypatch):
    calls = count_encodings(monkeypatch)
    pipeline = Pipeline.random(["a b"], tokenizer)
    first = pipeline.walk(["a b"])
    assert len(calls) == 1
    assert pipeline.walk(["a b"]) == first
    assert len(calls) == 2, "nothing was recorded"
    pipeline.walk(["a b", "c"])
    assert len(calls) == 4


@pytest.mark.parametrize("text", ["ab\ud800c", "\udfff", "é\udc80"])
def test_lone_surrogate_is_reported_with_its_position(tokenizer, text):
    position = next(i for i, character in enumerate(text) if 0xD800 <= ord(character) < 0xE000)
    match = rf"U\+{ord(text[position]):04X} at position {position}.*command line as invalid UTF-8"
    for call in (tokenizer.encode, tokenizer.tokens, lambda text: tokenizer.encode_batch(["a", text])):
        with pytest.raises(TextError, match=match):
            call(text)
    with pytest.raises(TextError, match="text 1 "):
        tokenizer.encode_batch(["a", text])


@pytest.mark.parametrize("bad", [-1, 10**6, 2**70])
def test_id_out_of_range_is_reported_with_its_position(tokenizer, bad):
    with pytest.raises(IdRangeError, match=rf"id {bad} at (\[1\]|position 1)"):
        tokenizer.decode([0, bad])
    with pytest.raises(IdRangeError, match=str(bad)):
        tokenizer.token_bytes(bad)


def test_decode_accepts_arrays(tokenizer):
    ids = tokenizer.encode("a b")
    assert tokenizer.decode(np.array(ids, np.int32)) == tokenizer.decode(ids)
    assert tokenizer.decode([]) == ""


def test_threads_get_the_same_ids(tokenizer):
    texts = hostile_texts(60, 3, ["<s>"])
    expected = [tokenizer.encode(text) for text in texts]
    plain = [tokenizer.encode(text, parse_special=False) for text in texts]

    def work(seed):
        if seed % 2:
            return [tokenizer.encode(text, parse_special=False) for text in texts] == plain
        return [row.tolist() for row in tokenizer.encode_batch(texts)] == expected

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_special_ids_are_those_of_special_tokens(tokenizer):
    assert tokenizer.special_ids == set(tokenizer.special_tokens.values())
    assert all(0 <= value < 10**6 for value in tokenizer.special_ids)
    assert tokenizer.pad_id is None


def test_wrong_argument_types_raise_one_line_errors(training_file):
    """In a separate process, because under pytest beartype checks all argument types first."""
    code = """
import sys
from inlayer.errors import DtypeError, InputError
from inlayer.ragged import Ragged
from inlayer.tokenizers import ByteTokenizer, WordTokenizer, open_tokenizer, train_bpe
t = ByteTokenizer()
calls = [lambda: t.encode(None), lambda: t.encode(b"a"), lambda: t.encode(5), lambda: t.tokens(1.5),
         lambda: t.encode_batch("ab"), lambda: t.encode_batch([b"a"]), lambda: t.encode_batch(None),
         lambda: t.decode("ab"), lambda: t.decode([1.5]), lambda: t.decode(None), lambda: open_tokenizer(None),
         lambda: WordTokenizer.from_text(None), lambda: train_bpe(None, 300), lambda: train_bpe([1], 300),
         lambda: train_bpe(sys.argv[1], "a"), lambda: Ragged.from_lists([[1]]).padded("a"),
         lambda: train_bpe(sys.argv[1], 300, 5), lambda: train_bpe(sys.argv[1], 300, special_tokens=5),
         lambda: train_bpe(sys.argv[1], 300, special_tokens="<pad>"),
         lambda: train_bpe(sys.argv[1], 300, min_frequency="a"), lambda: open_tokenizer(5),
         lambda: open_tokenizer(b"a"), lambda: open_tokenizer(".", pat_str=5),
         lambda: open_tokenizer(".", special_tokens=["<e>"]), lambda: WordTokenizer("abc"),
         lambda: WordTokenizer(5), lambda: WordTokenizer([5])]
for number, call in enumerate(calls):
    try:
        call()
    except (DtypeError, InputError) as error:
        assert "\\n" not in str(error), error
        if not isinstance(error, TypeError):
            print(number, type(error).__name__, error)
    else:
        print(number, "no error")
"""
    done = subprocess.run([sys.executable, "-c", code, str(training_file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_pickle_and_deepcopy(tokenizer):
    for copied in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert copied.encode("a b") == tokenizer.encode("a b")
        assert dict(copied.special_tokens) == dict(tokenizer.special_tokens)
        assert (repr(copied), copied.pad_id) == (repr(tokenizer), tokenizer.pad_id)
