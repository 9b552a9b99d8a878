"""train_bpe: learn a byte-level BPE of a given size from text files.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- through the trainer of `tokenizers`; 256 bytes first, special tokens after them, then one merge per further id
- text is cut as GPT-2 cuts it before merges are counted
- the size asked for is the size given; a text too small for that many merges is an error that says how many it had
- the same files give the same tokenizer.json, whatever the number of threads
- what is wrong with the arguments, `save_to` too, is said before the work, which may be long
- not here: choosing a good size, other models' split patterns
Checked against a slow trainer of a few lines in tests/tokenizers/test_train.py.
"""

from __future__ import annotations

import codecs
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from inlayer.errors import DtypeError, InputError, MissingFileError, TextError
from inlayer.paths import check_path, shown, what_is_at, wrong_kind
from inlayer.saving import write_whole
from inlayer.tokenizers.base import check_text
from inlayer.tokenizers.guard import library_errors
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

__all__ = ["train_bpe"]

BLOCK = 1 << 16  # bytes read at once
BYTE_ORDER_MARK = "\ufeff"
LONGEST_LINE = 1024  # characters; of a longer one the parts end before a space where they can
MAX_VOCAB = 2**24  # real vocabularies are below 2**19; the trainer sets memory aside for the size it is asked for


def train_bpe(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    vocab_size: int,
    save_to: str | os.PathLike[str] | None = None,
    *,
    special_tokens: Sequence[str] = (),
    min_frequency: int = 1,
) -> HuggingFaceTokenizer:
    """A tokenizer of exactly `vocab_size` ids, special tokens included; saved as tokenizer.json where `save_to` says.

    `save_to` is a path that ends in .json, or a folder, made where it is not there: tokenizer.json goes into it. A
    name with another ending (x.txt) is an error unless such a folder is there. A pair of tokens is merged while it
    occurs at least `min_frequency` times. `vocab_size` is at most MAX_VOCAB.
    """
    target = None if save_to is None else find_target(check_path(save_to, "save_to"))
    paths = check_files(files, "train_bpe reads text files")
    specials = check_specials(special_tokens)
    check_vocab_size(vocab_size, len(specials))
    check_count(min_frequency, "min_frequency")
    if min_frequency < 1:
        raise InputError(f"min_frequency is {min_frequency}; a pair occurs at least once")
    most = sum(path.stat().st_size for path in paths)  # a merge joins two bytes at least, so there are fewer of them
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # when needed

    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        # special tokens are added after training: ids 0..255 stay bytes
        vocab_size=min(vocab_size - len(specials), 256 + most),
        min_frequency=min(min_frequency, most + 1),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    with library_errors("training stopped"):
        engine.train_from_iterator(read_lines(paths), trainer)
    found = engine.get_vocab_size()
    if found != vocab_size - len(specials):
        raise InputError(
            f"the text gives {found - 256} merges, so {found + len(specials)} ids; vocab_size {vocab_size} needs more "
            "text, or must be smaller" + (f", or min_frequency below {min_frequency}" if min_frequency > 1 else "")
        )
    engine.add_special_tokens(specials)
    if engine.get_vocab_size() != vocab_size:
        raise InputError(
            f"one of the special tokens {specials} is also a learned token; choose names that are not words"
        )
    data = engine.to_str(pretty=True).encode()
    if target is None:
        return HuggingFaceTokenizer(data, where="trained tokenizer")
    write_with_folders(target, data)
    return HuggingFaceTokenizer(data, where=shown(target))


def check_vocab_size(vocab_size: object, specials: int) -> None:
    """May a byte-level BPE have so many ids, special tokens included?"""
    check_count(vocab_size, "vocab_size")
    assert isinstance(vocab_size, int)
    if vocab_size < 256 + specials:
        raise InputError(
            f"vocab_size is {vocab_size}; 256 bytes and {specials} special tokens need at least {256 + specials}"
        )
    if vocab_size > MAX_VOCAB:
        raise InputError(f"vocab_size is {vocab_size}; {MAX_VOCAB} is the most")


