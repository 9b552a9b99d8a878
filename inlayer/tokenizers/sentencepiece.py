"""SentencePieceTokenizer: reads sentencepiece .model files (Llama-2, T5, Gemma).

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids match `SentencePieceProcessor.encode(text)`. Begin- and end-of-text are added only if tokenizer_config.json sets
  add_bos_token or add_eos_token
- the library never parses control tokens (`<s>`) in a text and always finds user-defined symbols, so parse_special has
  no effect
- the fast path is not used: gigatoken is not verified to give the same ids for these files
Tested against the library in tests/tokenizers/test_sentencepiece.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TokenizerError
from inlayer.ragged import Ragged, ragged_from_arrays, with_special_tokens
from inlayer.tokenizers.base import Analysis, check_text
from inlayer.tokenizers.library_tokenizer import BLOCK_TEXTS, LibraryTokenizer
from inlayer.tokenizers.offsets import tokens_from_offsets
from inlayer.tokenizers.untrusted_files import MAX_ADDED, MAX_GROWTH, library_errors


class SentencePieceTokenizer(LibraryTokenizer):
    """The tokenizer of a sentencepiece .model, given as bytes."""

    def __init__(
        self,
        data: bytes,
        *,
        source: str = "tokenizer.model",
        add_bos_eos: tuple[bool, bool] = (False, False),
        pad_token: str | None = None,
    ) -> None:
        """Open a model; `add_bos_eos`: whether to add begin-of-text before every text and end-of-text after it."""
        import sentencepiece

        self._source = source
        self._exact = sentencepiece.SentencePieceProcessor()
        with library_errors(f"{source} is not a valid sentencepiece model"):
            if not data or not self._exact.LoadFromSerializedProto(data) or not self._exact.get_piece_size():
                raise TokenizerError(f"{source} is not a valid sentencepiece model")
        self._id_limit = int(self._exact.get_piece_size())
        with library_errors(f"{source} has a token that is not valid UTF-8"):
            pieces = [str(self._exact.id_to_piece(token_id)) for token_id in range(self._id_limit)]
        self.special_tokens: Mapping[str, int] = {
            piece: token_id
            for token_id, piece in enumerate(pieces)
            if self._exact.is_control(token_id) or self._exact.is_unknown(token_id)
        }
        pad_id = int(self._exact.pad_id()) if pad_token not in pieces else pieces.index(pad_token)
        self._pad_id = pad_id if pad_id >= 0 else None
        ids = int(self._exact.bos_id()), int(self._exact.eos_id())
        before, after = ([token_id] if is_added else [] for is_added, token_id in zip(add_bos_eos, ids, strict=True))
        if any(token_id < 0 for token_id in before + after):
            raise TokenizerError(f"{source} has no begin- or end-of-text token, but tokenizer_config.json requires one")
        self._special_tokens_around = before, after

    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        """Encode one block of texts at a time, so that Ctrl-C works."""
        for text in texts:
            self._check_growth(text)
        rows: list[npt.NDArray[np.int32]] = []
        for start in range(0, len(texts), BLOCK_TEXTS):
            rows += self._exact.encode(texts[start : start + BLOCK_TEXTS], return_type="numpy")
        batch = ragged_from_arrays(rows)
        return with_special_tokens(batch, *self._special_tokens_around) if add_special_tokens else batch

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """Decode as the library does: control tokens have no text, regardless of `skip_special_tokens`."""
        return str(self._exact.decode(self._valid_ids(ids, skip_special_tokens)))

    def _check_growth(self, text: str) -> None:
        """Raise TokenizerError if the model's normalization rules make this text far too long."""
        if len(self._exact.normalize(text)) > (limit := MAX_GROWTH * len(text) + MAX_ADDED):
            raise TokenizerError(f"{self._source}: its normalizer makes a text longer than {limit:,} characters")

    def _bytes_of(self, token_id: int) -> bytes:
        piece = str(self._exact.id_to_piece(token_id))
        if self._exact.is_byte(token_id) and re.fullmatch(r"<0x[0-9A-F]{2}>", piece):
            return bytes([int(piece[3:5], 16)])
        return piece.encode()

    def _normalize(self, text: str) -> str:
        self._check_growth(text)
        return str(self._exact.normalize(text))

    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        """Derive spans from the library's offsets, by the rules in offsets.py. There are no pre-tokens."""
        source = check_text(text).encode()
        with library_errors(f"{self._source} cannot encode this text"):
            self._check_growth(text)
            options: dict[str, Any] = {"return_type": "offset_mapping", "return_bytes": True}  # not in its type stubs
            encoding = self._exact.encode(text, **options)
        own = [self._bytes_of(token_id) for token_id in encoding["ids"]]
        tokens = tokens_from_offsets(source, encoding["ids"], encoding["offsets"], own, self.special_ids)
        return self._with_added(tokens, len(source)) if add_special_tokens else tokens, None
