"""train_bpe against a slow trainer, and what it refuses."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from inlayer.errors import InputError, MissingFileError, TextError
from inlayer.text import open_tokenizer, train_bpe


def learn_slowly(text: str, merges: int) -> list[bytes]:
    """The tokens byte-pair encoding learns, by recounting every pair at every step; words are runs of letters."""
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
            place, joined = 0, []
            while place < len(parts):
                if parts[place : place + 2] == [left, right]:
                    joined.append(left + right)
                    place += 2
                else:
                    joined.append(parts[place])
                    place += 1
            split[word] = joined
    return learned


def test_learns_what_a_slow_trainer_learns(tmp_path):
    # no two pairs are equally frequent at any step
    text = "\n".join(["ab"] * 64 + ["abc"] * 16 + ["xy"] * 32 + ["de"] * 8) + "\n"
    (tmp_path / "t.txt").write_text(text)
    ours = train_bpe(tmp_path / "t.txt", 256 + 4)
    assert {ours.token_bytes(token_id) for token_id in range(256, 260)} == set(learn_slowly(text, 4))
    assert set(learn_slowly(text, 3)) != set(learn_slowly(text, 4))  # control


def test_saved_opened_and_the_same_again(training_file, tmp_path):
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


def test_the_smallest_is_bytes(training_file):
    ours = train_bpe(training_file, 256)
    assert ours.decode_bytes(ours.encode("é")) == "é".encode()
    assert len(ours.encode("dogs")) == 4


def test_refusals(training_file, tmp_path):
    with pytest.raises(InputError, match="at least 256"):
        train_bpe(training_file, 255)
    with pytest.raises(InputError, match="at least 257"):
        train_bpe(training_file, 256, special_tokens=["<s>"])
    with pytest.raises(InputError, match=r"gives \d+ merges"):
        train_bpe(training_file, 100_000)
    with pytest.raises(InputError, match="name of its own"):
        train_bpe(training_file, 300, special_tokens=["<s>", "<s>"])
    with pytest.raises(InputError, match="empty"):
        train_bpe([], 300)
    with pytest.raises(MissingFileError, match="not a file"):
        train_bpe([training_file, tmp_path / "none.txt"], 300)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait\n")
    with pytest.raises(TextError, match="0xE9"):
        train_bpe(tmp_path / "latin.txt", 260)
    (tmp_path / "nothing.txt").write_text("")
    with pytest.raises(InputError, match="gives 0 merges"):
        train_bpe(tmp_path / "nothing.txt", 257)
    assert not (tmp_path / "tokenizer.json").exists()
