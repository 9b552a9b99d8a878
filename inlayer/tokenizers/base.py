"""What every tokenizer does, and the checks all of them share.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- a text is a str that has UTF-8 bytes: a lone surrogate has none and is a TextError everywhere, never a silent U+FFFD
- an id outside the vocabulary is an IdRangeError everywhere, never skipped
- `Tokenizer` is a small base class: a new kind implements seven methods and inherits the rest
- how a text became its ids can be asked for: `pieces`, and before them `splits` and `merges`. These answer None rather
  than something that did not happen
- not here: any particular tokenizer
Checked for every kind in tests/tokenizers/test_contract.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from inlayer.errors import DtypeError, IdRangeError, InputError, TextError
from inlayer.ragged import IdArray, Ragged, as_int64

__all__ = ["Merged", "Token", "Tokenizer"]

Made = TypeVar("Made", bound="LibraryTokenizer")
BLOCK = 1024  # texts handed to a library at once: bounds the memory of its per-text objects


class Token(NamedTuple):
    """One id of a text, with what it stands for there.

    `span` counts UTF-8 bytes of the text; `bytes` are the text's bytes under it. Spans are in order and never
    overlap. An id the tokenizer added by itself (begin-of-text) has the empty span at its place and no bytes.
    """

    id: int
    bytes: bytes
    span: tuple[int, int]
    special: bool


class Merged(NamedTuple):
    """Two neighbors of a split that became one token, `id`.

    The lowest `rank` goes first. In a tokenizer.json it is the place in the list of merges, in a rank file the rank of
    the token that comes out, which is its id.
    """

    left: bytes
    right: bytes
    rank: int
    id: int


def check_text(text: object, name: str = "text") -> str:
    """A str that has UTF-8 bytes, or an error naming what and where."""
    if not isinstance(text, str):
        raise DtypeError(f"{name} is a {type(text).__name__}, not a str" + decode_hint(text))
    if not text.isascii():  # isascii costs nothing: Python keeps the answer with the string
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise surrogate_error(name, error.start, ord(text[error.start])) from None
    return text


def check_texts(texts: object) -> list[str]:
    """The texts as a list of str. One str is an error: it would be read as a batch of characters."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise DtypeError(
            f"texts is a {type(texts).__name__}, not a list of str; one text goes to encode, or into a list"
        )
    items = texts if isinstance(texts, list) else list(texts)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            raise DtypeError(f"text {index} is a {type(text).__name__}, not a str" + decode_hint(text))
    return items


def decode_hint(value: object) -> str:
    return "; decode it first: data.decode()" if isinstance(value, (bytes, bytearray)) else ""


def surrogate_error(name: str, position: int, code_point: int) -> TextError:
    return TextError(
        f"{name} holds the lone surrogate U+{code_point:04X} at position {position}, which has no UTF-8 bytes; "
        "was it read with errors='surrogateescape', cut inside a UTF-16 pair, or given on a command line in bytes "
        "that are no UTF-8?"
    )


def check_ids(ids: object, size: int, name: str = "ids") -> IdArray:
    """Ids as an array, all within 0..size - 1; the error names the first that is not, and its place."""
    if isinstance(ids, (str, bytes)):
        raise DtypeError(f"{name} is a {type(ids).__name__}; decode takes ids, encode takes text")
    array = as_int64(ids, name)
    bad = np.flatnonzero((array < 0) | (array >= size))
    if bad.size:
        place = int(bad[0])
        raise no_such_id(int(array[place]), f"position {place}", size)
    return array


def check_known(ids: list[int], is_known: Callable[[int], bool], where: str) -> list[int]:
    """Ids within the range that also name a token: some vocabularies are numbered with gaps."""
    for place, value in enumerate(ids):
        if not is_known(value):
            raise IdRangeError(
                f"id {value} at position {place} names no token of {where}: its numbering has a gap there"
            )
    return ids


def special_finder(special_tokens: Mapping[str, int]) -> Callable[[str], bool]:
    """Does a text hold one of them? One pattern for all."""
    tokens = sorted((token for token in special_tokens if token), key=len, reverse=True)
    if not tokens:
        return lambda _: False
    search = re.compile("|".join(map(re.escape, tokens))).search
    return lambda text: search(text) is not None


