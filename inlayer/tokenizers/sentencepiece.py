"""sentencepiece .model files: LLaMA-2, T5, Gemma and their kin, through the sentencepiece library.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids equal `SentencePieceProcessor.encode(text)`. With add_special_tokens, begin- and end-of-text are put around it
  where tokenizer_config.json says add_bos_token / add_eos_token; a bare .model adds none
- the library never finds control tokens (`<s>`) written in a text, so parse_special changes nothing here. User-defined
  symbols are ordinary pieces to it and are always found. A folder with a tokenizer.json opens that instead
- not here: gigatoken's reading of these files, whose equality with the library is not proven
Checked against the library in tests/tokenizers/test_sentencepiece.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TokenizerError
from inlayer.ragged import Ragged
from inlayer.tokenizers.base import BLOCK, LibraryTokenizer, Token, check_ids, check_text, check_texts, not_byte_level
from inlayer.tokenizers.guard import library_errors
from inlayer.tokenizers.spans import pieces_from_offsets

__all__ = ["SentencePieceTokenizer", "looks_like_sentencepiece"]


class SentencePieceTokenizer(LibraryTokenizer):
    """The tokenizer of a sentencepiece .model, given as its bytes."""

    def __init__(
        self,
        data: bytes,
        *,
        where: str = "tokenizer.model",
        around: tuple[bool, bool] = (False, False),
        pad_token: str | None = None,
    ) -> None:
        """`around`: put begin-of-text before, end-of-text after a text?"""
        import sentencepiece  # when a file is opened, not before

        self._where = where
        self._exact = sentencepiece.SentencePieceProcessor()
        with library_errors(f"{where} is no sentencepiece model"):
            if not data or not self._exact.LoadFromSerializedProto(data):
                raise TokenizerError(f"{where} is no sentencepiece model")
        self._size = int(self._exact.get_piece_size())
        if self._size == 0:
            raise TokenizerError(f"{where} is a sentencepiece model without pieces")
        pad_ids = (self._id_of(pad_token), int(self._exact.pad_id()))
        self._pad_id = next((token_id for token_id in pad_ids if token_id >= 0), None)
        with library_errors(f"{where} holds a piece that is no text"):  # not UTF-8
            pieces = [str(self._exact.id_to_piece(token_id)) for token_id in range(self._size)]
        self.special_tokens: Mapping[str, int] = MappingProxyType(
            {
                piece: token_id
                for token_id, piece in enumerate(pieces)
                if self._exact.is_control(token_id) or self._exact.is_unknown(token_id)
            }
        )
        begin, end = int(self._exact.bos_id()), int(self._exact.eos_id())
        if (around[0] and begin < 0) or (around[1] and end < 0):
            raise TokenizerError(
                f"{where} has no begin- or end-of-text token, but its tokenizer_config.json asks for one"
            )
        self._around: tuple[Sequence[int], Sequence[int]] = ([begin] if around[0] else [], [end] if around[1] else [])

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        del parse_special  # the library has one way only
        check_text(text)
        before, after = self._around if add_special_tokens else ((), ())
        with library_errors(f"{self._where} cannot encode"):
            return [*before, *self._exact.encode(text, return_type=int), *after]

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        add_special_tokens: bool = True,
        parse_special: bool = True,
    ) -> Ragged:
        """The library gives an array per text: no Python list. A block at a time, so that Ctrl-C is heard."""
        del parse_special  # the library has one way only
        items = [check_text(text, f"text {index}") for index, text in enumerate(check_texts(texts))]
        rows: list[npt.NDArray[np.int32]] = []
        for start in range(0, len(items), BLOCK):
            with library_errors(f"{self._where} cannot encode"):
                rows += self._exact.encode(items[start : start + BLOCK], return_type="numpy")
        before, after = self._around if add_special_tokens else ((), ())
        return Ragged.from_arrays(rows).wrapped(before, after)

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """As the library decodes: control tokens have no text, whatever `skip_special_tokens` says of them."""
        known = check_ids(ids, self._size).tolist()
        if skip_special_tokens:
            known = [token_id for token_id in known if token_id not in self.special_ids]
        return str(self._exact.decode(known))

    def decode_bytes(self, ids: Any) -> bytes:
        del ids  # no answer for any
        raise not_byte_level(f"the sentencepiece model {self._where}")

    def token_bytes(self, token_id: int) -> bytes:
        """The piece as the model spells it (`▁the`), or the one byte of a byte piece."""
        return self._bytes_of(int(check_ids([token_id], self._size)[0]))

    def _id_of(self, piece: str | None) -> int:
        """The id of a piece by its spelling; -1 where there is none: the library answers with the unknown token."""
        token_id = -1 if piece is None else int(self._exact.piece_to_id(piece))
        return token_id if token_id >= 0 and self._exact.id_to_piece(token_id) == piece else -1

    def _bytes_of(self, token_id: int) -> bytes:
        piece = str(self._exact.id_to_piece(token_id))
        if self._exact.is_byte(token_id) and re.fullmatch(r"<0x[0-9A-F]{2}>", piece):
            return bytes([int(piece[3:5], 16)])
        return piece.encode()

    def get_vocab_size(self) -> int:
        return self._size

    @property
    def pad_id(self) -> int | None:
        return self._pad_id if self._pad_id is not None else super().pad_id

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """Spans are the library's own; the bytes are those of the text under them (rules in spans.py)."""
        del parse_special  # the library has one way only
        source = check_text(text).encode()
        with library_errors(f"{self._where} cannot encode"):
            found = read_pieces(self._exact.encode_as_serialized_proto(text))
        ids = [token_id for token_id, _, _ in found]
        offsets = [(begin, end) for _, begin, end in found]
        body = pieces_from_offsets(source, ids, offsets, self._bytes_of, self.special_ids)
        before, after = self._around if add_special_tokens else ((), ())
        end = len(source)
        return [
            *(Token(token_id, b"", (0, 0), True) for token_id in before),
            *body,
            *(Token(token_id, b"", (end, end), True) for token_id in after),
        ]

    def __repr__(self) -> str:
        return f"SentencePieceTokenizer({self._where!r}, {self._size} tokens)"


