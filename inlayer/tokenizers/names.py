"""How a token is called by itself, away from any text: as the vocabulary spells it.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- what a token is called within a text, where bytes of a character may lie in several, is in trace/names.py
Checked in tests/trace/test_tokenization.py.
"""

from __future__ import annotations

from inlayer.errors import InlayerError
from inlayer.tokenizers.base import Tokenizer

__all__ = ["spelled"]


def spelled(tokenizer: Tokenizer | None, token_id: int) -> str:
    """A token as the vocabulary spells it; its bytes where they are no whole characters, its number where it has no
    name.
    """
    if tokenizer is None:
        return f"#{token_id}"
    try:
        data = tokenizer.token_bytes(token_id)
    except InlayerError:  # a row past the vocabulary, or in a hole of it
        return f"#{token_id}"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")
