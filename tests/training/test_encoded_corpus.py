"""Encoded corpora equal encoding in memory, batches depend on seed and step only, and damage is detected."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import inlayer
from inlayer import ByteTokenizer
from inlayer.errors import CheckpointError, IdRangeError, InputError, MissingFileError, TextError
from inlayer.tokenizers import Tokenizer
from inlayer.training import encoded_corpus as module
from inlayer.training.corpus import Chunk, read_chunks
from inlayer.training.encoded_corpus import EncodedCorpus, draw_batch, open_tokens, validation_batches, write_tokens

BYTES = inlayer.ByteTokenizer()
END = "<|endoftext|>"
TEXT = "".join(f"{number}: the cat sat on the mat 🙂 {END}\r\n" for number in range(3_000))
FILES = [Chunk(TEXT[:40_000], True), Chunk(TEXT[40_000:60_000], False), Chunk("", True), Chunk(TEXT[60_000:], False)]


class Wide(inlayer.ByteTokenizer):
    """Bytes, and a special token with a much larger id."""

    special_tokens: Mapping[str, int] = {END: 70_000}


class Inconsistent(inlayer.ByteTokenizer):
    """Returns ids beyond its vocabulary size."""

    def get_vocab_size(self) -> int:
        return 100


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_text(TEXT)
    return inlayer.train_bpe(file, 300, special_tokens=[END])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_tokens(tmp_path / "tokens", FILES, BYTES, separator=10)
    return tmp_path / "tokens"


def encode_in_memory(
    chunks: list[Chunk], tokenizer: Tokenizer, every: int, separator: int | None
) -> tuple[list[int], list[int]]:
    """Encode segment by segment, as the module's docstring describes."""
    sides: tuple[list[int], list[int]] = ([], [])
    number, starts = 0, False
    for text, starts_file in chunks:
        starts = starts or starts_file
        while text:
            size = min(16_384, 1024 + 128 * number)
            end = size if len(text) <= size or "\n" not in text[:size] else text[:size].rindex("\n") + 1
            side = sides[1 if every and number % every == every // 2 else 0]
            side += [separator] if starts and number and separator is not None else []
            side += tokenizer.encode(text[:end], add_special_tokens=False, parse_special=False)
            text, number, starts = text[end:], number + 1, False  # noqa: PLW2901
    return sides


# ---- writing


@pytest.mark.parametrize(
    ("name", "validation", "every"),
    [
        ("bytes", 0.05, 20),
        ("bytes", 0.0, 0),
        ("bytes", 0.5, 2),
        ("bytes", 0.3, 3),
        ("bytes", 1e-320, 10**18),
        ("learned", 0.05, 20),
        ("wide", 0.3, 3),
    ],
)
def test_ids_match_encoding_in_memory(
    name: str, validation: float, every: int, learned: Tokenizer, tmp_path: Path
) -> None:
    tokenizer = {"bytes": BYTES, "wide": Wide(), "learned": learned}[name]
    separator = tokenizer.special_tokens.get(END, 3)
    ours = write_tokens(
        tmp_path / "tokens", iter(FILES), tokenizer, validation_fraction=validation, separator=separator
    )
    train, validating = encode_in_memory(FILES, tokenizer, every, separator)
    assert ours.train.tolist() == train
    assert ours.validation.tolist() == validating
    assert bool(validating) == (0 < every < 100)  # 1e-320 of the text is less than a character
    assert ours.vocab_size == {"bytes": 256, "learned": 300, "wide": 70_001}[name]
    assert ours.train.dtype == (np.uint32 if ours.vocab_size == 70_001 else np.uint16)
    again = open_tokens(tmp_path / "tokens")
    assert np.array_equal(again.train, ours.train)
    assert np.array_equal(again.validation, ours.validation)
    # control: another split, another separator
    assert encode_in_memory(FILES, tokenizer, 7, separator) != (train, validating)
    assert encode_in_memory(FILES, tokenizer, every, None) != (train, validating)


def test_corpus_of_one_chunk(tmp_path: Path) -> None:
    text = "a line\n" * 600_000
    ours = write_tokens(tmp_path / "tokens", [Chunk(text, True)], BYTES, separator=None, validation_fraction=0.0)
    assert bytes(ours.train.astype(np.uint8)) == text.encode()


@pytest.mark.parametrize(
    ("size", "amount"), [(0, "0 training tokens"), (1, "1 training token"), (1000, "1,000 training tokens")]
)
def test_text_shorter_than_a_window(size: int, amount: str) -> None:
    with pytest.raises(InputError, match=f"the text has {amount}, fewer than the 1,001 of one window"):
        module.check_windows(np.zeros(size, np.uint16), 1001)


def test_special_tokens_in_the_text_are_plain_text(learned: Tokenizer, tmp_path: Path) -> None:
    end = learned.special_tokens[END]
    assert end in learned.encode(TEXT)
    ours = write_tokens(tmp_path / "tokens", FILES, learned, separator=end, validation_fraction=0.0)
    assert np.flatnonzero(ours.train == end).size == 1  # between the two files; an empty chunk does not start a third
    assert learned.decode(ours.train).replace(END, "", 1) != learned.decode(ours.train)
    without = write_tokens(tmp_path / "without", FILES, learned, separator=None, validation_fraction=0.0)
    assert learned.decode(without.train) == TEXT


def test_segments_get_no_special_tokens(learned: Tokenizer, tmp_path: Path) -> None:
    """Some tokenizers add a begin-of-text token to every text."""
    file = tmp_path / "a.txt"
    file.write_text(TEXT)
    inlayer.train_bpe(file, 300, tmp_path / "tokenizer.json", special_tokens=[END])
    config = json.loads((tmp_path / "tokenizer.json").read_text())
    special, sequence = {"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    config["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special, sequence],
        "pair": [special, sequence, sequence],
        "special_tokens": {END: {"id": END, "ids": [299], "tokens": [END]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    tokenizer = inlayer.open_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("a")[0] == 299
    ours = write_tokens(tmp_path / "tokens", FILES, tokenizer, separator=None)
    assert (ours.train.tolist(), ours.validation.tolist()) == encode_in_memory(FILES, learned, 20, None)


def test_ids_of_more_than_two_bytes(tmp_path: Path) -> None:
    words = inlayer.WordTokenizer(map(str, range(70_000)), unk="<unk>")
    ours = write_tokens(tmp_path / "tokens", [Chunk("1 65535 65536 69999 many", True)], words, separator=None)
    assert ours.train.tolist() == [1, 65_535, 65_536, 69_999, 70_000]
    assert ours.vocab_size == 70_001


def test_files_are_little_endian(tmp_path: Path) -> None:
    write_tokens(tmp_path / "two", [Chunk("Hi", True)], BYTES, separator=None)
    write_tokens(tmp_path / "four", [Chunk("Hi", True), Chunk("!", True)], Wide(), separator=70_000)
    assert (tmp_path / "two" / "train.bin").read_bytes() == b"H\0i\0"
    assert (tmp_path / "four" / "train.bin").read_bytes() == b"H\0\0\0i\0\0\0\x70\x11\x01\0!\0\0\0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four", "two"]
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["tokens.json", "train.bin", "validation.bin"]


def test_validation_text_is_spread_over_the_corpus(tmp_path: Path) -> None:
    """Every part of the text has its own letter, so an id tells its position."""
    letters = range(40, 120)
    text = "".join((chr(letter) * 79 + "\n") * 300 for letter in letters)
    ours = write_tokens(tmp_path / "tokens", [Chunk(text, True)], BYTES, separator=None)
    fifths, _ = np.histogram(ours.validation, 5, (letters[0], letters[-1]))
    assert (np.abs(fifths / (len(text) / 5) - 0.05) < 0.03).all()
    assert 0.04 < ours.validation.size / len(text) < 0.06
    assert ours.train.size + ours.validation.size == len(text)


def test_small_text_has_validation_ids(tmp_path: Path) -> None:
    ours = write_tokens(tmp_path / "tokens", [Chunk(TEXT[:25_000], True)], BYTES, separator=None)
    assert ours.validation.size > 1_000
    short = TEXT[:11_000]
    ours = write_tokens(tmp_path / "short", [Chunk(short, True)], BYTES, separator=None)
    held_out = BYTES.decode(ours.validation.tolist())
    assert len(held_out) == round(0.05 * len(short))
    assert short.replace(held_out, "", 1) == BYTES.decode(ours.train.tolist())
    ours = write_tokens(tmp_path / "other", [Chunk("x", True)], BYTES, separator=None)
    assert (ours.train.tolist(), ours.validation.tolist()) == ([120], [])


def test_progress_counts_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENCODED_AT_A_TIME", 5)
    seen: list[int] = []
    write_tokens(tmp_path / "tokens", FILES, BYTES, separator=None, progress=seen.append)
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1] == len(TEXT.encode())


def test_arguments_are_checked_before_reading(tmp_path: Path) -> None:
    def never() -> Iterator[Chunk]:
        raise AssertionError("the corpus was read")
        yield

    with pytest.raises(IdRangeError, match=r"returned id 116, outside 0\.\.99"):
        write_tokens(tmp_path / "tokens", [Chunk("too", True)], Inconsistent(), separator=None)
    far = type("Far", (inlayer.ByteTokenizer,), {"special_tokens": {END: 2**40}})()
    with pytest.raises(InputError, match="at most 16,777,216 rows"):
        write_tokens(tmp_path / "tokens", never(), far, separator=None)
    assert list(tmp_path.iterdir()) == []


# ---- atomic writes


def failing(error: BaseException) -> Iterator[Chunk]:
    yield from FILES
    raise error


@pytest.mark.parametrize(
    "error", [MissingFileError("x.txt: not found"), TextError("x.txt is not text"), KeyboardInterrupt(), MemoryError()]
)
def test_failure_while_reading_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as raised:
        write_tokens(tmp_path / "tokens", failing(error), BYTES, separator=None)
    assert raised.value is error
    assert list(tmp_path.iterdir()) == []


def test_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    chunks = read_chunks([tmp_path / "a.txt"])
    (tmp_path / "a.txt").unlink()
    with pytest.raises(MissingFileError, match=r"a\.txt cannot be read: No such file or directory$"):
        write_tokens(tmp_path / "tokens", chunks, BYTES, separator=None)


def test_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(InputError, match="tokens cannot be written: File too large"):
            write_tokens(tmp_path / "tokens", FILES, BYTES, separator=None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_existing_tokens_are_not_replaced(written: Path) -> None:
    before = open_tokens(written).train.tolist()
    with pytest.raises(InputError, match=r"tokens cannot be written: it already exists"):
        write_tokens(written, FILES, BYTES, separator=None)
    assert open_tokens(written).train.tolist() == before


# One process for both tests, since importing torch takes most of its time. It forks for each kill.
ALONE = r"""
import json, os, signal, sys, tracemalloc
from pathlib import Path
from inlayer import ByteTokenizer
from inlayer.training.corpus import Chunk, read_chunks
from inlayer.training.encoded_corpus import open_tokens, write_tokens

folder, tokenizer = Path(sys.argv[1]), ByteTokenizer()

def corpus(size):  # one endless line in a sparse file
    with open(folder / "line.txt", "wb") as file:
        file.truncate(size << 20)
    return read_chunks([folder / "line.txt"])

def write(name, chunks):
    return write_tokens(folder / name, chunks, tokenizer, separator=None)

peaks, ids = [], 0
for size, hold in ((3, iter), (24, iter), (24, list)):
    tracemalloc.start()
    chunks = hold(corpus(size))
    written = write(f"large {len(peaks)}", chunks)
    ids = written.train.size + written.validation.size
    counted = written.count_ids()[0]
    peaks.append(tracemalloc.get_traced_memory()[1] / (1 << 20))
    tracemalloc.stop()
killed = []
for name in ("first",):
    for last in (0, 90, 200):
        child = os.fork()
        if not child:
            def dying():
                for number in range(200):
                    if number == last:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield Chunk("after " * 2000, number == 0)
                os.kill(os.getpid(), signal.SIGKILL)
            write(name, dying())
        status = os.waitpid(child, 0)[1]
        try:
            found = bytes(open_tokens(folder / name).train.tolist()).decode()
        except Exception as error:
            found = type(error).__name__
        left = sorted(path.name for path in folder.iterdir() if name in path.name)
        killed.append([status, found, left])
    again = write(name, [Chunk("again", True)])
    left = sorted(path.name for path in folder.iterdir() if name in path.name)
    killed.append([0, bytes(again.train.tolist()).decode(), left])
print(json.dumps({"peaks": peaks, "ids": ids, "zeros": int(counted), "killed": killed}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("alone")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(alone: dict[str, Any]) -> None:
    small, large, held = alone["peaks"]  # MB; 3 MB streamed, 24 MB streamed, 24 MB in a list
    assert alone["ids"] == 24 << 20
    assert 0.9 * alone["ids"] < alone["zeros"] < alone["ids"]
    assert small < 40
    assert large < small + 2
    assert held > large + 20  # control: a corpus in memory is measured


@pytest.mark.slow
def test_kill_leaves_no_tokens(alone: dict[str, Any]) -> None:
    *killed, again = alone["killed"]
    for status, found, left in killed:
        assert (status, found) == (9, "MissingFileError")
        assert left == [".first.saving"]  # killed while writing
    assert again == [0, "again", ["first"]]


# ---- opening


def cut_short(folder: Path) -> None:
    (folder / "train.bin").write_bytes((folder / "train.bin").read_bytes()[:-2])


def grown(folder: Path) -> None:
    (folder / "validation.bin").write_bytes((folder / "validation.bin").read_bytes() + b"\0")


def flipped(folder: Path) -> None:
    data = bytearray((folder / "train.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "train.bin").write_bytes(data)


def emptied(folder: Path) -> None:
    (folder / "validation.bin").write_bytes(b"")


def forged(folder: Path) -> None:
    """Hidden damage: ids outside the vocabulary, with a matching checksum."""
    data = (folder / "train.bin").read_bytes()[:-2] + b"\0\1"
    (folder / "train.bin").write_bytes(data)
    changed(train_sha256=hashlib.sha256(data).hexdigest())(folder)


def changed(**facts: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        kept = json.loads((folder / "tokens.json").read_text()) | facts
        kept = {name: value for name, value in kept.items() if value is not ...}
        (folder / "tokens.json").write_text(json.dumps(kept))

    return change


def replaced(data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "tokens.json").write_bytes(data) and None


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut short": (cut_short, r"train\.bin is [\d,]+ bytes, but tokens\.json lists \d+ ids of 2 bytes"),
    "grown": (grown, r"validation\.bin is"),
    "one bit": (flipped, r"train\.bin is damaged"),
    "emptied": (emptied, r"validation\.bin is 0 bytes"),
    "forged": (forged, r"train\.bin contains id 256, outside 0\.\.255"),
    "no count": (changed(train_ids=...), "tokens.json lists None ids"),
    "another count": (changed(train_ids=7), "tokens.json lists 7 ids of 2 bytes"),
    "a count below zero": (changed(train_ids=-1), "tokens.json lists -1 ids"),
    "an absurd count": (changed(validation_ids=10**30), "tokens.json lists 10000"),
    "a count of another type": (changed(train_ids=True), "tokens.json lists True ids"),
    "a fractional count": (changed(validation_ids=1.5), r"tokens\.json lists 1\.5 ids"),
    "another format": (changed(format=1), "format is 1, which is not valid in format 2"),
    "no format": (changed(format=...), "format is missing"),
    "another dtype": (changed(dtype="uint32"), "is [\\d,]+ bytes"),
    "no dtype": (changed(dtype="float64"), "dtype is 'float64'"),
    "a list for a dtype": (changed(dtype=["uint16"]), "dtype is \\['uint16'\\]"),
    "a list for a hash": (changed(train_sha256=[]), "is damaged"),
    "another hash": (changed(train_sha256="00"), "is damaged"),
    "a table beyond memory": (changed(vocab_size=2**50), "vocab_size is 1125"),
    "a smaller table": (changed(vocab_size=10), "contains id 2.., outside"),
    "half the JSON": (replaced(b'{"format": 2, '), "is not valid JSON"),
    "no UTF-8": (replaced(b"\xff"), "is not valid JSON"),
    "a list": (replaced(b"[]"), "not a JSON object"),
    "a deep list": (replaced(b"[" * 100_000), "is nested too deeply"),
    "a long number": (replaced(b'{"format": ' + b"9" * 10_000 + b"}"), "is not valid JSON"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_reported(damage: Callable[[Path], None], message: str, written: Path) -> None:
    open_tokens(written)
    damage(written)
    with pytest.raises(CheckpointError, match=f"{message}.*; remove the folder, and resume the run"):
        open_tokens(written)


@pytest.mark.parametrize("name", ["tokens.json", "train.bin", "validation.bin"])
def test_missing_file_of_the_folder(name: str, written: Path) -> None:
    (written / name).unlink()
    with pytest.raises(MissingFileError, match=rf"{name}.*; remove the folder, and resume the run"):
        open_tokens(written)


def test_path_without_tokens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing", tmp_path / "file", tmp_path):
        with pytest.raises(MissingFileError, match=r"tokens\.json: not found"):
            open_tokens(path)


def test_ids_are_read_only(written: Path) -> None:
    ours = open_tokens(written)
    for ids in (ours.train, ours.validation):
        assert isinstance(ids, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1
    batch = draw_batch(ours.train, rows=2, width=5, seed=0, step=0)
    batch.zero_()
    assert np.array_equal(open_tokens(written).train, ours.train)


def test_count_ids(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_IDS", 1_000)
    ours = open_tokens(written)
    counts = ours.count_ids()
    assert counts.shape == (256,)
    assert counts.dtype == np.int64
    assert all(counts[token] == np.count_nonzero(ours.train == token) for token in range(256))
    nothing = np.empty(0, np.uint16)
    empty = EncodedCorpus(train=nothing, validation=nothing, vocab_size=3)
    assert empty.count_ids().tolist() == [0, 0, 0]


# ---- batches

COUNTING = np.arange(1_000, dtype=np.uint16)  # an id is its own position


def test_batch_consists_of_windows() -> None:
    batch = draw_batch(COUNTING, rows=500, width=7, seed=3, step=4)
    assert batch.dtype == torch.int64
    assert batch.shape == (500, 7)
    assert torch.equal(batch, batch[:, :1] + torch.arange(7))  # neighbors
    assert batch.min() >= 0
    assert batch.max() < 1_000


def test_batch_depends_on_its_arguments_only() -> None:
    def draw(seed: int, step: int) -> list[int]:
        return draw_batch(COUNTING, rows=8, width=3, seed=seed, step=step)[:, 0].tolist()

    first = draw(0, 0)
    np.random.seed(1)
    torch.manual_seed(1)
    draw(5, 5)
    assert draw(0, 0) == first
    # Keys that collide if seed and step are mixed carelessly: sums, swaps, 32-bit words.
    keys = [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (1 << 32, 0), (5, 1), (5 + (1 << 32), 0), (2**63 - 1, 2**40)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_batch_is_stable_across_versions() -> None:
    """Recorded values: a run resumed with another numpy must see the same text."""
    first = draw_batch(COUNTING, rows=4, width=1, seed=7, step=11)[:, 0]
    assert first.tolist() == [587, 231, 919, 494]


def test_positions_are_drawn_uniformly() -> None:
    starts = torch.cat([draw_batch(COUNTING[:12], rows=100, width=3, seed=0, step=step)[:, 0] for step in range(100)])
    counts = torch.bincount(starts, minlength=10)
    assert counts.shape == (10,)  # the last window that fits is 9, 10, 11
    assert 850 < counts.min() <= counts.max() < 1_150  # 1,000 each, 30 the standard deviation


def test_text_of_one_window_or_less() -> None:
    assert draw_batch(COUNTING[:5], rows=2, width=5, seed=0, step=0).tolist() == [[0, 1, 2, 3, 4]] * 2
    for ids in (COUNTING[:4], COUNTING[:0]):
        message = f"the text has {ids.size} training tokens, fewer than the 5 of one window; add more text"
        with pytest.raises(InputError, match=message):
            draw_batch(ids, rows=2, width=5, seed=0, step=0)
        with pytest.raises(InputError, match=message):
            validation_batches(ids, rows=2, width=5, max_windows=3)  # immediately, not when iterated


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 2**63}])
def test_bad_arguments_of_a_batch(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
        draw_batch(COUNTING, **{"rows": 2, "width": 5, "seed": 0, "step": 0, **wrong})


@given(size=st.integers(1, 300), width=st.integers(1, 40), rows=st.integers(1, 9), most=st.integers(1, 60))
def test_validation_windows_are_spread_and_do_not_overlap(size: int, width: int, rows: int, most: int) -> None:
    if size < width:
        return
    batches = list(validation_batches(COUNTING[:size], rows=rows, width=width, max_windows=most))
    assert all(batch.shape == (rows, width) for batch in batches[:-1])
    windows = torch.cat(batches)
    assert windows.dtype == torch.int64
    assert len(windows) == min(most, size // width)
    assert torch.equal(windows, windows[:, :1] + torch.arange(width))
    assert windows.unique().numel() == windows.numel()
    assert windows[0, 0] == 0
    if len(windows) > 1:
        gaps = windows[1:, 0] - windows[:-1, 0]
        assert windows[-1, -1] == size - 1
        assert gaps.max() - gaps.min() <= 1


def test_unigram_loss(tmp_path: Path) -> None:
    tokens = write_tokens(
        tmp_path / "t", [Chunk("aaab" * 30, True)], ByteTokenizer(), validation_fraction=0.0, separator=None
    )
    assert tokens.unigram_loss() == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
