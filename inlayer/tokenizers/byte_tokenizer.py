"""ByteTokenizer: the UTF-8 bytes of a text are its ids.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- 256 ids and no special tokens; every string can be encoded and is restored exactly
- elsewhere: merging frequent bytes into longer tokens (train.py)
Tested against str.encode in tests/tokenizers/test_byte_and_word.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from inlayer.ragged import Ragged
from inlayer.tokenizers.base import Token, Tokenizer, check_ids, check_text, check_texts

__all__ = ["ByteTokenizer"]


class ByteTokenizer(Tokenizer):
    """Tokenizer with one id per UTF-8 byte and no special tokens.

    Example:
        >>> ByteTokenizer().encode("Hi")
        [72, 105]
    """

    special_tokens: Mapping[str, int] = MappingProxyType({})

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        del add_special_tokens, parse_special
        return list(check_text(text).encode())

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        del add_special_tokens, parse_special
        items = check_texts(texts)
        try:
            encoded = [text.encode() for text in items]  # bytes objects: no Python list of ids per text
        except UnicodeEncodeError:
            for index, text in enumerate(items):
                check_text(text, f"text {index}")  # raises an error that names the text
            raise
        flat = np.frombuffer(b"".join(encoded), np.uint8)
        return Ragged.from_counts(flat, np.fromiter(map(len, encoded), np.int64, len(encoded)))

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        del skip_special_tokens
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Any) -> bytes:
        return check_ids(ids, 256).astype(np.uint8).tobytes()

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode_bytes([token_id])

    def get_vocab_size(self) -> int:
        return 256

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        del add_special_tokens, parse_special
        data = check_text(text).encode()
        return [Token(value, bytes([value]), (start, start + 1), False) for start, value in enumerate(data)]

    def __repr__(self) -> str:
        return "ByteTokenizer()"
