"""open_tokenizer: which file of a folder is opened, in which format; malformed files end in one-line errors."""

import json
import os
import subprocess
import sys

import pytest

from inlayer.errors import InlayerError, InputError, MissingFileError, TokenizerError
from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.tiktoken import TiktokenTokenizer
from tests.tokenizers.test_contract import small_ranks, small_sentencepiece


def test_precedence_of_files_in_a_folder(tmp_path, small_json):
    (tmp_path / "tokenizer.model").write_bytes(small_sentencepiece("unigram"))
    assert isinstance(open_tokenizer(tmp_path), SentencePieceTokenizer)
    (tmp_path / "tiktoken.model").write_bytes(small_ranks())
    (tmp_path / "pat_str.txt").write_text(".")
    assert isinstance(open_tokenizer(tmp_path), TiktokenTokenizer)
    (tmp_path / "tokenizer.json").write_bytes(small_json)
    assert isinstance(open_tokenizer(tmp_path), HuggingFaceTokenizer)
    assert isinstance(open_tokenizer(str(tmp_path / "tokenizer.model")), SentencePieceTokenizer)


def test_content_decides_the_format(tmp_path, small_json):
    (tmp_path / "tokenizer.model").write_bytes(small_ranks())
    (tmp_path / "pat_str.txt").write_text(".")
    assert isinstance(open_tokenizer(tmp_path), TiktokenTokenizer)
    (tmp_path / "tokenizer.model").write_bytes(small_json)
    assert isinstance(open_tokenizer(tmp_path), HuggingFaceTokenizer)


def test_missing_and_ambiguous_files(tmp_path):
    with pytest.raises(MissingFileError, match="not found"):
        open_tokenizer(tmp_path / "nowhere")
    with pytest.raises(MissingFileError, match="folder without a tokenizer"):
        open_tokenizer(tmp_path)
    (tmp_path / "a.model").write_bytes(b"a")
    (tmp_path / "b.model").write_bytes(b"b")
    with pytest.raises(TokenizerError, match="pass the path of one of them"):
        open_tokenizer(tmp_path)


def test_pad_token_from_tokenizer_config(tmp_path, small_json):
    (tmp_path / "tokenizer.json").write_bytes(small_json)
    assert open_tokenizer(tmp_path).pad_id is None
    for value in ("<s>", {"content": "<s>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": value}))
        assert open_tokenizer(tmp_path).pad_id == 338


def test_pad_token_from_other_files(tmp_path, small_json):
    (tmp_path / "tokenizer.json").write_bytes(small_json)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": {"content": "<s>"}}))
    assert open_tokenizer(tmp_path).pad_id == 338
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<|end|>"}))
    assert open_tokenizer(tmp_path).pad_id == 339
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "</s>"}))
    (tmp_path / "tokenizer.model").write_bytes(small_sentencepiece("bpe"))
    assert open_tokenizer(tmp_path).pad_id == 2
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<none>"}))
    assert open_tokenizer(tmp_path).pad_id is None  # None, not the unknown token, which the library returns


@pytest.mark.parametrize(
    ("names", "pad"),
    [
        (["<s>", "<pad>"], 262), (["[PAD]"], 261), (["<|pad|>", "x"], 261), (["<｜▁pad▁｜>"], 261), (["<PAD>"], 261),
        (["<|image_pad|>", "<|fim_pad|>"], None), (["<pad>", "<|image_pad|>"], 261), (["<|endoftext|>"], None),
        (["<notepad>"], None), (["<pad>", "[PAD]"], None), ([], None),
    ],
)  # fmt: skip
def test_pad_token_is_found_by_name(tmp_path, names, pad):
    (tmp_path / "x.tiktoken").write_bytes(small_ranks())
    specials = {name: 261 + index for index, name in enumerate(names)}
    assert open_tokenizer(tmp_path, pat_str=".", special_tokens=specials).pad_id == pad
    if names:  # a file takes precedence
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": names[-1]}))
        assert open_tokenizer(tmp_path, pat_str=".", special_tokens=specials).pad_id == 260 + len(names)


def test_paths_that_are_not_regular_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "model" / "tokenizer.json").mkdir(parents=True)
    for path, match in {
        "/dev/null": "^/dev/null is not a regular file",
        "pipe": "^pipe is not a regular file",
        "model": r"^model/tokenizer\.json is a folder, not a file",
        "model/tokenizer.json": r"^model/tokenizer\.json is a folder without a tokenizer",
        "pipe/x": "^pipe/x: not found",
    }.items():
        with pytest.raises(MissingFileError, match=match):
            open_tokenizer(path)
    with pytest.raises(InputError, match="path is empty"):
        open_tokenizer("")
    (tmp_path / "model" / "x.tiktoken").write_bytes(
        small_ranks()
    )  # a folder named tokenizer.json does not hide other files
    assert open_tokenizer("model", pat_str=".").get_vocab_size() == 261