def no_such_id(value: int, where: str, size: int) -> IdRangeError:
    return IdRangeError(
        f"id {value} at {where} is outside 0..{size - 1}; was the text encoded with another model's tokenizer?"
    )


class Tokenizer(ABC):
    """Text to ids and back. `special_tokens` maps the text of each special token to its id."""

    special_tokens: Mapping[str, int]

    @abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """The ids of one text.

        `add_special_tokens`: also the ids the model expects around a text (begin-of-text), where its files say so.
        `parse_special`: special tokens written out in the text become their one id; False reads them as plain text,
        which is what text from strangers needs.
        """

    @abstractmethod
    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        """The ids of many texts in one flat array; each text equal to what `encode` gives."""

    @abstractmethod
    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """The text of the ids. Bytes that are no valid UTF-8 become U+FFFD; `decode_bytes` keeps them."""

    @abstractmethod
    def decode_bytes(self, ids: Any) -> bytes:
        """The exact bytes of the ids, valid UTF-8 or not; InputError where tokens have no exact bytes."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """What one id stands for, as bytes."""

    @abstractmethod
    def get_vocab_size(self) -> int:
        """How many tokens there are, added ones included.

        Where a file numbers its tokens with holes (special tokens far above the rest), ids reach beyond this count.
        """

    @abstractmethod
    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """The ids of one text, each with the bytes and the span it covers."""

    def splits(self, text: str, *, parse_special: bool = True) -> list[tuple[int, int]] | None:
        """Where the text is cut before it becomes tokens: spans in UTF-8 bytes, in order, none empty, none overlapping.

        No token reaches across their edges, and each piece with bytes lies within one of them. A special or other added
        token found in the text is a split of its own. What no token stands for (BERT's white space) lies outside, or
        inside where it was dropped from the middle of a word. None where this kind of tokenizer does not cut
        beforehand, or where its cuts are not known for certain (ranks.py).
        """
        del parse_special  # no cuts either way
        check_text(text)
        return None

    def merges(self, ids: Sequence[int]) -> list[Merged] | None:
        """The merges, in the order they happen, that make exactly these ids of the single bytes of one split.

        Empty where nothing is merged: a single byte, or a split taken whole since it is a token (merges.py). None where
        the tokenizer is no byte-level BPE, where merges do not make these ids (those of a special or added token, or of
        several splits), and for a split longer than merges.LONGEST.
        """
        self.decode(ids)  # for ids that name no token
        return None

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self.special_tokens.values())

    @property
    def pad_id(self) -> int | None:
        """The id of the padding token: the one the tokenizer's files name, else the only special token whose name says
        so (`<pad>`, `[PAD]`, `<|pad|>`; not `<|image_pad|>`, which stands for an image). None where there is neither.
        """
        found = [
            token_id for token, token_id in self.special_tokens.items() if re.sub(r"[\W_]", "", token).lower() == "pad"
        ]
        return found[0] if len(found) == 1 else None


class LibraryTokenizer(Tokenizer):
    """A tokenizer around a library's object, which may not pickle: what it was made of is kept, and pickled instead."""

    _recipe: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls: type[Made], *made_of: Any, **settings: Any) -> Made:
        tokenizer = super().__new__(cls)
        tokenizer._recipe = (made_of, settings)
        return tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        made_of, settings = self._recipe
        return partial(type(self), **settings), made_of


def pieces_from_bytes(
    source: bytes,
    ids: list[int],
    covered: list[bytes],
    special_ids: frozenset[int],
    *,
    prefix: int = 0,
    suffix: int = 0,
) -> list[Token] | None:
    """Pieces whose bytes follow one another exactly; None where they do not add up to the source.

    `prefix` and `suffix` count the ids at either end that the tokenizer added: they cover nothing.
    """
    pieces, start, last = [], 0, len(ids) - suffix
    for place, (token, data) in enumerate(zip(ids, covered, strict=True)):
        added = place < prefix or place >= last
        end = start if added else start + len(data)
        pieces.append(Token(token, b"" if added else data, (start, end), added or token in special_ids))
        start = end
    return pieces if b"".join(piece.bytes for piece in pieces) == source else None


def not_byte_level(kind: str) -> InputError:
    return InputError(f"{kind} has no exact bytes for its tokens (it changes the text before cutting it); use decode")
