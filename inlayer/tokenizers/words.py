"""WordTokenizer: one id per word, the tokenizer of a first lesson.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- a word is what stands between white space; ids count up in order of first appearance
- a word not seen when it was built is an error that names it, or the `unk` token where one was asked for
- decode joins with one space: the white space of the text is not kept, which is why real models cut bytes instead
- not here: punctuation rules, sub-words
Checked in tests/tokenizers/test_bytes.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from inlayer.errors import DtypeError, InputError, TextError
from inlayer.ragged import Ragged
from inlayer.tokenizers.base import Token, Tokenizer, check_ids, check_text, check_texts, not_byte_level

__all__ = ["WordTokenizer"]


class WordTokenizer(Tokenizer):
    """A word-level toy.

    >>> words = WordTokenizer.from_text("I love dogs")
    >>> words.encode("dogs love I")
    [2, 1, 0]
    """

    def __init__(self, words: Iterable[str], *, unk: str | None = None) -> None:
        """`words` in the order of their ids; with `unk`, that token takes the id after them (or its own, if listed)."""
        if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
            raise DtypeError(
                f"words is a {type(words).__name__}, not a list of words; WordTokenizer.from_text(text) takes a text"
            )
        self.words = tuple(words)
        if unk is not None and unk not in self.words:
            self.words = (*self.words, unk)
        self._ids: dict[str, int] = {}
        for token_id, word in enumerate(self.words):
            if not check_text(word, f"word {token_id}") or word.split() != [word]:
                raise InputError(f"word {token_id} is {word!r}; a word is not empty and holds no white space")
            if self._ids.setdefault(word, token_id) != token_id:
                raise InputError(f"word {word!r} is listed twice, as {self._ids[word]} and {token_id}")
        self.unk = unk
        self.special_tokens: Mapping[str, int] = MappingProxyType({} if unk is None else {unk: self._ids[unk]})

    @classmethod
    def from_text(cls, text: str, *, unk: str | None = None) -> WordTokenizer:
        """The words of a text, each once, in order of first appearance."""
        return cls(dict.fromkeys(check_text(text).split()), unk=unk)

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """One id per word. An unknown word is a TextError naming it, unless there is an `unk` token."""
        return [
            piece.id for piece in self.tokens(text, add_special_tokens=add_special_tokens, parse_special=parse_special)
        ]

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        del add_special_tokens, parse_special  # nothing is added; `unk` is a word like others
        items = [check_text(text, f"text {index}") for index, text in enumerate(check_texts(texts))]
        return Ragged.from_arrays(
            [
                np.fromiter((piece.id for piece in self._find_pieces(text, f"text {index}")), np.int64)
                for index, text in enumerate(items)
            ]
        )

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        hidden = self.special_ids if skip_special_tokens else frozenset[int]()
        return " ".join(
            self.words[token_id] for token_id in check_ids(ids, len(self.words)).tolist() if token_id not in hidden
        )

    def decode_bytes(self, ids: Any) -> bytes:
        del ids  # no answer for any
        raise not_byte_level("WordTokenizer")

    def token_bytes(self, token_id: int) -> bytes:
        return self.words[int(check_ids([token_id], len(self.words))[0])].encode()

    def get_vocab_size(self) -> int:
        return len(self.words)

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """Spans cover the words; the white space between them belongs to no piece."""
        del add_special_tokens, parse_special  # nothing is added; `unk` is a word like others
        return list(self._find_pieces(check_text(text)))

    def _find_pieces(self, text: str, name: str = "the text") -> Iterator[Token]:
        for index, (word, span) in enumerate(find_words(text)):
            known = self._ids.get(word, None if self.unk is None else self._ids[self.unk])
            if known is None:
                raise TextError(
                    f"word {index} of {name}, {word!r}, is not among the {len(self.words)} words this tokenizer was "
                    "built from; build it from a longer text, or with unk='<unk>'"
                )
            yield Token(known, word.encode(), span, known in self.special_ids)

    def splits(self, text: str, *, parse_special: bool = True) -> list[tuple[int, int]]:
        """The words, known ones or not."""
        del parse_special  # `unk` is a word like others
        return [span for _, span in find_words(check_text(text))]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(WordTokenizer, unk=self.unk), (self.words,)

    def __repr__(self) -> str:
        return f"WordTokenizer({len(self.words)} words, unk={self.unk!r})"


def find_words(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each word with its span in UTF-8 bytes."""
    seen, start = 0, 0  # characters read so far, and the bytes they take
    for match in re.finditer(r"\S+", text):
        start += len(text[seen : match.start()].encode())
        end = start + len(match.group().encode())
        yield match.group(), (start, end)
        seen, start = match.end(), end
