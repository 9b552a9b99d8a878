"""train_bpe: train a byte-level BPE tokenizer with a given vocabulary size on text files.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- trained with `tokenizers`: ids 0..255 are the bytes, then one merge per id, then the special tokens
- text is pre-tokenized as in GPT-2 before merges are counted
- the same files give the same tokenizer.json, regardless of the number of threads
- all arguments, including `save_to`, are checked before training starts
- not included: choosing a good size, other models' split patterns
Tested against a short, slow trainer in tests/tokenizers/test_bpe_training.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from inlayer.checks import check_size
from inlayer.errors import DtypeError, InputError, MissingFileError, TextError, type_name
from inlayer.files import (
    check_is_file,
    check_path,
    check_paths,
    file_errors,
    format_path,
    path_kind,
    utf8_problem,
    write_output,
)
from inlayer.tokenizers.base import check_text
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.untrusted_files import library_errors

READ_SIZE = 1 << 16  # characters read at a time
MAX_LINE = 1024  # characters; a longer line is split before a space if possible
MAX_VOCAB = 2**24  # real vocabularies stay below 2**19, and the trainer allocates memory for the requested size


def train_bpe(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    vocab_size: int,
    save_to: str | os.PathLike[str] | None = None,
    *,
    special_tokens: Sequence[str] = (),
    min_frequency: int = 1,
    exact: bool = True,
) -> HuggingFaceTokenizer:
    """Train a byte-level BPE tokenizer on text files.

    Args:
        files: One or more UTF-8 text files.
        vocab_size: The exact number of ids, special tokens included; at most MAX_VOCAB.
        save_to: Where to save the tokenizer.json: a path that ends in .json, or a folder, which is created if needed.
            A new name with a different extension is an error.
        special_tokens: Tokens that get the last ids.
        min_frequency: How often a pair must occur to be merged.
        exact: Raise an error if the text is too small for `vocab_size`. Otherwise the vocabulary is smaller.

    Returns:
        The trained tokenizer.

    Raises:
        InputError: If the text is too small for an exact size, or `save_to` cannot be written.
        MissingFileError: If a file does not exist or cannot be read.
        TextError: If a file is not valid UTF-8.

    Example:
        >>> train_bpe("book.txt", 1024, "tokenizer")
        HuggingFaceTokenizer('tokenizer/tokenizer.json', 1024 tokens)
    """
    target = None if save_to is None else find_target(check_path(save_to, "save_to"))
    paths = check_files(files, "train_bpe reads text files")
    specials = check_special_tokens(special_tokens)
    check_vocab_size(vocab_size, len(specials))
    check_size(min_frequency, "min_frequency")
    max_merges = sum(path.stat().st_size for path in paths)  # every merge joins at least two bytes
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        # special tokens are added after training, so ids 0..255 are bytes
        vocab_size=min(vocab_size - len(specials), 256 + max_merges),
        min_frequency=min(min_frequency, max_merges + 1),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    with library_errors("training failed"):
        engine.train_from_iterator(read_lines(paths), trainer)
    learned = engine.get_vocab_size()
    if exact and learned != vocab_size - len(specials):
        raise InputError(
            f"the text yields only {learned - 256} merge{'s' * (learned != 257)}, which makes "
            f"{learned + len(specials)} ids; for vocab_size {vocab_size} use more text"
            + (" or a lower min_frequency" if min_frequency > 1 else "")
        )
    engine.add_special_tokens(specials)
    if engine.get_vocab_size() != learned + len(specials):
        raise InputError(f"one of the special tokens {specials} is also a learned token; choose another name")
    data = engine.to_str(pretty=True).encode()
    if target is not None:
        write_with_folders(target, data)
    return HuggingFaceTokenizer(data, source="trained tokenizer" if target is None else format_path(target))


def check_vocab_size(vocab_size: int, n_special: int) -> None:
    """Check the size of a byte-level BPE vocabulary with this number of special tokens."""
    check_size(vocab_size, "vocab_size")
    if not 256 + n_special <= vocab_size <= MAX_VOCAB:
        raise InputError(
            f"vocab_size is {vocab_size:,}; with 256 bytes and {n_special:,} special tokens it must be in "
            f"{256 + n_special:,}..{MAX_VOCAB:,}"
        )


def check_special_tokens(special_tokens: object) -> list[str]:
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        raise DtypeError(f'special_tokens is {type_name(special_tokens)}, not a list of str such as ["<pad>", "<s>"]')
    specials = [check_text(token, f"special token {index}") for index, token in enumerate(special_tokens)]
    if len(set(specials)) != len(specials) or "" in specials:
        raise InputError(f"special_tokens is {specials}; the tokens must be distinct and not empty")
    return specials


def check_files(files: object, usage: str) -> list[Path]:
    """Return the paths of existing text files; `usage` describes their purpose in error messages."""
    paths = check_paths(files)
    if not paths:
        raise InputError("files is empty; pass at least one text file")
    return [check_is_file(path, usage) for path in paths]


def read_lines(paths: list[Path]) -> Iterator[str]:
    """Read the lines of files, with line ends, without byte order marks.

    Long lines are split, so memory and time stay bounded: text without spaces is a single word, and every merge
    scans whole words.
    """
    for path in paths:
        with open_text(path) as file:
            rest = ""
            while part := file.readline(MAX_LINE):
                rest += part
                space = rest.rfind(" ", 1)
                end = len(rest) if len(rest) < MAX_LINE or rest.endswith("\n") or space < 0 else space
                yield rest[:end]
                rest = rest[end:]
            if rest:
                yield rest


def read_blocks(path: Path) -> Iterator[str]:
    """Read a UTF-8 file in blocks, without its byte order mark."""
    with open_text(path) as file:
        while block := file.read(READ_SIZE):
            yield block


@contextmanager
def open_text(path: Path) -> Iterator[TextIOWrapper]:
    """Open a UTF-8 file, without its byte order mark; TextError names the first invalid byte that is read."""
    with (
        file_errors(path, kind=MissingFileError),
        path.open("rb") as data,
        TextIOWrapper(data, encoding="utf-8", newline="") as file,
    ):
        try:
            if file.read(1) != "\ufeff":
                file.seek(0)
            yield file
        except UnicodeDecodeError as error:
            start = data.tell() - len(error.object)  # file offset of the bytes being decoded
            raise TextError(
                f"{format_path(path)} is {utf8_problem(error, start)}; convert it to UTF-8, or decompress it if it is "
                "compressed"
            ) from None


def find_target(save_to: Path) -> Path:
    """Return the file to write, or raise an error if it cannot be written."""
    kind, is_file = path_kind(save_to), save_to.name.endswith(".json")
    if not is_file and kind != "folder" and (kind != "missing" or save_to.suffix):
        raise InputError(
            f"save_to is {format_path(save_to)}; pass a path that ends in .json or a folder (create it first if "
            "its name has a dot)"
        )
    target = save_to if is_file else save_to / "tokenizer.json"
    existing = next((path for path in (target, *target.parents) if path_kind(path) != "missing"), target.parent)
    if path_kind(existing) != ("file" if existing == target else "folder"):
        expected = "regular file" if existing == target else "folder"
        raise InputError(f"{format_path(target)} cannot be written: {format_path(existing)} is not a {expected}")
    return target


def write_with_folders(target: Path, data: bytes) -> None:
    """Write a file atomically; if that fails, remove the folders created for it."""
    created = [folder for folder in target.parents if not folder.exists()]
    try:
        with file_errors(target, "cannot be written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_output(target, data)
    except BaseException:
        for folder in created:
            with suppress(OSError):  # not created yet
                folder.rmdir()
        raise