def check_count(value: object, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DtypeError(f"{name} is a {type(value).__name__}; it is a whole number")


def check_specials(special_tokens: object) -> list[str]:
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        raise DtypeError(
            f'special_tokens is a {type(special_tokens).__name__}, not a list of names, as in ["<pad>", "<s>"]'
        )
    specials = [check_text(token, f"special token {index}") for index, token in enumerate(special_tokens)]
    if len(set(specials)) != len(specials) or "" in specials:
        raise InputError(f"special_tokens are {specials}; each needs a name of its own")
    return specials


def check_files(files: object, rule: str) -> list[Path]:
    """The paths of text files that are there; `rule` says in an error who wants them."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if isinstance(files, bytes) or not isinstance(files, Iterable):
        raise DtypeError(f"files is a {type(files).__name__}, not a path or a list of paths")
    paths = [check_path(file, f"file {index}") for index, file in enumerate(files)]
    if not paths:
        raise InputError("files is empty; there is no text to learn from")
    for path in paths:
        kind = what_is_at(path)
        if kind != "file":
            raise MissingFileError(f"{wrong_kind(path, kind)}; {rule}")
    return paths


def read_lines(paths: list[Path]) -> Iterator[str]:
    """Lines with their ends, a long one in parts, so that any file passes through little memory, and in little time:
    a text without spaces is one word, and a merge looks through all of a word.
    """
    try:
        for path in paths:
            with path.open(encoding="utf-8", newline="") as file:
                rest = ""
                while part := file.readline(LONGEST_LINE):
                    rest += part
                    space = rest.rfind(" ", 1)
                    end = len(rest) if len(rest) < LONGEST_LINE or rest.endswith("\n") or space < 0 else space
                    yield rest[:end]
                    rest = rest[end:]
                if rest:
                    yield rest
    except UnicodeDecodeError:
        deque(decode_file(path), maxlen=0)  # says which byte, and where
        raise
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error


def decode_file(path: Path) -> Iterator[str]:
    """The text of a UTF-8 file, part by part, without a byte order mark; TextError where a byte is out of place."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    start = 0  # of the bytes not decoded yet
    try:
        with path.open("rb") as file:
            while True:
                block = file.read(BLOCK)
                text = decoder.decode(block, final=not block)
                yield text.removeprefix(BYTE_ORDER_MARK) if start == 0 else text
                if not block:
                    return
                start = file.tell() - len(decoder.getstate()[0])
    except UnicodeDecodeError as error:
        raise TextError(
            f"{shown(path)} is not UTF-8 text: byte 0x{error.object[error.start]:02X} at {start + error.start:,} is "
            "out of place; save it as UTF-8, or unpack it first if it is compressed"
        ) from None
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error


def find_target(save_to: Path) -> Path:
    """The file to write; an error where `save_to` cannot be meant or cannot be written to."""
    kind = what_is_at(save_to)
    if save_to.name.endswith(".json"):
        target = save_to
    elif kind in {"folder", "nothing"}:
        if kind == "nothing" and save_to.suffix:
            raise InputError(
                f"save_to is {shown(save_to)}; give a path that ends in .json, or a folder (one whose name has a dot "
                "must be there already)"
            )
        target = save_to / "tokenizer.json"
        kind = what_is_at(target)
    else:
        raise InputError(f"save_to is {shown(save_to)}, which is no folder; give a folder or a path that ends in .json")
    if kind not in {"file", "nothing"}:
        raise InputError(f"{shown(target)} cannot be written: it is {'a folder' if kind == 'folder' else kind}")
    there = next(folder for folder in target.parents if what_is_at(folder) != "nothing" or folder == folder.parent)
    if what_is_at(there) != "folder":
        raise InputError(f"{shown(target)} cannot be written: {shown(there)} is no folder")
    return target


def write_with_folders(target: Path, data: bytes) -> None:
    """All of the file or none of it; folders made for it go with it."""
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data)
    except BaseException as error:
        for folder in made:
            with suppress(OSError):  # not made yet
                folder.rmdir()
        if isinstance(error, OSError):
            raise InputError(f"{shown(target)} cannot be written: {error.strerror}") from error
        raise