def looks_like_sentencepiece(data: bytes) -> bool:
    """Does it begin as a model's message does? Its first fields are strings or messages (1 to 5: pieces, settings)."""
    place = 0
    for _ in range(8):
        if place == len(data) > 0:
            return True
        try:
            key, width = read_number(data[place : place + 10], 0)  # no number is longer
            place += width
            length, width = read_number(data[place : place + 10], 0)
        except IndexError:  # it ends inside a number, or is none
            return False
        place += width + length
        if key & 7 != 2 or not 1 <= key >> 3 <= 5 or place > len(data):
            return False
    return True


def read_pieces(message: bytes) -> list[tuple[int, int, int]]:
    """(id, begin, end) of each piece in a serialized SentencePieceText, begin and end in bytes.

    The one form of offsets every version of the library gives. Field 2 of the message is a piece; in a piece, fields
    2, 4 and 5 are its id, begin and end, and a field left out is 0.
    """
    pieces = []
    for field, value in read_fields(message):
        if field == 2 and isinstance(value, bytes):
            numbers = {inner: number for inner, number in read_fields(value) if isinstance(number, int)}
            pieces.append((numbers.get(2, 0), numbers.get(4, 0), numbers.get(5, 0)))
    return pieces


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message of whole numbers (wire type 0), strings and messages (2)."""
    place = 0
    while place < len(message):
        key, place = read_number(message, place)
        if key & 7 == 0:
            value, place = read_number(message, place)
            yield key >> 3, value
        elif key & 7 == 2:
            length, place = read_number(message, place)
            yield key >> 3, message[place : place + length]
            place += length
        elif key & 7 == 5:  # a score, 4 bytes
            place += 4
        else:
            raise TokenizerError(f"sentencepiece gave a message with wire type {key & 7}, which it never uses")


def read_number(message: bytes, place: int) -> tuple[int, int]:
    """A whole number, 7 bits to a byte, lowest first; and the place after it."""
    value, shift = 0, 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
