"""How a token of a text is shown: by its text, by its bytes where they are no whole characters, by its name where it is
special.

- not here: a token by itself (tokenizers/base.py)
Checked in tests/trace/test_tokenization.py.
"""

from __future__ import annotations

from inlayer.tokenizers import Token

__all__ = ["label_of"]


def label_of(piece: Token, token: str) -> str:
    """The piece as text where its bytes are whole characters, as bytes where not, by name where it is special."""
    if piece.special or not piece.bytes:
        return token
    try:
        return piece.bytes.decode()
    except UnicodeDecodeError:
        return piece.bytes.hex(" ")
