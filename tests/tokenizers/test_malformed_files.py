"""Malformed files end in a one-line TokenizerError that names the problem, even where a library panics."""

import base64
import copy
import json
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from inlayer.errors import MissingFileError, TokenizerError
from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.tokenizers.malformed import TEXTS, charsmap, token, valid_files


def run_in_process(*arguments: object) -> list[str]:
    command = [sys.executable, "-m", "tests.tokenizers.malformed", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_randomly_changed_files_end_in_one_line():
    lines = run_in_process("ours", 0, 500)
    assert len(lines) == 500  # one line each
    kinds = Counter(line.split()[0] for line in lines)
    assert set(kinds) == {"ok", "TokenizerError"}
    assert kinds["ok"] > 30  # control: not everything is rejected
    assert not any("untagged" in line for line in lines)


def broken_map(position: int, value: int) -> str:
    data = bytearray(base64.b64decode(charsmap()))
    data[position : position + 4] = value.to_bytes(4, "little")
    return base64.b64encode(data).decode()


REPLACE = {"type": "Replace", "pattern": {"Regex": "^"}, "content": "_"}
# Files that make `tokenizers` panic: the valid file, the field to change, its new value.
PANICS = {
    "merge shorter than the prefix": ("prefixed bpe", ("model", "continuing_subword_prefix"), "#" * 9),
    "charsmap is null": ("unigram", ("normalizer", "precompiled_charsmap"), None),
    "charsmap is not base64": ("unigram", ("normalizer", "precompiled_charsmap"), "é"),
    "charsmap is truncated": ("unigram", ("normalizer", "precompiled_charsmap"), "AAAA"),
    "charsmap with a wrong root": ("unigram", ("normalizer", "precompiled_charsmap"), broken_map(4, 0x7FFFFC00)),
    "pre-tokens of length 0": ("words", ("pre_tokenizer",), {"type": "FixedLength", "length": 0}),
    "template with an unlisted token": ("bpe", ("post_processor", "special_tokens"), {}),
    "template without a second text": ("bpe", ("post_processor", "single"), [{"Sequence": {"id": "B", "type_id": 0}}]),
    "added token that is normalized away": ("words", ("added_tokens",), [token(17, " ", normalized=True)]),
    "insertion before the first character": (
        "words", ("normalizer",), {"type": "Sequence", "normalizers": [REPLACE, {"type": "NFC"}]},
    ),
}  # fmt: skip


def panicking_file(name: str) -> bytes:
    kind, path, value = PANICS[name]
    config = copy.deepcopy(valid_files()[kind])
    holder = config
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return json.dumps(config).encode()


def use(data: bytes) -> None:
    """Open a file and encode texts in every way."""
    ours = HuggingFaceTokenizer(data)
    for text in TEXTS:
        ours.encode(text)
        ours.tokens(text)
        ours.pre_tokens(text, parse_special=False)
    ours.encode_batch(TEXTS)


@pytest.mark.parametrize("name", PANICS)
def test_panic_becomes_a_one_line_error(name):
    with pytest.raises(TokenizerError, match=r"^tokenizer\.json") as caught:
        use(panicking_file(name))
    assert str(caught.value).isprintable()


def test_library_panics_on_these_files(tmp_path):
    """Control: without the conversion each of them would raise a PanicException."""
    if metadata.version("tokenizers") != "0.23.3":
        pytest.skip("measured with tokenizers 0.23.3")
    files = []
    for name in PANICS:
        (tmp_path / f"{name}.json").write_bytes(panicking_file(name))
        files.append(tmp_path / f"{name}.json")
    lines = run_in_process("theirs", *files)
    assert [line.split()[0] for line in lines] == ["PanicException"] * len(files)


def test_valid_files_that_nearly_panic_are_opened():
    """An insertion at the start, alone or before a plain replacement, is valid and occurs in real files."""
    config = valid_files()["words"]
    for later in ([], [{"type": "Replace", "pattern": {"String": " "}, "content": "_"}]):
        config["normalizer"] = {"type": "Sequence", "normalizers": [REPLACE, *later]}
        assert HuggingFaceTokenizer(json.dumps(config).encode()).encode("a")
    assert HuggingFaceTokenizer(json.dumps(valid_files()["unigram"]).encode()).encode("a") == [0, 1, 2]


@pytest.mark.parametrize(
    ("part", "value", "match"),
    [
        ("model", {"type": "Foo", "vocab": {"a": 0}}, "its model type 'Foo' is not known to the tokenizers library"),
        ("normalizer", {"type": "Foo"}, "its normalizer type 'Foo' is not known"),
        ("pre_tokenizer", {"type": "Foo"}, "its pre_tokenizer type 'Foo' is not known"),
        ("post_processor", {"type": "Foo"}, "its post_processor type 'Foo' is not known"),
        ("decoder", {"type": "Foo"}, "its decoder type 'Foo' is not known"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Foo"}]}, "normalizer.*'Foo'"),
        ("decoder", {"type": "Replace"}, "its decoder is malformed"),
        ("pre_tokenizer", {"type": "Split"}, "missing field `pattern`"),
        ("normalizer", 5, "its normalizer is malformed"),
        ("added_tokens", [{"id": 1}], "missing field `content`"),
        ("version", "7", "Unknown tokenizer version"),
        ("mystery", 1, "'mystery' is not a field of a tokenizer.json"),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}, "its merge is malformed"),
        ("model", {"type": "BPE", "vocab": {}, "merges": []}, "empty vocab"),
        ("model", {"type": "Unigram", "vocab": []}, "empty vocab"),
        (
            "model",
            {"type": "BPE", "vocab": {"a": 4 * 10**9}, "merges": []},
            "assigns id '4000000000' to 'a'; ids must be in 0..2147",
        ),
        ("model", {"type": "BPE", "vocab": {"a": -1}, "merges": []}, "assigns id '-1' to 'a'"),
        ("model", {"type": "BPE", "vocab": {"a": "b"}, "merges": []}, "assigns id 'b' to 'a'"),
        ("normalizer", [json.loads('{"a":' * 80 + "1" + "}" * 80)], "normalizer is malformed"),
    ],
)
def test_error_names_the_unreadable_part(part, value, match):
    with pytest.raises(TokenizerError, match=f"^tokenizer.json.*{match}") as caught:
        HuggingFaceTokenizer(json.dumps(valid_files()["bpe"] | {part: value}).encode())
    assert "untagged" not in str(caught.value)


