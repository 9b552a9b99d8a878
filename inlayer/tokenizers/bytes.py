"""ByteTokenizer: a text's UTF-8 bytes are its ids. The smallest tokenizer that can say everything.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- 256 ids, no special tokens, nothing to learn, nothing unknown: every string comes back as it was
- not here: merging frequent bytes into longer tokens (train.py)
Checked against str.encode in tests/tokenizers/test_bytes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from inlayer.ragged import Ragged
from inlayer.tokenizers.base import Token, Tokenizer, check_ids, check_text, check_texts, surrogate_error

__all__ = ["ByteTokenizer"]


class ByteTokenizer(Tokenizer):
    """One id per byte.

    >>> ByteTokenizer().encode("Hi")
    [72, 105]
    """

    special_tokens: Mapping[str, int] = MappingProxyType({})

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        del add_special_tokens, parse_special  # there are no special tokens
        return list(check_text(text).encode())

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        add_special_tokens: bool = True,
        parse_special: bool = True,
    ) -> Ragged:
        del add_special_tokens, parse_special  # there are no special tokens
        items = check_texts(texts)
        try:
            encoded = [text.encode() for text in items]  # bytes objects: no Python list of ids per text
        except UnicodeEncodeError as error:
            index = next(i for i, text in enumerate(items) if text is error.object or text == error.object)
            raise surrogate_error(f"text {index}", error.start, ord(error.object[error.start])) from None
        flat = np.frombuffer(b"".join(encoded), np.uint8)
        return Ragged.from_counts(flat, np.fromiter(map(len, encoded), np.int64, len(encoded)))

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """The text of the bytes; those that are no valid UTF-8 become U+FFFD (errors="replace")."""
        del skip_special_tokens  # there are no special tokens
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Any) -> bytes:
        return check_ids(ids, 256).astype(np.uint8).tobytes()

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode_bytes([token_id])

    def get_vocab_size(self) -> int:
        return 256

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        del add_special_tokens, parse_special  # there are no special tokens
        return [
            Token(value, bytes([value]), (place, place + 1), False)
            for place, value in enumerate(check_text(text).encode())
        ]

    def __repr__(self) -> str:
        return "ByteTokenizer()"
