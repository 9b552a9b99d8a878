"""train_bpe against a slow trainer, and the inputs it rejects."""

import errno
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from inlayer.errors import DtypeError, InputError, MissingFileError, TextError
from inlayer.tokenizers import open_tokenizer, train_bpe
from inlayer.tokenizers.bpe_training import MAX_LINE, read_lines


def learn_slowly(text: str, merges: int) -> list[bytes]:
    """Learn byte-pair merges by recounting every pair at every step; words are runs of letters."""
    words = Counter(match.group().encode() for match in re.finditer(r" ?[a-z]+|\n", text))
    split = {word: [bytes([value]) for value in word] for word in words}
    learned = []
    for _ in range(merges):
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, parts in split.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        (left, right), _ = max(pairs.items(), key=lambda item: item[1])
        learned.append(left + right)
        for word, parts in split.items():
            index, joined = 0, []
            while index < len(parts):
                if parts[index : index + 2] == [left, right]:
                    joined.append(left + right)
                    index += 2
                else:
                    joined.append(parts[index])
                    index += 1
            split[word] = joined
    return learned


def test_merges_equal_those_of_a_slow_trainer(tmp_path):
    # no two pairs are equally frequent at any step
    text = "\n".join(["ab"] * 64 + ["abc"] * 16 + ["xy"] * 32 + ["de"] * 8) + "\n"
    (tmp_path / "t.txt").write_text(text)
    ours = train_bpe(tmp_path / "t.txt", 256 + 4)
    assert {ours.token_bytes(token_id) for token_id in range(256, 260)} == set(learn_slowly(text, 4))
    assert set(learn_slowly(text, 3)) != set(learn_slowly(text, 4))  # control


def test_saved_file_is_reproducible_and_opens(training_file, tmp_path):
    first = train_bpe([training_file], 320, tmp_path / "a", special_tokens=["<s>", "<pad>"])
    train_bpe([str(training_file)], 320, tmp_path / "b" / "mine.json", special_tokens=["<s>", "<pad>"])
    saved = (tmp_path / "a" / "tokenizer.json").read_bytes()
    assert saved == (tmp_path / "b" / "mine.json").read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["tokenizer.json"]
    again = open_tokenizer(tmp_path / "a")
    assert again.get_vocab_size() == first.get_vocab_size() == 320
    assert again.special_tokens == {"<s>": 318, "<pad>": 319}
    text = "the dogs<s> 你好\0🙂 don't"
    assert again.encode(text) == first.encode(text)
    assert again.decode(again.encode(text)) == text
    assert 318 in again.encode(text)
    assert 318 not in again.encode(text, parse_special=False)
    assert {again.token_bytes(token_id) for token_id in range(256)} == {bytes([value]) for value in range(256)}


def test_smallest_vocabulary_is_bytes(training_file):
    ours = train_bpe(training_file, 256)
    assert ours.decode_bytes(ours.encode("é")) == "é".encode()
    assert len(ours.encode("dogs")) == 4


def test_invalid_input_is_rejected(training_file, tmp_path):
    with pytest.raises(InputError, match=r"must be in 256\.\."):
        train_bpe(training_file, 255)
    with pytest.raises(InputError, match=r"must be in 257\.\."):
        train_bpe(training_file, 256, special_tokens=["<s>"])
    with pytest.raises(InputError, match=r"yields only \d+ merges"):
        train_bpe(training_file, 100_000)
    with pytest.raises(InputError, match="distinct"):
        train_bpe(training_file, 300, special_tokens=["<s>", "<s>"])
    with pytest.raises(InputError, match="empty"):
        train_bpe([], 300)
    with pytest.raises(MissingFileError, match=r"none\.txt: not found; train_bpe reads"):
        train_bpe([training_file, tmp_path / "none.txt"], 300)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait\n")
    with pytest.raises(TextError, match="0xe9"):
        train_bpe(tmp_path / "latin.txt", 260)
    (tmp_path / "half.txt").write_bytes(b"\xef\xbb")  # of a byte order mark
    with pytest.raises(TextError, match="0xef at offset 0"):
        train_bpe(tmp_path / "half.txt", 260)
    (tmp_path / "nothing.txt").write_text("")
    with pytest.raises(InputError, match="yields only 0 merges"):
        train_bpe(tmp_path / "nothing.txt", 257)
    assert not (tmp_path / "tokenizer.json").exists()


