"""Damaged files end in one line that says which part; nothing a library prints besides."""

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
from inlayer.tokenizers.charsmap import charsmap_fault
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.tokenizers.mutations import charsmap, token, whole


def in_a_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.tokenizers.mutations", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_mutated_files_end_in_one_line_and_print_nothing():
    done = in_a_process("ours", 0, 500)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 500  # one line each
    kinds = Counter(line.split()[0] for line in lines)
    assert set(kinds) == {"ok", "TokenizerError"}
    assert kinds["ok"] > 30  # the control: not everything is refused
    assert not any("untagged" in line or "line 1 column" in line for line in lines)


def broken_map(position: int, value: int) -> str:
    data = bytearray(base64.b64decode(charsmap()))
    data[position : position + 4] = value.to_bytes(4, "little")
    return base64.b64encode(data).decode()


REPLACE = {"type": "Replace", "pattern": {"Regex": "^"}, "content": "_"}
# what makes `tokenizers` panic: file, the part to change, its value, what we say
PANICS = {
    "short merge": ("prefixed bpe", ("model", "continuing_subword_prefix"), "#" * 9, "shorter than continuing"),
    "map of nothing": ("unigram", ("normalizer", "precompiled_charsmap"), None, "no base64"),
    "map, not base64": ("unigram", ("normalizer", "precompiled_charsmap"), "é", "no base64"),
    "map, cut": ("unigram", ("normalizer", "precompiled_charsmap"), "AAAA", "names a trie"),
    "map, wrong root": ("unigram", ("normalizer", "precompiled_charsmap"), broken_map(4, 0x7FFFFC00), "outside itself"),
    "length 0": ("words", ("pre_tokenizer",), {"type": "FixedLength", "length": 0}, "length 0"),
    "template, unlisted": ("bpe", ("post_processor", "special_tokens"), {}, "does not list its ids"),
    "template, no second text": (
        "bpe", ("post_processor", "single"), [{"Sequence": {"id": "B", "type_id": 0}}], "puts a text 'B'",
    ),
    "token of nothing": ("words", ("added_tokens",), [token(17, " ", normalized=True)], "leaves nothing"),
    "insertion": (
        "words", ("normalizer",), {"type": "Sequence", "normalizers": [REPLACE, {"type": "NFC"}]}, "before the first",
    ),
}  # fmt: skip


def panicking(name: str) -> bytes:
    kind, path, value, _ = PANICS[name]
    config = copy.deepcopy(whole()[kind])
    holder = config
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return json.dumps(config).encode()


@pytest.mark.parametrize("name", PANICS)
def test_what_panics_is_refused_before(name, capfd):
    with pytest.raises(TokenizerError, match=PANICS[name][3]):
        HuggingFaceTokenizer(panicking(name))
    assert capfd.readouterr().err == ""


def test_the_library_does_panic_on_them(tmp_path):
    """The control: each of the checks is needed."""
    if metadata.version("tokenizers") != "0.23.3":
        pytest.skip("measured with tokenizers 0.23.3")
    files = []
    for name in PANICS:
        (tmp_path / f"{name}.json").write_bytes(panicking(name))
        files.append(tmp_path / f"{name}.json")
    done = in_a_process("theirs", *files)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["PanicException"] * len(files)
    assert done.stderr.count("panicked at") == len(files)


def test_what_nearly_panics_is_opened():
    """An insertion at the start alone, or before a plain replacement, is read by `tokenizers`: real files do that."""
    config = whole()["words"]
    for later in ([], [{"type": "Replace", "pattern": {"String": " "}, "content": "_"}]):
        config["normalizer"] = {"type": "Sequence", "normalizers": [REPLACE, *later]}
        assert HuggingFaceTokenizer(json.dumps(config).encode()).encode("a")
    assert HuggingFaceTokenizer(json.dumps(whole()["unigram"]).encode()).encode("a") == [0, 1, 2]
    assert charsmap_fault(charsmap()) is None


@pytest.mark.parametrize(
    ("part", "value", "match"),
    [
        ("model", {"type": "Foo", "vocab": {"a": 0}}, "the model of type 'Foo' is not one that tokenizers knows"),
        ("normalizer", {"type": "Foo"}, "the normalizer of type 'Foo' is not one"),
        ("pre_tokenizer", {"type": "Foo"}, "the pre_tokenizer of type 'Foo' is not one"),
        ("post_processor", {"type": "Foo"}, "the post_processor of type 'Foo' is not one"),
        ("decoder", {"type": "Foo"}, "the decoder of type 'Foo' is not one"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Foo"}]}, "normalizer.*'Foo'"),
        ("decoder", {"type": "Replace"}, "the decoder of type 'Replace' is malformed"),
        ("pre_tokenizer", {"type": "Split"}, "type 'Split' is malformed: missing field `pattern`$"),
        ("normalizer", 5, "its normalizer has no type"),
        ("added_tokens", [{"id": 1}], "its added_tokens is malformed: missing field"),
        ("version", "7", "its version is malformed"),
        ("mystery", 1, "'mystery', which is no part of a tokenizer.json"),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}, "its merges are no pairs"),
        ("model", {"type": "BPE", "vocab": {}, "merges": []}, "vocab of its model is empty"),
        ("model", {"type": "Unigram", "vocab": []}, "vocab of its model is empty"),
        ("model", {"type": "BPE", "vocab": {"a": 4 * 10**9}, "merges": []}, "'a' the id 4000000000; ids are 0..2147"),
        ("model", {"type": "BPE", "vocab": {"a": -1}, "merges": []}, "'a' the id -1"),
        ("model", {"type": "BPE", "vocab": {"a": "b"}, "merges": []}, "'a' the id b"),
        ("normalizer", [json.loads('{"a":' * 80 + "1" + "}" * 80)], "normalizer has no type"),
    ],
)
def test_the_part_that_is_not_understood_is_named(part, value, match):
    with pytest.raises(TokenizerError, match=f"^tokenizer.json.*{match}") as caught:
        HuggingFaceTokenizer(json.dumps(whole()["bpe"] | {part: value}).encode())
    assert "untagged" not in str(caught.value)
    assert "column" not in str(caught.value)


