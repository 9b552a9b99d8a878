"""ByteTokenizer and WordTokenizer: the two simplest tokenizers, for a first lesson.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- bytes: 256 ids and no special tokens. Every string can be encoded and is restored exactly
- words: separated by whitespace, numbered in the order of first appearance. An unknown word is an error that names it,
  or becomes the `unk` token if there is one. Whitespace is lost, which is why real models tokenize bytes
Tested against str.encode in tests/tokenizers/test_byte_and_word.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from inlayer.errors import DtypeError, InputError, TextError, type_name
from inlayer.ragged import Ragged, ragged_from_counts
from inlayer.tokenizers.base import Analysis, PreTokens, Token, Tokenizer, check_text
from inlayer.tokenizers.offsets import byte_offsets


class ByteTokenizer(Tokenizer):
    """Tokenizer with one id per UTF-8 byte and no special tokens.

    Example:
        >>> ByteTokenizer().encode("Hi")
        [72, 105]
    """

    special_tokens: Mapping[str, int] = {}
    _id_limit = 256
    _byte_level = True

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        return list(check_text(text).encode())

    def _encode_texts(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        encoded = [check_text(text, f"text {index}").encode() for index, text in enumerate(texts)]
        return ragged_from_counts(np.frombuffer(b"".join(encoded), np.uint8), np.array([*map(len, encoded)], np.int64))

    def _bytes_of(self, token_id: int) -> bytes:
        return bytes([token_id])

    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        data = check_text(text).encode()
        return [Token(value, bytes([value]), (start, start + 1), False) for start, value in enumerate(data)], None

    def __repr__(self) -> str:
        return "ByteTokenizer()"


class WordTokenizer(Tokenizer):
    """Tokenizer with one id per whitespace-separated word.

    Args:
        words: The vocabulary, in the order of the ids.
        unk: Token for unknown words. It gets the next free id unless it is one of the words.

    Raises:
        InputError: If a word is repeated, empty, or contains whitespace.

    Example:
        >>> words = WordTokenizer.from_text("I love dogs")
        >>> words.encode("dogs love I")
        [2, 1, 0]
    """

    def __init__(self, words: Iterable[str], *, unk: str | None = None) -> None:
        if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
            raise DtypeError(
                f"words is {type_name(words)}, not a list of words; for a text, use WordTokenizer.from_text"
            )
        self.words = tuple(words)
        if unk is not None and unk not in self.words:
            self.words = (*self.words, unk)
        self._ids: dict[str, int] = {}
        for token_id, word in enumerate(self.words):
            if not check_text(word, f"word {token_id}") or word.split() != [word]:
                raise InputError(f"word {token_id} is {word!r}; a word must not be empty or contain whitespace")
            if self._ids.setdefault(word, token_id) != token_id:
                raise InputError(f"word {word!r} is listed twice, with ids {self._ids[word]} and {token_id}")
        self.unk, self._id_limit = unk, len(self.words)
        self.special_tokens: Mapping[str, int] = {} if unk is None else {unk: self._ids[unk]}

    @classmethod
    def from_text(cls, text: str, *, unk: str | None = None) -> WordTokenizer:
        """Build a tokenizer from the distinct words of a text.

        Args:
            text: The words, separated by whitespace; they are numbered in order of first appearance.
            unk: Token for unknown words.

        Returns:
            The tokenizer.

        Raises:
            TextError: If the text is not valid Unicode.

        Example:
            >>> WordTokenizer.from_text("the cat and the dog").words
            ('the', 'cat', 'and', 'dog')
        """
        return cls(dict.fromkeys(check_text(text).split()), unk=unk)

    def _encode_texts(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        named = ((text, f"text {index}") for index, text in enumerate(texts))
        return Ragged.from_lists([token.id for token in self._find_tokens(*text)] for text in named)

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        return " ".join(self.words[token_id] for token_id in self._valid_ids(ids, skip_special_tokens))

    def _bytes_of(self, token_id: int) -> bytes:
        return self.words[token_id].encode()

    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        tokens = list(self._find_tokens(text))
        return tokens, [token.span for token in tokens]

    def pre_tokens(self, text: str, *, parse_special: bool = True) -> PreTokens:
        return [span for _, span in find_words(text)]  # unlike tokens, pre-tokens include unknown words

    def _find_tokens(self, text: str, name: str = "the text") -> Iterator[Token]:
        for index, (word, span) in enumerate(find_words(text, name)):
            token_id = self._ids.get(word, None if self.unk is None else self._ids[self.unk])
            if token_id is None:
                raise TextError(
                    f"word {index} of {name}, {word!r}, is not one of the {len(self.words)} words of this tokenizer; "
                    "build it from a longer text, or with unk='<unk>'"
                )
            yield Token(token_id, word.encode(), span, token_id in self.special_ids)

    def __repr__(self) -> str:
        return f"WordTokenizer({len(self.words)} words, unk={self.unk!r})"


def find_words(text: str, name: str = "the text") -> Iterator[tuple[str, tuple[int, int]]]:
    """Find the words of a text and their spans in UTF-8 bytes."""
    spans = [match.span() for match in re.finditer(r"\S+", check_text(text, name))]
    return zip((text[start:end] for start, end in spans), byte_offsets(text, spans), strict=True)