def test_size_is_limited_before_training(training_file):
    """The trainer allocates memory for the requested size, and aborts the process if that fails."""
    with pytest.raises(InputError, match=r"\.\.16,777,216"):
        train_bpe(training_file, 1_000_000_000)
    with pytest.raises(InputError, match=r"yields only \d+ merges"):
        train_bpe(training_file, 2**24)
    with pytest.raises(InputError, match="yields only 0 merges"):
        train_bpe(training_file, 300, min_frequency=2**80)


def test_single_special_token_must_be_in_a_list(training_file):
    with pytest.raises(DtypeError, match="special_tokens is a str, not a list"):
        train_bpe(training_file, 300, special_tokens="<pad>")
    assert train_bpe(training_file, 300, special_tokens=["<pad>"]).pad_id == 299


def test_inputs_that_are_not_files(training_file, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingFileError, match="pipe is not a regular file"):
        train_bpe([training_file, tmp_path / "pipe"], 300)
    with pytest.raises(MissingFileError, match="is a folder, not a file"):
        train_bpe(tmp_path, 300)
    with pytest.raises(InputError, match="file 1 is empty"):
        train_bpe([training_file, ""], 300)


@pytest.mark.parametrize(
    ("save_to", "match"),
    [
        ("", "save_to is empty"),
        ("/dev/null", "save_to is /dev/null; pass a path"),
        ("x.txt", r"save_to is x\.txt; pass a path that ends in \.json"),
        ("v1.0", "create it first if its name has a dot"),
        ("file", "save_to is file; pass a path"),
        ("file/sub", "file is not a folder"),
        ("file/sub.json", "file is not a folder"),
        ("full", r"full/tokenizer\.json cannot be written: full/tokenizer\.json is not a regular file"),
        ("full/tokenizer.json", r"full/tokenizer\.json cannot be written: full/tokenizer\.json is not a regular file"),
        ("pipe.json", "not a regular file"),
    ],
)
def test_invalid_save_to_is_rejected(training_file, tmp_path, monkeypatch, save_to, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "full" / "tokenizer.json").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe.json")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=match):
        train_bpe(training_file, 300, save_to)
    assert sorted(tmp_path.rglob("*")) == before


def test_existing_folder_with_a_dot(training_file, tmp_path):
    (tmp_path / "v1.0").mkdir()
    train_bpe(training_file, 300, tmp_path / "v1.0")
    assert open_tokenizer(tmp_path / "v1.0").get_vocab_size() == 300


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_failed_write_leaves_nothing_behind(training_file, tmp_path, monkeypatch, call):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "tokenizer.json").write_text("old")
    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace"), "mkdir": (Path, "mkdir")}[call], full)
    for target in (tmp_path / "a" / "b", *([tmp_path] if call != "mkdir" else [])):
        with pytest.raises(InputError, match="cannot be written: No space left"):
            train_bpe(training_file, 300, target)
    assert [path.name for path in tmp_path.rglob("*")] == ["tokenizer.json"]
    assert (tmp_path / "tokenizer.json").read_text() == "old"


def test_text_without_line_ends_is_read_in_parts(tmp_path: Path) -> None:
    """Parts end before spaces, so no word is split: merges equal those of the same words on many lines."""
    words = [f" {word}" for word in ("the", "then", "there", "other", "weather") for _ in range(900)]
    one, many = tmp_path / "one.txt", tmp_path / "many.txt"
    one.write_text("".join(words))
    many.write_text("\n".join("".join(words[start : start + 20]) for start in range(0, len(words), 20)))
    long, short = (train_bpe(path, 265) for path in (one, many))
    assert [long.token_bytes(token) for token in range(265)] == [short.token_bytes(token) for token in range(265)]
    assert max(map(len, read_lines([one]))) < 2 * MAX_LINE
    assert "".join(read_lines([one])) == one.read_text()
    many.write_bytes(b"\xef\xbb\xbf" + one.read_bytes())
    assert list(read_lines([many, many])) == list(read_lines([one, one]))