NEITHER = "neither a tokenizer.json, nor ranks .* nor a sentencepiece model"
RANDOM = bytes(range(255, 0, -1)) * 4


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("x.json", b"garbage", r"no valid JSON \(Expecting value.*\)$"),
        ("x.json", b"\0" * 50, r"no valid JSON \(Expecting value.*\)$"),
        ("x.json", b"\xff\xfe\x00", "no JSON: byte 0xFF at 0 is not UTF-8 text$"),
        ("x.json", b'{"a":' * 100_000, "nested too deeply to be a tokenizer's$"),
        ("x.json", b'{"a":' + b"9" * 5000 + b"}", "no valid JSON .*digits"),
        ("x.json", b"null", "holds null, not an object"),
        ("x.json", b"[1]", "holds a list, not an object"),
        ("x.json", b" \n", "is empty"),
        ("x.json", b'{"model": {"vocab": {"a"', "cut short"),
        ("x.json", b'{"model": "a', "cut short"),
        ("x.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("tiktoken.model", RANDOM, "line 1 of .* is not `base64 rank`"),
        ("x.tiktoken", RANDOM, "line 1 of .* is not `base64 rank`"),
        ("x.tiktoken", b"YQ==\nYg== 1\n", "line 1 of .* is not `base64 rank`"),
        ("x.model", b"YQ== 0\nYg==\nYw== 2\nZA== 3\n", "line 2 of .* is not `base64 rank`"),
        ("x.model", b"YQ== 0\nYg== 1_0\nYw== 2\n", "line 2 of .* is not `base64 rank`"),
        ("x.model", b"!!!! 0\nYg== 1\n", "line 1 of .* is not `base64 rank`"),
        ("x.model", b"YQ== -1\nYg== 0\n", "line 1 of .* has rank -1"),
        ("x.model", RANDOM, NEITHER),
        ("x.model", b"some words\nand more\n", NEITHER),
        ("x.model", b"\xff" * 100_000, NEITHER),
        ("x.model", b"", "is empty"),
        ("x.model", b"\x0a\x05hello", "x.model is no sentencepiece model$"),
        ("x.model", b"\x0a\x03\x0a\x01a" * 3, "x.model is no sentencepiece model: a is already defined"),
    ],
)
def test_what_a_damaged_file_is_taken_for(tmp_path, monkeypatch, name, data, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=match) as caught:
        open_tokenizer(name)
    assert name in str(caught.value)
    assert "/" not in str(caught.value).replace(match, "")  # the path as it was given; no place in a library's source


def test_a_byte_order_mark_is_no_damage():
    config = json.dumps(whole()["bpe"]).encode()
    assert HuggingFaceTokenizer(b"\xef\xbb\xbf" + config).encode("the") == HuggingFaceTokenizer(config).encode("the")


def test_a_pattern_that_is_no_text(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(256)))
    (tmp_path / "pat_str.txt").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"pat_str\.txt is not UTF-8"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"9" * 5000: "x"}}))
    (tmp_path / "pat_str.txt").write_text(".")
    with pytest.raises(TokenizerError, match="expected an id and a token"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["a\nb", "a" * 5000, "a\0b", "a\ud800"])
def test_any_path_is_shown_on_one_line(name):
    with pytest.raises(MissingFileError) as caught:
        open_tokenizer(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "model", [models.WordLevel({"a": 0, "b": 1}), models.Unigram([("a", -1.0), ("b", -2.0)], None, False)]
)
def test_a_vocabulary_without_an_unknown_token_encodes_in_batches(tmp_path: Path, model: models.Model) -> None:
    """What `encode` takes, `encode_batch` takes: a probe of our own that fails must not fail the text."""
    theirs = tokenizers.Tokenizer(model)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path)
    assert ours.encode_batch(["a", "b"]).flat.tolist() == [*ours.encode("a"), *theirs.encode("b").ids] == [0, 1]
    with pytest.raises(TokenizerError):
        ours.encode_batch(["z"])


@pytest.mark.parametrize("pattern", ["x*", "", r"a|(?=\d)"])
def test_a_split_pattern_that_matches_nothing_is_refused(
    tmp_path: Path, pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    (tmp_path / "tiktoken.model").write_bytes(ranks)
    with pytest.raises(TokenizerError, match="matches no text at all"):
        open_tokenizer(tmp_path, pat_str=pattern)
    assert capfd.readouterr().err == ""  # no panic was reached
    assert open_tokenizer(tmp_path, pat_str=r"\w+|\W+").encode("ab") == [97, 98]
