"""How a token is shown: by its text, by its bytes where they are no whole characters, by its name where it is special.

Checked in tests/trace/test_reading.py.
"""

from __future__ import annotations

from inlayer.errors import InlayerError
from inlayer.text import Piece, Tokenizer

__all__ = ["label_of", "spelled"]


def label_of(piece: Piece, token: str) -> str:
    """The piece as text where its bytes are whole characters, as bytes where not, by name where it is special."""
    if piece.special or not piece.bytes:
        return token
    try:
        return piece.bytes.decode()
    except UnicodeDecodeError:
        return piece.bytes.hex(" ")


def spelled(tokenizer: Tokenizer | None, token_id: int) -> str:
    """A token as the vocabulary spells it; its number where it has no name."""
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
