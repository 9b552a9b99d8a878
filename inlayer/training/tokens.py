"""Tokens: the ids of a corpus in memory-mapped files, written once; batches drawn from them by seed and step.

text -> [ids] -> rows -> (+ positions) -> hidden states -> decoder -> head -> logits
- a folder of three: train.bin and validation.bin, ids one after another in 2 bytes each, or in 4 where the vocabulary
  needs them, the low byte first; tokens.json, which says how many there are and what their bytes hash to
- a corpus of any size streams through little memory. The folder is there whole or not at all (training/folder.py)
- the text is cut into pieces, each encoded by itself. Of every n pieces, n = round(1 / validation), the middle one
  validates: spread over the whole corpus, the same for the same text. Pieces are small at first and grow to PIECE
  characters, so that a small corpus has something to validate with, too
- a special token written out in the text is plain text: `separator` alone stands between files
- a batch is a function of seed and step: a run that goes on needs no state of its data
- not here: where the text comes from (training/corpus.py), one window's inputs and targets (training/run.py)
Checked against encoding in memory, with a kill while writing, in tests/training/test_tokens.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from inlayer.errors import CheckpointError, IdRangeError, InputError, MissingFileError
from inlayer.paths import check_path, quoted, shown, what_is_at, wrong_kind
from inlayer.ragged import IdArray
from inlayer.shapes import check_seed
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.train import MAX_VOCAB
from inlayer.training.corpus import Chunk, cut
from inlayer.training.folder import replacing

__all__ = ["Tokens", "draw_batch", "open_tokens", "validation_batches", "write_tokens"]

FORMAT = 1
FACTS = "tokens.json"
COUNTS = ("characters", "text_bytes", "train_ids", "validation_ids")
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
FIRST_PIECE, GROWTH, PIECE = 1024, 128, 16_384  # characters
AT_ONCE = 1 << 20  # characters encoded in one call
BLOCK = 1 << 20  # ids counted or checked at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """The ids of a corpus, as files that are read where they are asked for.

    train, validation      ids that cannot be written to
    vocab_size             every id is below it
    characters, text_bytes what the text had, training and validation together, in characters and in UTF-8
    """

    train: npt.NDArray[Any]
    validation: npt.NDArray[Any]
    vocab_size: int
    characters: int
    text_bytes: int

    def count_ids(self) -> IdArray:
        """How often each id occurs in the training ids (V,)."""
        counts_V = np.zeros(self.vocab_size, np.int64)
        for start in range(0, self.train.size, BLOCK):
            counts_V += np.bincount(self.train[start : start + BLOCK], minlength=self.vocab_size)
        return counts_V

    def unigram_loss(self) -> float:
        """The training loss, in nats, of who knows how frequent each id is and nothing else; 0 for no ids."""
        counts = self.count_ids()
        shares = counts[counts > 0] / max(1, self.train.size)
        return float(-(shares * np.log(shares)).sum())


def write_tokens(
    folder: str | os.PathLike[str],
    chunks: Iterable[Chunk],
    tokenizer: Tokenizer,
    *,
    validation: float = 0.05,
    separator: int | None,
    progress: Callable[[int], None] | None = None,
) -> Tokens:
    """Encode a corpus into `folder` and open it. What a killed call left behind does no harm: call again.

    `validation` is the share of the text that validates, 0 for none; `separator` is an id put before every file but
    the first. `progress` is called now and then with the number of UTF-8 bytes done.
    """
    if not 0 <= validation <= 0.5:
        raise InputError(f"validation is {validation}; it is the share of the text to validate with, in 0..0.5")
    every = round(min(1 / validation, 1e18)) if validation else 0
    vocab_size = max([tokenizer.get_vocab_size(), *(value + 1 for value in tokenizer.special_ids)])
    if vocab_size > MAX_VOCAB:
        raise InputError(f"the tokenizer's ids reach {vocab_size - 1:,}; a table has at most {MAX_VOCAB:,} rows")
    if separator is not None and not 0 <= separator < vocab_size:
        raise IdRangeError(f"separator is {separator}; it is an id of the tokenizer, so in 0..{vocab_size - 1}")
    dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    characters = text_bytes = 0
    with replacing(folder) as fresh:
        with (fresh / "train.bin").open("wb") as train, (fresh / "validation.bin").open("wb") as validating:
            writers = {False: _Writer(train, DTYPES[dtype]), True: _Writer(validating, DTYPES[dtype])}
            for pieces in _gather(_cut(chunks)):
                batch = tokenizer.encode_batch(
                    [piece.text for piece in pieces], add_special_tokens=False, parse_special=False
                )
                _check_range(batch.flat, vocab_size)
                for piece, ids in zip(pieces, batch, strict=True):
                    writer = writers[every > 0 and piece.number % every == every // 2]
                    if piece.starts_file and piece.number > 0 and separator is not None:
                        writer.write(np.array([separator]))
                    writer.write(ids)
                    characters += len(piece.text)
                    text_bytes += len(piece.text) if piece.text.isascii() else len(piece.text.encode())
                if progress is not None:
                    progress(text_bytes)
        if not characters:
            raise InputError("the corpus holds no text; there is nothing to learn from")
        facts = {
            "format": FORMAT,
            "dtype": dtype,
            "vocab_size": vocab_size,
            "characters": characters,
            "text_bytes": text_bytes,
            "train_ids": writers[False].count,
            "train_sha256": writers[False].hashed.hexdigest(),
            "validation_ids": writers[True].count,
            "validation_sha256": writers[True].hashed.hexdigest(),
        }
        (fresh / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
    return open_tokens(folder)


def open_tokens(folder: str | os.PathLike[str]) -> Tokens:
    """The tokens of a folder. Both files are read once, to know that they are what was written."""
    place = check_path(folder, "folder").expanduser()
    kind = what_is_at(place)
    if kind != "folder":
        reason = "it is not there" if kind == "nothing" else "it is no folder"
        raise MissingFileError(f"{shown(place)} holds no tokens: {reason}")
    facts = _read_facts(place / FACTS)
    return Tokens(
        train=_open_ids(place / "train.bin", facts),
        validation=_open_ids(place / "validation.bin", facts),
        vocab_size=facts["vocab_size"],
        characters=facts["characters"],
        text_bytes=facts["text_bytes"],
    )


def draw_batch(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, seed: int, step: int
) -> Int64[Tensor, "rows width"]:
    """`rows` windows of `width` neighbors, at places that seed and step decide; the same in every version of numpy."""
    check_windows(ids, rows, width)
    if step < 0:
        raise InputError(f"step is {step}; steps are counted from 0")
    seeds = np.random.SeedSequence(check_seed(seed), spawn_key=(step,))  # as a list, (seed, step) would have twins
    drawn = np.random.Philox(seeds).random_raw(rows)
    return _windows(ids, drawn % np.uint64(ids.size - width + 1), width)


def validation_batches(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, most: int
) -> Iterator[Int64[Tensor, "_ width"]]:
    """At most `most` windows, evenly spread from the first id to the last, none overlapping; always the same.

    They come in batches of `rows`; the last batch may have fewer.
    """
    check_windows(ids, rows, width)
    if most < 1:
        raise InputError(f"most is {most}; at least one window is needed")
    count = min(most, ids.size // width)
    starts = np.arange(count, dtype=np.uint64) * np.uint64(ids.size - width) // np.uint64(max(count - 1, 1))
    return (_windows(ids, starts[first : first + rows], width) for first in range(0, count, rows))


def _windows(ids: npt.NDArray[Any], starts: npt.NDArray[np.uint64], width: int) -> Tensor:
    source = np.asarray(ids)  # slices of a memory map are slow to make
    windows_BT = np.empty((starts.size, width), np.int64)
    for row, start in enumerate(starts.tolist()):
        windows_BT[row] = source[start : start + width]
    return torch.from_numpy(windows_BT)


def check_windows(ids: npt.NDArray[Any], rows: int, width: int) -> None:
    if rows < 1 or width < 1:
        raise InputError(f"rows is {rows} and width is {width}; both are at least 1")
    if ids.size < width:
        raise InputError(
            f"there are {ids.size:,} ids, fewer than the {width:,} of a window; give more text, or a smaller block_size"
        )


# ---- writing


class _Piece(NamedTuple):
    number: int
    text: str
    starts_file: bool


def _cut(chunks: Iterable[Chunk]) -> Iterator[_Piece]:
    """The chunks in pieces, numbered from 0. Where a chunk that starts a file is empty, the next one does."""
    number, starts_file = 0, False
    for chunk in chunks:
        starts_file |= chunk.starts_file
        start = 0
        while start < len(chunk.text):
            end = cut(chunk.text, start, min(PIECE, FIRST_PIECE + GROWTH * number))
            yield _Piece(number, chunk.text[start:end], starts_file)
            start, number, starts_file = end, number + 1, False


def _gather(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Lists of pieces of about AT_ONCE characters together."""
    gathered: list[_Piece] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece.text)
        if size >= AT_ONCE:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


