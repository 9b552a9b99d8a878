"""TiktokenTokenizer: reads tiktoken files (Kimi-K2's tiktoken.model, LLaMA-3's tokenizer.model, OpenAI's .tiktoken).

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids equal `tiktoken.Encoding.encode(text, allowed_special="all")`; parse_special=False equals `encode_ordinary`
- begin- and end-of-text are added only if tokenizer_config.json sets add_bos_token or add_eos_token
- each line of a file is `base64 rank`, and all are validated: unique tokens and ranks, all 256 bytes present, no gap
  between ranks unless a special token fills it
- tiktoken does not report pre-tokens. They are found with the same pattern in `regex`, and are None if the two may
  disagree: an unstable character (unicode_versions.py), ids that do not follow from the pre-tokens, or a pattern that
  `regex` cannot compile or run within MAX_SPLIT_SECONDS
- elsewhere: patterns and special tokens of known models (tiktoken_encodings.py)
Tested against tiktoken in test_tiktoken.py, test_pre_tokens.py and test_merges.py of tests/tokenizers/.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TextError, TokenizerError
from inlayer.ragged import Ragged
from inlayer.tokenizers.base import Token, check_text
from inlayer.tokenizers.gigatoken import EncodeBatch, open_fast_path
from inlayer.tokenizers.library import LibraryTokenizer, tokens_from_bytes
from inlayer.tokenizers.merges import MergeTable, merges_of_ranks
from inlayer.tokenizers.tokenizer_json import MAX_ID
from inlayer.tokenizers.unicode_versions import texts_with_unstable_characters
from inlayer.tokenizers.untrusted_files import library_errors, one_line

__all__ = ["TiktokenTokenizer", "looks_like_tiktoken", "parse_ranks"]

MAX_SPLIT_SECONDS = 10.0  # enough for several megabytes with a real pattern
RANK_LINE = re.compile(rb"\s*[!-~]+[ \t]+-?\d+\s*")


def looks_like_tiktoken(data: bytes) -> bool:
    """Are most of the first lines a word and an integer? Some may be damaged; parse_ranks reports which."""
    lines = [line for line in data[:4096].splitlines()[:16] if line.strip()]
    return sum(RANK_LINE.fullmatch(line) is not None for line in lines) * 2 > len(lines)


def parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Parse and validate a tiktoken file: token bytes -> rank."""
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            encoded, rank_text = line.split()
            if not rank_text.lstrip(b"-").isdigit():  # int would accept 1_0
                raise ValueError
            token, rank = base64.b64decode(encoded, validate=True), int(rank_text)
        except ValueError:  # binascii.Error is a ValueError
            raise TokenizerError(f"line {number} of {where} is not `base64 rank`; is the file damaged?") from None
        if rank < 0 or not token:
            raise TokenizerError(
                f"line {number} of {where} has rank {rank} for {token!r}; ranks start at 0 and tokens are not empty"
            )
        if rank in lines:
            raise TokenizerError(f"{where} has rank {rank} twice, on lines {lines[rank]} and {number}")
        if token in ranks:
            raise TokenizerError(f"{where} has token {token!r} twice, with ranks {ranks[token]} and {rank}")
        ranks[token], lines[rank] = rank, number
    missing = next((value for value in range(256) if bytes([value]) not in ranks), None)
    if missing is not None:
        raise TokenizerError(f"{where} has no token for byte 0x{missing:02X}; a tiktoken file needs all 256 bytes")
    return ranks