UNKNOWN = "is not a tokenizer.json, a tiktoken file .*, or a sentencepiece model"
RANDOM = bytes(range(255, 0, -1)) * 4


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("x.json", b"garbage", r"not valid JSON \(Expecting value.*\)$"),
        ("x.json", b"\0" * 50, r"not valid JSON \(Expecting value.*\)$"),
        ("x.json", b"\xff\xfe\x00", r"not valid JSON \(not valid UTF-8: byte 0xff at offset 0\)$"),
        ("x.json", b'{"a":' * 100_000, "nested too deeply$"),
        ("x.json", b'{"a":' + b"9" * 5000 + b"}", "not valid JSON .*digits"),
        ("x.json", b"null", "contains null, not a JSON object"),
        ("x.json", b"[1]", "contains a list, not a JSON object"),
        ("x.json", b" \n", "is empty"),
        ("x.json", b'{"model": {"vocab": {"a"', "truncated"),
        ("x.json", b'{"model": "a', "truncated"),
        ("x.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("tiktoken.model", RANDOM, "line 1 of .* is not `base64 rank`"),
        ("x.tiktoken", RANDOM, "line 1 of .* is not `base64 rank`"),
        ("x.tiktoken", b"YQ==\nYg== 1\n", "line 1 of .* is not `base64 rank`"),
        ("x.model", b"YQ== 0\nYg==\nYw== 2\nZA== 3\n", "line 2 of .* is not `base64 rank`"),
        ("x.model", b"YQ== 0\nYg== 1_0\nYw== 2\n", "line 2 of .* is not `base64 rank`"),
        ("x.model", b"!!!! 0\nYg== 1\n", "line 1 of .* is not `base64 rank`"),
        ("x.model", b"YQ== -1\nYg== 0\n", "line 1 of .* is not `base64 rank`: b'YQ== -1'; .* start at 0"),
        ("x.model", RANDOM, UNKNOWN),
        ("x.model", b"some words\nand more\n", UNKNOWN),
        ("x.model", b"\xff" * 100_000, UNKNOWN),
        ("x.model", b"", "is empty"),
        ("x.model", b"\x0a\x05hello", "x.model is not a valid sentencepiece model$"),
        ("x.model", b"\x0a\x03\x0a\x01a" * 3, "x.model is not a valid sentencepiece model: a is already defined"),
    ],
)
def test_damaged_files_name_their_format_and_problem(tmp_path, monkeypatch, name, data, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=match) as caught:
        open_tokenizer(name)
    assert name in str(caught.value)
    assert "/" not in str(caught.value).replace(match, "")  # the path as given, and no location in a library's source


def test_byte_order_mark_is_accepted():
    config = json.dumps(valid_files()["bpe"]).encode()
    assert HuggingFaceTokenizer(b"\xef\xbb\xbf" + config).encode("the") == HuggingFaceTokenizer(config).encode("the")


def test_damaged_pat_str_and_added_tokens_decoder(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(256)))
    (tmp_path / "pat_str.txt").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"pat_str\.txt is not valid UTF-8"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"9" * 5000: "x"}}))
    (tmp_path / "pat_str.txt").write_text(".")
    with pytest.raises(TokenizerError, match="expected an id and a token"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["a\nb", "a" * 5000, "a\0b", "a\ud800"])
def test_any_path_is_printed_on_one_line(name):
    with pytest.raises(MissingFileError) as caught:
        open_tokenizer(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "model", [models.WordLevel({"a": 0, "b": 1}), models.Unigram([("a", -1.0), ("b", -2.0)], None, False)]
)
def test_vocabulary_without_unknown_token_encodes_in_batches(tmp_path: Path, model: models.Model) -> None:
    """encode_batch accepts what encode accepts: a probe text that cannot be encoded must not matter."""
    theirs = tokenizers.Tokenizer(model)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path)
    assert ours.encode_batch(["a", "b"]).flat.tolist() == [*ours.encode("a"), *theirs.encode("b").ids] == [0, 1]
    with pytest.raises(TokenizerError):
        ours.encode_batch(["z"])


@pytest.mark.parametrize("pattern", ["x*", "", r"a|(?=\d)"])
def test_split_pattern_with_empty_matches_is_an_error(tmp_path: Path, pattern: str) -> None:
    """tiktoken panics on an empty match."""
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    (tmp_path / "tiktoken.model").write_bytes(ranks)
    with pytest.raises(TokenizerError, match="cannot encode"):
        open_tokenizer(tmp_path, pat_str=pattern).encode("1")
    assert open_tokenizer(tmp_path, pat_str=r"\w+|\W+").encode("ab") == [97, 98]
