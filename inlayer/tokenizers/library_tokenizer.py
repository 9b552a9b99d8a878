"""LibraryTokenizer: the base class of tokenizers backed by a library.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- the exact library defines the ids. gigatoken replaces it where verified to give equal ids (gigatoken.py)
- the fast path opens on the first batch or long text because parsing the file again is too slow for one short text
- library objects may not support pickle, so the constructor's arguments are pickled instead
Tested in tests/tokenizers/test_contract.py.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from threading import RLock
from typing import Any, TypeVar

from inlayer.ragged import Ragged, with_special_tokens
from inlayer.tokenizers.base import Merge, Token, Tokenizer, check_text
from inlayer.tokenizers.gigatoken import EncodeBatch, encode_with_both, texts_with_unstable_characters
from inlayer.tokenizers.merges import MergeTable
from inlayer.tokenizers.untrusted_files import library_errors

Self = TypeVar("Self", bound="LibraryTokenizer")
BLOCK_TEXTS = 1024  # texts passed to a library at a time, which limits the memory for its per-text objects
LONG_TEXT = 4096  # characters; from this length, opening the fast path is worthwhile


class LibraryTokenizer(Tokenizer):
    """Base class of tokenizers that wrap a library. Subclasses set the attributes and implement the hooks below."""

    _source: str  # the file, as error messages show it
    _special_tokens_around: tuple[Sequence[int], Sequence[int]] = ((), ())  # ids added before and after every text
    _added: Mapping[int, Any] = {}  # tokens that are found in a text, not produced by merges

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _lock: RLock

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        tokenizer = super().__new__(cls)
        tokenizer._arguments, tokenizer._lock = (args, kwargs), RLock()
        return tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        args, kwargs = self._arguments
        return partial(type(self), **kwargs), args

    # -- hooks --

    @abstractmethod
    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        """Encode a batch with the exact library, without a Python list per text."""

    def _encode_one(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Encode one short text with the exact library."""
        ids: list[int] = self._encode_exactly([text], add_special_tokens, parse_special).flat.tolist()
        return ids

    @cached_property
    def _fast_path(self) -> EncodeBatch | None:  # read under the lock, so it opens once
        return None

    @cached_property
    def _merge_table(self) -> MergeTable | None:  # read under the lock as well
        return None

    # -- shared behavior --

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        tokens = sorted((token for token in self.special_tokens if token), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, tokens)) or r"(?!)")  # (?!) never matches

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        check_text(text)
        if len(text) >= LONG_TEXT:
            ids: list[int] = self._encode_texts([text], add_special_tokens, parse_special).flat.tolist()
            return ids
        with library_errors(f"{self._source} cannot encode this text"):
            return self._encode_one(text, add_special_tokens, parse_special)

    def _encode_texts(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        excluded = {*texts_with_unstable_characters(texts)}  # raises for lone surrogates
        with self._lock:
            fast = self._fast_path
        with library_errors(f"{self._source} cannot encode these texts"):
            if fast is None:
                return self._encode_exactly(texts, add_special_tokens, parse_special)
            if not parse_special:  # gigatoken always parses special tokens, so only texts without any give the same ids
                excluded |= {index for index, text in enumerate(texts) if self._special_pattern.search(text)}
            exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=parse_special)
            batch = encode_with_both(texts, fast, exact, sorted(excluded))
        return with_special_tokens(batch, *self._special_tokens_around) if add_special_tokens else batch

    def merges(self, ids: Sequence[int]) -> list[Merge] | None:
        valid = self._valid_ids(ids)
        with self._lock:
            table = self._merge_table
        if table is None or not self._added.keys().isdisjoint(valid):
            return None
        merges, reached = table.replay(b"".join(map(self._bytes_of, valid)))
        return merges if reached == valid else None

    def _with_added(self, tokens: list[Token], end: int) -> list[Token]:
        """Put the ids added around a text before and after its tokens, with empty spans."""
        before, after = self._special_tokens_around
        return [
            *(Token(token_id, b"", (0, 0), True) for token_id in before),
            *tokens,
            *(Token(token_id, b"", (end, end), True) for token_id in after),
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self.get_vocab_size()} tokens)"