class TiktokenTokenizer(LibraryTokenizer):
    """Byte-pair encoding by ranks, with tiktoken. A rank is the id of its token."""

    _byte_level = True

    def __init__(
        self,
        ranks: dict[bytes, int],
        pat_str: str,
        special_tokens: Mapping[str, int],
        *,
        where: str = "ranks",
        fast_source: tuple[Path, str] | None = None,
        around: tuple[Sequence[int], Sequence[int]] = ((), ()),
        pad_id: int | None = None,
    ) -> None:
        """`fast_source` is the file with gigatoken's name for its pattern; `around` are ids added to every text."""
        check_numbering(ranks, special_tokens, where)
        import tiktoken

        self.special_tokens: Mapping[str, int] = MappingProxyType(dict(special_tokens))
        self._where, self._around, self._pad_id = where, around, pad_id
        self._ranks, self._pat_str, self._fast_source = ranks, pat_str, fast_source
        self._tokens = {rank: token for token, rank in ranks.items()}
        self._tokens.update({token_id: token.encode() for token, token_id in special_tokens.items()})
        self._id_limit = max(self._tokens) + 1
        with library_errors(f"{where} cannot be opened with its split pattern"):
            self._exact = tiktoken.Encoding(
                where, pat_str=pat_str, mergeable_ranks=ranks, special_tokens=dict(special_tokens)
            )

    def _encode_array(self, text: str, parse_special: bool) -> npt.NDArray[np.uint32]:
        try:
            if parse_special:
                return self._exact.encode_to_numpy(text, allowed_special="all")
            return self._exact.encode_to_numpy(text, disallowed_special=())
        except ValueError as error:  # its regex engine gives up on about a million white-space characters in a row
            raise TextError(f"tiktoken cannot split this text of {len(text)} characters: {one_line(error)}") from None

    def _encode_one(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        before, after = self._around if add_special_tokens else ((), ())
        return [*before, *self._encode_array(text, parse_special).tolist(), *after]

    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        batch = Ragged.from_arrays([self._encode_array(text, parse_special) for text in texts])
        return batch.wrapped(*self._around) if add_special_tokens else batch

    def _open_fast_path(self) -> EncodeBatch | None:
        if self._fast_source is None:
            return None
        (path, scheme), special_tokens = self._fast_source, dict(self.special_tokens)
        exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=True)
        return open_fast_path(
            lambda gigatoken: gigatoken.Tokenizer.from_tiktoken(str(path), scheme, special_tokens),
            exact,
            list(special_tokens),
        )

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        skipped = self.special_ids if skip_special_tokens else frozenset[int]()
        kept = [token_id for token_id in self._valid_ids(ids) if token_id not in skipped]
        return self.decode_bytes(kept).decode(errors="replace")

    def _has_token(self, token_id: int) -> bool:
        return token_id in self._tokens

    def _bytes_of(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def get_vocab_size(self) -> int:
        return len(self._tokens)

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """Encode a text into tokens whose bytes add up to it exactly."""
        ids = self.encode(text, add_special_tokens=False, parse_special=parse_special)
        source = text.encode()
        tokens = tokens_from_bytes(source, ids, [self._tokens[token_id] for token_id in ids], self.special_ids)
        if tokens is None:
            raise TokenizerError(f"the split pattern of {self._where} drops part of the text {text[:40]!r}")
        return self._with_added(tokens, len(source)) if add_special_tokens else tokens

    def pre_tokens(self, text: str, *, parse_special: bool = True) -> list[tuple[int, int]] | None:
        if texts_with_unstable_characters([check_text(text)]).size:
            return None
        spans: list[tuple[int, int]] = []
        tokens = self.tokens(text, add_special_tokens=False, parse_special=parse_special)
        for special, run in itertools.groupby(tokens, key=lambda token: token.special):
            stretch = list(run)
            found = [token.span for token in stretch] if special else self._split(stretch)
            if found is None:
                return None
            spans += found
        return spans

    def _split(self, tokens: list[Token]) -> list[tuple[int, int]] | None:
        """Find the pre-tokens of a stretch without special tokens; None if these tokens do not follow from them."""
        import regex

        text = b"".join(token.bytes for token in tokens).decode()
        try:
            pattern = regex.compile(self._pat_str, regex.V1)  # V1 supports [a&&b], as in Kimi-K2's pattern
            words = [match.group() for match in pattern.finditer(text, timeout=MAX_SPLIT_SECONDS)]
        except (regex.error, TimeoutError):
            return None
        with self._lock:
            table = self._merge_table
        assert table is not None
        spans, ids, start = [], [], tokens[0].span[0]
        for word in words:
            data = word.encode()
            replayed = table.replay(data)
            if replayed is None:
                return None
            spans.append((start, start + len(data)))
            ids += replayed[1]
            start += len(data)
        return spans if "".join(words) == text and ids == [token.id for token in tokens] else None

    def _read_merges(self) -> MergeTable:
        return merges_of_ranks(self._ranks)


def check_numbering(ranks: Mapping[bytes, int], special_tokens: Mapping[str, int], where: str) -> None:
    """Check that ranks and special tokens have distinct ids, without a gap below the last rank."""
    owners: dict[int, str] = dict.fromkeys(ranks.values(), "a rank")
    for token, token_id in special_tokens.items():
        check_text(token, f"a special token of {where}")
        if not token or type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise TokenizerError(
                f"special token {token!r} of {where} has id {token_id!r:.40}; it needs a name and an id in 0..{MAX_ID}"
            )
        if token_id in owners:
            raise TokenizerError(f"special token {token!r} of {where} has id {token_id}, as does {owners[token_id]!r}")
        owners[token_id] = token
    last = max(ranks.values(), default=-1)
    gap = next((token_id for token_id in range(last) if token_id not in owners), None)
    if gap is not None:
        raise TokenizerError(f"{where} has no rank {gap}, although its last rank is {last}; is the file truncated?")