class _Writer:
    """Ids to a file, counted and hashed on their way."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._file, self._dtype = file, dtype
        self.count, self.hashed = 0, hashlib.sha256()

    def write(self, ids: IdArray) -> None:
        data = ids.astype(self._dtype).tobytes()
        self._file.write(data)
        self.hashed.update(data)
        self.count += ids.size


def _check_range(ids: IdArray, vocab_size: int) -> None:
    if ids.size and (ids.max() >= vocab_size or ids.min() < 0):
        bad = int(ids.max()) if ids.max() >= vocab_size else int(ids.min())
        raise IdRangeError(
            f"the tokenizer gave id {bad}, outside 0..{vocab_size - 1}: its tokens are numbered with gaps, which a "
            "table of as many rows as tokens cannot have; train a tokenizer of your own"
        )


# ---- opening


def _read_facts(path: Path) -> dict[str, Any]:
    """What tokens.json says, every entry of the kind it must be."""
    kind = what_is_at(path)
    if kind != "file":
        raise MissingFileError(f"{wrong_kind(path, kind)}; tokens are a whole folder: write them again")
    try:
        facts: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CheckpointError(f"{shown(path)} is no valid JSON; is it cut short? Write the tokens again") from None
    if not isinstance(facts, dict):
        raise CheckpointError(f"{shown(path)} holds no JSON object; is it another program's? Write the tokens again")
    most = {"format": FORMAT, "vocab_size": MAX_VOCAB} | dict.fromkeys(COUNTS, 2**60)
    right = {name: type(facts.get(name)) is int and 0 <= facts[name] <= limit for name, limit in most.items()}
    right |= {name: isinstance(facts.get(name), str) for name in ("dtype", "train_sha256", "validation_sha256")}
    right["format"] &= facts.get("format") == FORMAT
    right["dtype"] = right["dtype"] and facts["dtype"] in DTYPES
    for name in (name for name, is_right in right.items() if not is_right):
        found = quoted(facts[name]) if name in facts else "missing"
        raise CheckpointError(
            f"{shown(path)}: {name} is {found}, which tokens of format {FORMAT} cannot have; remove the "
            "folder, and they are written again"
        )
    return facts


def _open_ids(path: Path, facts: dict[str, Any]) -> npt.NDArray[Any]:
    """A file of ids as a memory map, once its size, its bytes and the largest id are what they must be."""
    kind = what_is_at(path)
    if kind != "file":
        raise MissingFileError(f"{wrong_kind(path, kind)}; tokens are a whole folder: write them again")
    dtype, count = DTYPES[facts["dtype"]], facts[f"{path.stem}_ids"]
    size = path.stat().st_size
    if size != count * dtype.itemsize:
        raise CheckpointError(
            f"{shown(path)} has {size:,} bytes; its {count:,} ids take {count * dtype.itemsize:,}: it was cut short or "
            "changed; remove the folder, and they are written again"
        )
    hashed, largest = hashlib.sha256(), -1
    try:
        with path.open("rb") as file:
            while data := file.read(BLOCK * dtype.itemsize):
                hashed.update(data)
                largest = max(largest, int(np.frombuffer(data, dtype).max()))
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if hashed.hexdigest() != facts[f"{path.stem}_sha256"]:
        raise CheckpointError(
            f"{shown(path)} is damaged: it is not what was written; remove the folder, and they are written again"
        )
    if largest >= facts["vocab_size"]:
        raise CheckpointError(f"{shown(path)} holds id {largest}, outside 0..{facts['vocab_size'] - 1}; write it again")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.frombuffer(b"", dtype)
