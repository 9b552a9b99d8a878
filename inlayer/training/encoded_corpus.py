"""Encoded corpus: ids in memory-mapped files, written once; batches drawn by seed and step.

text -> [ids] -> rows -> (+ positions) -> hidden states -> decoder -> head -> logits
- the folder has three files: train.bin and validation.bin hold little-endian ids of 2 bytes, or 4 for a large
  vocabulary; tokens.json has their counts and checksums
- a corpus of any size is streamed. The folder is written atomically (files.py)
- text is cut into segments that are encoded one by one. Of every n = round(1 / validation) segments, the middle one is
  used for validation, so validation text is spread over the whole corpus, and the same text gives the same split.
  Segments start small and grow to MAX_SEGMENT characters, so a small corpus also has validation text. If there are too
  few segments for that, the start of the middle one is held out, as long as the requested fraction of the whole text
- special tokens in the text are encoded as plain text; only `separator` is inserted between files
- a batch depends on seed and step only, so a resumed run needs no data state
- see also: the text (corpus.py), inputs and targets of a window (trainer.py)
Tested against encoding in memory, and with kills while writing, in tests/training/test_encoded_corpus.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from inlayer.checks import check_seed
from inlayer.errors import CheckpointError, IdRangeError, InputError, MissingFileError
from inlayer.files import check_is_file, file_errors, format_path, new_folder, parse_json, quote
from inlayer.ragged import IdArray
from inlayer.render.numbers import pluralize
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.bpe_training import MAX_VOCAB
from inlayer.training.corpus import Chunk, cut

FORMAT = 2
FACTS = "tokens.json"
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
FIRST_SEGMENT, SEGMENT_GROWTH, MAX_SEGMENT = 1024, 128, 16_384  # characters
ENCODED_AT_ONCE = 64  # segments
SIDES = ("train", "validation")
BLOCK = 1 << 20  # ids counted or verified at once
WRITE_AGAIN = "remove the folder, and resume the run to encode the text again"


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedCorpus:
    """The ids of a corpus, memory-mapped and read-only; every id is less than `vocab_size`."""

    train: npt.NDArray[Any]
    validation: npt.NDArray[Any]
    vocab_size: int

    def count_ids(self) -> IdArray:
        """Count the occurrences of each id in the training ids (V,)."""
        counts_V = np.zeros(self.vocab_size, np.int64)
        for start in range(0, self.train.size, BLOCK):
            counts_V += np.bincount(self.train[start : start + BLOCK], minlength=self.vocab_size)
        return counts_V

    def unigram_loss(self) -> float:
        """Return the training loss, in nats, of a model that predicts ids by frequency alone; 0 without ids."""
        counts = self.count_ids()
        shares = counts[counts > 0] / max(1, self.train.size)
        return float(-(shares * np.log(shares)).sum())


def write_tokens(
    folder: Path,
    chunks: Iterable[Chunk],
    tokenizer: Tokenizer,
    *,
    validation: float = 0.05,
    separator: int | None,
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Encode a corpus into a new folder and open it. After a kill, call it again.

    `validation` is the fraction of text held out; `separator` is an id inserted before every file except the first.
    `progress` is called with the number of UTF-8 bytes encoded so far.
    """
    every = round(min(1 / validation, 1e18)) if validation else 0
    vocab_size = count_rows(tokenizer)
    if vocab_size > MAX_VOCAB:
        raise InputError(f"the tokenizer's largest id is {vocab_size - 1:,}; a table has at most {MAX_VOCAB:,} rows")
    dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    encoded, counts, digests = 0, dict.fromkeys(SIDES, 0), {side: hashlib.sha256() for side in SIDES}
    segments = _segments(chunks)
    with new_folder(folder) as new:
        first = list(islice(segments, ENCODED_AT_ONCE))
        middle = every // 2
        if 1 < len(first) <= middle and len(first) < ENCODED_AT_ONCE:  # all segments, none held out
            first, middle = _split_middle(first, validation)
        numbered = enumerate(chain(first, segments))
        with (new / "train.bin").open("wb") as train, (new / "validation.bin").open("wb") as held_out:
            while batch := list(islice(numbered, ENCODED_AT_ONCE)):
                texts = [segment.text for _, segment in batch]
                rows = tokenizer.encode_batch(texts, add_special_tokens=False, parse_special=False)
                _check_range(rows.flat, vocab_size)
                for (index, segment), row in zip(batch, rows, strict=True):
                    is_held_out = every > 0 and index % every == middle
                    side, file = ("validation", held_out) if is_held_out else ("train", train)
                    if segment.starts_file and index > 0 and separator is not None:
                        row = np.insert(row, 0, separator)  # noqa: PLW2901
                    data = row.astype(DTYPES[dtype]).tobytes()
                    file.write(data)
                    digests[side].update(data)
                    counts[side] += row.size
                    encoded += len(segment.text.encode())
                if progress is not None:
                    progress(encoded)
        facts: dict[str, Any] = {"format": FORMAT, "dtype": dtype, "vocab_size": vocab_size}
        for side in SIDES:
            facts |= {f"{side}_ids": counts[side], f"{side}_sha256": digests[side].hexdigest()}
        (new / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
    return open_tokens(folder)


def count_rows(tokenizer: Tokenizer) -> int:
    """Return how many rows a table needs for this tokenizer; special tokens may have ids beyond the vocabulary."""
    return max([tokenizer.get_vocab_size(), *(value + 1 for value in tokenizer.special_ids)])


def open_tokens(folder: Path) -> EncodedCorpus:
    """Open the tokens of a folder. Both files are read once to verify them."""
    try:
        facts = _read_facts(folder / FACTS)
        train, validation = (_open_ids(folder / f"{side}.bin", facts) for side in SIDES)
    except (CheckpointError, MissingFileError) as error:
        raise type(error)(f"{error}; {WRITE_AGAIN}") from None
    return EncodedCorpus(train=train, validation=validation, vocab_size=facts["vocab_size"])


def draw_batch(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, seed: int, step: int
) -> Int64[Tensor, "rows width"]:
    """Draw `rows` windows of `width` consecutive ids; seed and step determine them in every version of numpy."""
    check_windows(ids, width)
    seeds = np.random.SeedSequence(check_seed(seed), spawn_key=(step,))  # the list [seed, step] would have collisions
    drawn = np.random.Philox(seeds).random_raw(rows)
    return _windows(ids, drawn % np.uint64(ids.size - width + 1), width)


def validation_batches(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, max_windows: int
) -> Iterator[Int64[Tensor, "_ width"]]:
    """Yield at most `max_windows` windows, evenly spread and not overlapping, in batches of up to `rows`.

    The windows are always the same.
    """
    check_windows(ids, width)
    count = min(max_windows, ids.size // width)
    starts = np.arange(count, dtype=np.uint64) * np.uint64(ids.size - width) // np.uint64(max(count - 1, 1))
    return (_windows(ids, starts[first : first + rows], width) for first in range(0, count, rows))


def _windows(ids: npt.NDArray[Any], starts: npt.NDArray[np.uint64], width: int) -> Tensor:
    windows_NT = np.lib.stride_tricks.sliding_window_view(np.asarray(ids), width)  # slicing a memmap is slow
    return torch.from_numpy(windows_NT[starts.astype(np.int64)].astype(np.int64))


def check_windows(ids: npt.NDArray[Any], width: int) -> None:
    """Raise InputError if no window of this width can be drawn."""
    if ids.size < width:
        raise InputError(
            f"the text has {pluralize(ids.size, 'training token')}, fewer than the {width:,} of one window; add more "
            "text, or use a smaller --block-size"
        )


# ---- writing


def _segments(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Cut chunks into segments. If the chunk that starts a file is empty, the next one starts it."""
    index, starts_file = 0, False
    for chunk in chunks:
        starts_file |= chunk.starts_file
        start = 0
        while start < len(chunk.text):
            end = cut(chunk.text, start, min(MAX_SEGMENT, FIRST_SEGMENT + SEGMENT_GROWTH * index))
            yield Chunk(chunk.text[start:end], starts_file)
            start, index, starts_file = end, index + 1, False


def _split_middle(segments: list[Chunk], validation: float) -> tuple[list[Chunk], int]:
    """Cut the part to hold out off the middle segment of a small text; return the segments and the part's index."""
    middle, size = len(segments) // 2, round(validation * sum(len(segment.text) for segment in segments))
    text, starts_file = segments[middle]
    if not 0 < size < len(text):
        return segments, -1
    parts = (Chunk(text[:size], starts_file), Chunk(text[size:], False))
    return [*segments[:middle], *parts, *segments[middle + 1 :]], middle


def _check_range(ids: IdArray, vocab_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise IdRangeError(
            f"the tokenizer returned id {outside[0]}, outside 0..{vocab_size - 1}: its ids have gaps, but the table "
            "has one row per token; use a different tokenizer, or train one"
        )


# ---- opening


def _read_facts(path: Path) -> dict[str, Any]:
    """Read tokens.json and check the entries that the files of ids do not determine."""
    with file_errors(check_is_file(path), kind=MissingFileError):
        facts = parse_json(path.read_bytes(), format_path(path), CheckpointError)
    rows = facts.get("vocab_size")
    valid = {
        "format": facts.get("format") == FORMAT,
        "dtype": facts.get("dtype") in [*DTYPES],
        "vocab_size": type(rows) is int and 0 <= rows <= MAX_VOCAB,
    }
    for name in (name for name, is_valid in valid.items() if not is_valid):
        value = quote(facts[name]) if name in facts else "missing"
        raise CheckpointError(f"{format_path(path)}: {name} is {value}, which is not valid in format {FORMAT}")
    return facts


def _open_ids(path: Path, facts: dict[str, Any]) -> npt.NDArray[Any]:
    """Memory-map a file of ids after checking its size, its checksum and its largest id."""
    dtype, count, rows = DTYPES[facts["dtype"]], facts.get(f"{path.stem}_ids"), facts["vocab_size"]
    digest, largest = hashlib.sha256(), -1
    with file_errors(check_is_file(path), kind=MissingFileError), path.open("rb") as file:
        size = path.stat().st_size
        if type(count) is not int or size != count * dtype.itemsize:
            raise CheckpointError(
                f"{format_path(path)} is {size:,} bytes, but {FACTS} has {quote(count)} ids of {dtype.itemsize} bytes"
            )
        while data := file.read(BLOCK * dtype.itemsize):
            digest.update(data)
            largest = max(largest, int(np.frombuffer(data, dtype).max()))
    if digest.hexdigest() != facts.get(f"{path.stem}_sha256"):
        raise CheckpointError(f"{format_path(path)} is damaged: its checksum does not match")
    if largest >= rows:
        raise CheckpointError(f"{format_path(path)} contains id {largest}, outside 0..{rows - 1}")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.frombuffer(b"", dtype)
