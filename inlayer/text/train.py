"""train_bpe: learn a byte-level BPE of a given size from text files.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- through the trainer of `tokenizers`; 256 bytes first, special tokens after them, then one merge per further id
- text is cut as GPT-2 cuts it before merges are counted
- the size asked for is the size given; a text too small for that many merges is an error that says how many it had
- the same files give the same tokenizer.json, whatever the number of threads
- not here: choosing a good size, other models' split patterns
Checked against a slow trainer of a few lines in tests/text/test_train.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from inlayer.errors import DtypeError, InputError, MissingFileError, TextError
from inlayer.text.base import check_text
from inlayer.text.guard import library_errors
from inlayer.text.huggingface import HuggingFaceTokenizer

__all__ = ["train_bpe"]


def train_bpe(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    vocab_size: int,
    save_to: str | os.PathLike[str] | None = None,
    *,
    special_tokens: Sequence[str] = (),
    min_frequency: int = 1,
) -> HuggingFaceTokenizer:
    """A tokenizer of exactly `vocab_size` ids, special tokens included; saved as tokenizer.json where `save_to` says.

    `save_to` is a folder (tokenizer.json goes into it) or a path that ends in .json. A pair of tokens is merged while
    it occurs at least `min_frequency` times.
    """
    paths = check_files(files)
    specials = [check_text(token, f"special token {index}") for index, token in enumerate(special_tokens)]
    if len(set(specials)) != len(specials) or "" in specials:
        raise InputError(f"special_tokens are {specials}; each needs a name of its own")
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        raise DtypeError(f"vocab_size is a {type(vocab_size).__name__}; it is a whole number")
    least = 256 + len(specials)
    if vocab_size < least:
        raise InputError(
            f"vocab_size is {vocab_size}; 256 bytes and {len(specials)} special tokens need at least {least}"
        )
    if min_frequency < 1:
        raise InputError(f"min_frequency is {min_frequency}; a pair occurs at least once")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # when needed

    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(specials),  # special tokens are added after training: ids 0..255 stay bytes
        min_frequency=min_frequency,
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
    if save_to is None:
        return HuggingFaceTokenizer(data, where="trained tokenizer")
    target = Path(save_to)
    if target.suffix != ".json":
        target = target / "tokenizer.json"
    write_whole(target, data)
    return HuggingFaceTokenizer(data, where=f"{target.parent.name}/{target.name}")


def check_files(files: object) -> list[Path]:
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if not isinstance(files, Iterable):
        raise DtypeError(f"files is a {type(files).__name__}, not a path or a list of paths")
    paths: list[Path] = []
    for file in files:
        if not isinstance(file, (str, os.PathLike)):
            raise DtypeError(f"files holds a {type(file).__name__}, not a path")
        paths.append(Path(file))
    if not paths:
        raise InputError("files is empty; there is no text to learn from")
    for path in paths:
        if not path.is_file():
            raise MissingFileError(f"{path} is not a file; train_bpe reads text files")
    return paths


def read_lines(paths: list[Path]) -> Iterator[str]:
    """Lines with their ends, so that a file of any size passes through little memory."""
    try:
        for path in paths:
            with path.open(encoding="utf-8", newline="") as file:
                yield from file
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise TextError(f"{path} is not UTF-8 text: byte 0x{byte:02X} is out of place") from None


def write_whole(target: Path, data: bytes) -> None:
    """All of the file or none of it: written beside its place, then moved there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
