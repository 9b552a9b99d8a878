"""Encoded corpus: ids in memory-mapped files that are written once, and batches drawn by seed and step.

text -> [ids] -> rows -> (+ positions) -> hidden states -> decoder -> head -> logits
- the folder has three files: train.bin and validation.bin hold little-endian ids of 2 bytes, or 4 for a large
  vocabulary; tokens.json contains their counts and checksums
- a corpus of any size is streamed. The folder is written atomically (files.py)
- text is cut into segments that are encoded one by one. In every n = round(1 / validation_fraction) segments, the
  middle one is used for validation, so validation text is spread over the whole corpus, and the same text gives the
  same split. Segments start small and grow to MAX_SEGMENT characters, so a small corpus also has validation text. If
  there are too few segments for that, the start of the middle segment is held out, as long as the requested fraction
  of the whole text
- special tokens in the text are encoded as plain text; only `separator` is inserted between files
- a batch depends only on the seed and the step, so a resumed run does not need a data state
- see also: the text (corpus.py), a window's inputs and targets (trainer.py)
Tested against encoding in memory, and by killing it while it writes, in tests/training/test_encoded_corpus.py.
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
from inlayer.files import check_is_file, file_errors, format_path, new_folder, quote, read_json
from inlayer.render.numbers import pluralize
from inlayer.shapes import Array, Ids
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.bpe_training import MAX_VOCAB
from inlayer.training.config import MIN_BLOCK_SIZE
from inlayer.training.corpus import Chunk, cut

FORMAT = 2
METADATA_FILE, MAX_METADATA = "tokens.json", 2**20  # bytes
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
FIRST_SEGMENT, SEGMENT_GROWTH, MAX_SEGMENT = 1024, 128, 16_384  # characters
ENCODED_AT_A_TIME = 64  # segments
SPLITS = ("train", "validation")
COUNTED_IDS = 1 << 20  # ids to count or verify at a time
REENCODE_ADVICE = "remove the folder, and resume the run to encode the text again"


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedCorpus:
    """The ids of a corpus, memory-mapped and read-only; every id is less than `vocab_size`."""

    train: Array
    validation: Array
    vocab_size: int

    def count_ids(self) -> Ids:
        """Count the occurrences of each id in the training ids (V,)."""
        counts_V = np.zeros(self.vocab_size, np.int64)
        for start in range(0, self.train.size, COUNTED_IDS):
            counts_V += np.bincount(self.train[start : start + COUNTED_IDS], minlength=self.vocab_size)
        return counts_V

    def unigram_loss(self) -> float:
        """Return the training loss, in nats, of a model that knows only id frequencies, or 0 if there are no ids."""
        counts = self.count_ids()
        shares = counts[counts > 0] / max(1, self.train.size)
        return float(-(shares * np.log(shares)).sum())


def write_tokens(
    folder: Path,
    chunks: Iterable[Chunk],
    tokenizer: Tokenizer,
    *,
    validation_fraction: float = 0.05,
    separator: int | None,
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Encode a corpus into a new folder and open it. After a kill, call it again.

    `validation_fraction` is the fraction of text held out; `separator` is an id inserted before every file except the
    first. `progress` is called with the number of UTF-8 bytes encoded so far.
    """
    every = round(min(1 / validation_fraction, 1e18)) if validation_fraction else 0
    vocab_size = count_rows(tokenizer)
    if vocab_size > MAX_VOCAB:
        raise InputError(f"the tokenizer's largest id is {vocab_size - 1:,}; a table has at most {MAX_VOCAB:,} rows")
    dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    encoded, counts, digests = 0, dict.fromkeys(SPLITS, 0), {split: hashlib.sha256() for split in SPLITS}
    segments = _segments(chunks)
    with new_folder(folder) as new:
        first = list(islice(segments, ENCODED_AT_A_TIME))
        middle = every // 2
        if 1 < len(first) <= middle and len(first) < ENCODED_AT_A_TIME:  # all segments, none of them held out
            first, middle = _split_middle(first, validation_fraction)
        numbered = enumerate(chain(first, segments))
        with (new / "train.bin").open("wb") as train, (new / "validation.bin").open("wb") as held_out:
            while batch := list(islice(numbered, ENCODED_AT_A_TIME)):
                texts = [segment.text for _, segment in batch]
                rows = tokenizer.encode_batch(texts, add_special_tokens=False, parse_special=False)
                _check_range(rows.flat, vocab_size)
                for (index, segment), row in zip(batch, rows, strict=True):
                    is_held_out = every > 0 and index % every == middle
                    split, file = ("validation", held_out) if is_held_out else ("train", train)
                    if segment.starts_file and index > 0 and separator is not None:
                        row = np.insert(row, 0, separator)  # noqa: PLW2901
                    data = row.astype(DTYPES[dtype]).tobytes()
                    file.write(data)
                    digests[split].update(data)
                    counts[split] += row.size
                    encoded += len(segment.text.encode())
                if progress is not None:
                    progress(encoded)
        metadata: dict[str, Any] = {"format": FORMAT, "dtype": dtype, "vocab_size": vocab_size}
        for split in SPLITS:
            metadata |= {f"{split}_ids": counts[split], f"{split}_sha256": digests[split].hexdigest()}
        (new / METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n")
    return open_tokens(folder)


def count_rows(tokenizer: Tokenizer) -> int:
    """Return the number of table rows for this tokenizer; special tokens may have ids beyond the vocabulary."""
    return max([tokenizer.get_vocab_size(), *(value + 1 for value in tokenizer.special_ids)])


def open_tokens(folder: Path) -> EncodedCorpus:
    """Open the encoded corpus in a folder. Both files are read once to verify them."""
    try:
        metadata = _read_metadata(folder / METADATA_FILE)
        train, validation = (_open_ids(folder / f"{split}.bin", metadata) for split in SPLITS)
    except (CheckpointError, MissingFileError) as error:
        raise type(error)(f"{error}; {REENCODE_ADVICE}") from None
    return EncodedCorpus(train=train, validation=validation, vocab_size=metadata["vocab_size"])


def draw_batch(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, seed: int, step: int
) -> Int64[Tensor, "rows width"]:
    """Draw `rows` windows of `width` consecutive ids; seed and step determine them, in any version of numpy."""
    check_windows(ids, width)
    seeds = np.random.SeedSequence(check_seed(seed), spawn_key=(step,))  # the list [seed, step] would have collisions
    drawn = np.random.Philox(seeds).random_raw(rows)
    return _windows(ids, drawn % np.uint64(ids.size - width + 1), width)


def validation_batches(
    ids: Integer[np.ndarray, " N"], *, rows: int, width: int, max_windows: int
) -> Iterator[Int64[Tensor, "_ width"]]:
    """Yield at most `max_windows` windows in batches of up to `rows`.

    The windows do not overlap, are evenly spaced, and are the same in every call.
    """
    check_windows(ids, width)
    count = min(max_windows, ids.size // width)
    starts = np.arange(count, dtype=np.uint64) * np.uint64(ids.size - width) // np.uint64(max(count - 1, 1))
    return (_windows(ids, starts[first : first + rows], width) for first in range(0, count, rows))


def _windows(ids: Array, starts: npt.NDArray[np.uint64], width: int) -> Tensor:
    windows_NT = np.lib.stride_tricks.sliding_window_view(np.asarray(ids), width)  # slicing a memmap is slow
    return torch.from_numpy(windows_NT[starts.astype(np.int64)].astype(np.int64))


def check_windows(ids: Array, width: int) -> None:
    """Raise InputError if no window of this width can be drawn."""
    if ids.size < width:
        smaller = ", or use a smaller --block-size" if ids.size > MIN_BLOCK_SIZE else ""
        raise InputError(
            f"the text has {pluralize(ids.size, 'training token')}, fewer than the {width:,} of one window; add "
            f"more text{smaller}"
        )


# ---- writing


def _segments(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Cut chunks into segments. If the first chunk of a file is empty, the next chunk starts the file."""
    index, starts_file = 0, False
    for chunk in chunks:
        starts_file |= chunk.starts_file
        start = 0
        while start < len(chunk.text):
            end = cut(chunk.text, start, min(MAX_SEGMENT, FIRST_SEGMENT + SEGMENT_GROWTH * index))
            yield Chunk(chunk.text[start:end], starts_file)
            start, index, starts_file = end, index + 1, False


def _split_middle(segments: list[Chunk], fraction: float) -> tuple[list[Chunk], int]:
    """Split the part to hold out from the middle segment of a small text; return the segments and the part's index."""
    middle, size = len(segments) // 2, round(fraction * sum(len(segment.text) for segment in segments))
    text, starts_file = segments[middle]
    if not 0 < size < len(text):
        return segments, -1
    parts = (Chunk(text[:size], starts_file), Chunk(text[size:], False))
    return [*segments[:middle], *parts, *segments[middle + 1 :]], middle


def _check_range(ids: Ids, vocab_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise IdRangeError(
            f"the tokenizer returned id {outside[0]}, outside 0..{vocab_size - 1}: its ids have gaps, but the table "
            "has one row per token; use a different tokenizer, or train one (--tokenizer bpe)"
        )


# ---- opening


def _read_metadata(path: Path) -> dict[str, Any]:
    """Read tokens.json and check the entries that cannot be checked against the files of ids."""
    metadata = read_json(path, MAX_METADATA, CheckpointError, METADATA_FILE)
    rows = metadata.get("vocab_size")
    valid = {
        "format": metadata.get("format") == FORMAT,
        "dtype": metadata.get("dtype") in [*DTYPES],
        "vocab_size": type(rows) is int and 0 <= rows <= MAX_VOCAB,
    }
    for name in (name for name, is_valid in valid.items() if not is_valid):
        value = quote(metadata[name]) if name in metadata else "missing"
        raise CheckpointError(f"{format_path(path)}: {name} is {value}, which is not valid in format {FORMAT}")
    return metadata


def _open_ids(path: Path, metadata: dict[str, Any]) -> Array:
    """Memory-map a file of ids after checking its size, checksum, and largest id."""
    dtype, count, rows = DTYPES[metadata["dtype"]], metadata.get(f"{path.stem}_ids"), metadata["vocab_size"]
    digest, largest = hashlib.sha256(), -1
    with file_errors(check_is_file(path), kind=MissingFileError), path.open("rb") as file:
        size = path.stat().st_size
        if type(count) is not int or size != count * dtype.itemsize:
            raise CheckpointError(
                f"{format_path(path)} is {size:,} bytes, but {METADATA_FILE} lists {quote(count)} ids of "
                f"{dtype.itemsize} bytes"
            )
        while data := file.read(COUNTED_IDS * dtype.itemsize):
            digest.update(data)
            largest = max(largest, int(np.frombuffer(data, dtype).max()))
    if digest.hexdigest() != metadata.get(f"{path.stem}_sha256"):
        raise CheckpointError(f"{format_path(path)} is damaged: its checksum does not match")
    if largest >= rows:
        raise CheckpointError(f"{format_path(path)} contains id {largest}, outside 0..{rows - 1}")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.frombuffer(b"", dtype)