def test_paths_are_printed_as_given(tmp_path, monkeypatch, small_json):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("tokenizer.json", "sub/tokenizer.json"):
        (tmp_path / name).write_bytes(small_json)
        assert repr(open_tokenizer(name)) == f"HuggingFaceTokenizer('{name}', 340 tokens)"
    assert "('sub/tokenizer.json'" in repr(open_tokenizer("sub"))
    assert f"('{tmp_path}/tokenizer.json'" in repr(open_tokenizer(tmp_path))
    (tmp_path / "sub" / "tokenizer_config.json").write_text("[]")
    with pytest.raises(TokenizerError, match=r"^sub/tokenizer_config\.json contains a list"):
        open_tokenizer("sub")


def malformed_files(small_json: bytes) -> dict[str, bytes]:
    config = json.loads(small_json)

    def with_(**changes) -> bytes:
        return json.dumps(config | changes).encode()

    model = config["model"]
    return {
        "empty": b"",
        "cut": small_json[: len(small_json) // 2],
        "garbage": bytes(range(256)) * 3,
        "a list": b"[1, 2]",
        "an empty object": b"{}",
        "model is a list": with_(model=[]),
        "no vocab": with_(model={"type": "BPE"}),
        "vocab is a number": with_(model=model | {"vocab": 5}),
        "vocab of strings": with_(model=model | {"vocab": {"a": "b"}}),
        "negative id": with_(model=model | {"vocab": {"a": -1}}),
        "huge id": with_(model=model | {"vocab": {"a": 2**40}}),
        "merge of nothing": with_(model=model | {"merges": [["zzz", "yyy"]]}),
        "merges of numbers": with_(model=model | {"merges": [1]}),
        "prefix longer than a token": with_(model=model | {"continuing_subword_prefix": "#########"}),
        "unknown model": with_(model=model | {"type": "Magic"}),
        "unknown normalizer": with_(normalizer={"type": "Magic"}),
        "bad regex": with_(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
        ),
        "added tokens are a number": with_(added_tokens=5),
        "added token without content": with_(added_tokens=[{"id": 1}]),
        "deep": b'{"model":' * 100_000,
        "not utf-8": small_json.replace(b'"<s>"', b'"\xff\xfe"'),
        "nul bytes": b"\0" * 1000,
    }


def test_malformed_files_end_in_one_line(small_json, tmp_path):
    """In a separate process, so a crash would be noticed."""
    for name, data in malformed_files(small_json).items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes(data)
        (folder / "as.model").write_bytes(data)
    code = """
import sys, pathlib
from inlayer.errors import InlayerError
from inlayer.tokenizers import open_tokenizer
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for name in ("tokenizer.json", "as.model"):
        try:
            tokenizer = open_tokenizer(folder / name)
            tokenizer.encode_batch(["a b", ""])
        except InlayerError as error:
            assert len(str(error).splitlines()) == 1, error
            print("error", folder.name, name, type(error).__name__)
        else:
            print("opened", folder.name, name)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(malformed_files(small_json))
    assert [text for text in lines if text.startswith("opened")] == []


def test_huge_file_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("inlayer.tokenizers.untrusted_files.MAX_FILE_BYTES", 10)
    (tmp_path / "tokenizer.json").write_bytes(b"{" + b" " * 20 + b"}")
    with pytest.raises(TokenizerError, match="the limit for a tokenizer file is 10"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("config", ["[]", "{", '{"added_tokens_decoder": 5}', '{"added_tokens_decoder": {"x": "y"}}'])
def test_damaged_config_next_to_a_tiktoken_file(tmp_path, config):
    (tmp_path / "tiktoken.model").write_bytes(small_ranks())
    (tmp_path / "pat_str.txt").write_text(".")
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(InlayerError):
        open_tokenizer(tmp_path)


def test_code_in_a_folder_is_never_run(tmp_path):
    (tmp_path / "tiktoken.model").write_bytes(small_ranks())
    (tmp_path / "tokenization_kimi.py").write_text("raise SystemExit('executed')")
    config = {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert open_tokenizer(tmp_path).encode("a") == [97]
