"""Rank files: `tiktoken.model` of Kimi-K2, `tokenizer.model` of LLaMA-3, OpenAI's .tiktoken files.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids equal `tiktoken.Encoding.encode(text, allowed_special="all")`; parse_special=False equals `encode_ordinary`
- begin- and end-of-text are added only where tokenizer_config.json says add_bos_token / add_eos_token
- every line is checked before use: base64, whole-number ranks, no rank twice, no hole but where a special token sits,
  all 256 single bytes present
- tiktoken does not tell where it cut: `splits` cuts with the same pattern in `regex`, and is None where the two may
  differ. That is: a character younger than one's Unicode tables (charset.py), ids that do not follow from the cuts, a
  pattern `regex` does not know or needs more than SPLIT_SECONDS for
- not here: split patterns and special tokens of known models (patterns.py), how a merge goes (merges.py)
Checked against tiktoken and recorded fixtures in tests/tokenizers/test_ranks.py, test_splits.py and test_merges.py.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TextError, TokenizerError
from inlayer.ragged import Ragged
from inlayer.tokenizers.base import (
    LibraryTokenizer,
    Merged,
    Token,
    check_ids,
    check_known,
    check_text,
    check_texts,
    pieces_from_bytes,
    special_finder,
)
from inlayer.tokenizers.charset import unsettled_texts
from inlayer.tokenizers.fast import LONG_TEXT, FastPath, encode_both, open_ranks
from inlayer.tokenizers.guard import library_errors, library_panics, one_line
from inlayer.tokenizers.merges import Merges, rank_merges
from inlayer.tokenizers.parts import MAX_ID

__all__ = ["RankTokenizer", "looks_like_ranks", "parse_ranks", "ranks_fingerprint"]

SPLIT_SECONDS = 10.0  # a real pattern cuts some megabytes in this time
RANK_LINE = re.compile(rb"\s*[!-~]+[ \t]+-?\d+\s*")


def looks_like_ranks(data: bytes) -> bool:
    """Are most of the first lines a word and a whole number? Also where some are damaged: parse_ranks says which."""
    lines = [line for line in data[:4096].splitlines()[:16] if line.strip()]
    return sum(RANK_LINE.fullmatch(line) is not None for line in lines) * 2 > len(lines)


def parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Token bytes -> rank, every line checked."""
    ranks: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            encoded, rank_text = line.split()
            if not rank_text.lstrip(b"-").isdigit():  # int would take 1_0
                raise ValueError
            token, rank = base64.b64decode(encoded, validate=True), int(rank_text)
        except ValueError:  # binascii.Error is one
            raise TokenizerError(f"line {number} of {where} is not `base64 rank`; is the file damaged?") from None
        if rank < 0 or not token:
            raise TokenizerError(
                f"line {number} of {where} has rank {rank} for {token!r}; ranks count from 0, tokens are not empty"
            )
        if rank in lines:
            raise TokenizerError(f"rank {rank} stands twice in {where}, on lines {lines[rank]} and {number}")
        if token in ranks:
            raise TokenizerError(f"token {token!r} stands twice in {where}, as ranks {ranks[token]} and {rank}")
        ranks[token], lines[rank] = rank, number
    missing = next((value for value in range(256) if bytes([value]) not in ranks), None)
    if missing is not None:
        raise TokenizerError(f"{where} has no token for the byte 0x{missing:02X}; a rank file has all 256")
    return ranks


def ranks_fingerprint(ranks: Mapping[bytes, int]) -> str:
    """SHA-256 over the ranks in order; equal to that of the published files, whatever the order of lines here."""
    digest = hashlib.sha256()
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        digest.update(base64.b64encode(token) + b" %d\n" % rank)
    return digest.hexdigest()


def matches_nothing(pat_str: str) -> bool:
    """Can the pattern match an empty piece? tiktoken would end in a panic on it.

    Asked of `regex`, which tiktoken brings along; where it does not know the dialect, tiktoken itself will say.
    """
    import regex

    try:
        pattern = regex.compile(pat_str, regex.V1)  # V1: [a&&b], as Kimi-K2's has
        probes = ("", "a", " a1!\n  \u4f60 ")
        return any(match.start() == match.end() for probe in probes for match in pattern.finditer(probe, timeout=1))
    except (regex.error, TimeoutError):
        return False


class RankTokenizer(LibraryTokenizer):
    """Byte-pair encoding by ranks, through tiktoken."""

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
        """`fast_source`: the file and gigatoken's name of its split pattern. `around`: ids before and after a text."""
        check_position_id_rule(ranks, special_tokens, where)
        import tiktoken  # when a file is opened, not before

        self.special_tokens: Mapping[str, int] = MappingProxyType(dict(special_tokens))
        self._where, self._around, self._pad_id = where, around, pad_id
        self._ranks, self._pat_str = ranks, pat_str
        self._tokens = {rank: token for token, rank in ranks.items()}
        self._tokens.update({token_id: token.encode() for token, token_id in special_tokens.items()})
        self._limit = max(self._tokens) + 1
        if matches_nothing(pat_str):
            raise TokenizerError(
                f"{where} cannot be opened: its split pattern {pat_str[:60]!r} also matches no text at all"
            )
        with library_errors(f"{where} cannot be opened with its split pattern"):
            self._exact = tiktoken.Encoding(
                where, pat_str=pat_str, mergeable_ranks=ranks, special_tokens=dict(special_tokens)
            )
        self._lock = RLock()
        self._unopened = fast_source
        self._fast: FastPath | None = None

    def _fast_path(self) -> FastPath | None:
        with self._lock:
            if self._unopened is not None:
                path, scheme = self._unopened
                self._unopened = None
                exact = partial(self._encode_exactly, parse_special=True)
                self._fast = open_ranks(str(path), scheme, dict(self.special_tokens), exact)
            return self._fast

    def _encode_one(self, text: str, parse_special: bool) -> npt.NDArray[np.uint32]:
        try:
            with library_panics(f"{self._where} cannot encode"):
                if parse_special:
                    return self._exact.encode_to_numpy(text, allowed_special="all")
                return self._exact.encode_to_numpy(text, disallowed_special=())
        except ValueError as error:  # its regex engine gives up on runs of about a million white-space characters
            raise TextError(f"tiktoken cannot split this text of {len(text)} characters: {one_line(error)}") from None

    def _encode_exactly(self, texts: list[str], parse_special: bool) -> Ragged:
        """Through tiktoken, which gives an array per text: no Python list."""
        return Ragged.from_arrays([self._encode_one(text, parse_special) for text in texts])

    @cached_property
    def _holds_special(self) -> Callable[[str], bool]:
        return special_finder(self.special_tokens)

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        check_text(text)
        if len(text) >= LONG_TEXT:
            batch = self.encode_batch([text], add_special_tokens=add_special_tokens, parse_special=parse_special)
            return [int(token_id) for token_id in batch.flat]
        before, after = self._around if add_special_tokens else ((), ())
        return [*before, *self._encode_one(text, parse_special).tolist(), *after]

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        items = check_texts(texts)
        exact = partial(self._encode_exactly, parse_special=parse_special)
        fast = self._fast_path()
        if fast is None:
            unsettled_texts(items)  # for lone surrogates
            batch = exact(items)
        else:  # gigatoken always finds special tokens: a text without any is the same either way
            batch = encode_both(items, fast, exact, None if parse_special else self._holds_special)
        return batch.wrapped(*(self._around if add_special_tokens else ((), ())))

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """As tiktoken: bytes joined, those that are no valid UTF-8 become U+FFFD."""
        hidden = self.special_ids if skip_special_tokens else frozenset[int]()
        return b"".join(self._tokens[token_id] for token_id in self._known(ids) if token_id not in hidden).decode(
            errors="replace"
        )

    def decode_bytes(self, ids: Any) -> bytes:
        return b"".join(self._tokens[token_id] for token_id in self._known(ids))

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode_bytes([token_id])

    def _known(self, ids: Any) -> list[int]:
        known: list[int] = check_ids(ids, self._limit).tolist()
        return check_known(known, self._tokens.__contains__, self._where)

    def get_vocab_size(self) -> int:
        return len(self._tokens)

    @property
    def pad_id(self) -> int | None:
        return self._pad_id if self._pad_id is not None else super().pad_id

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """The pieces' bytes add up to the text's, exactly."""
        ids = self.encode(text, add_special_tokens=add_special_tokens, parse_special=parse_special)
        before, after = self._around if add_special_tokens else ((), ())
        covered = [self._tokens[token_id] for token_id in ids]
        pieces = pieces_from_bytes(text.encode(), ids, covered, self.special_ids, prefix=len(before), suffix=len(after))
        if pieces is None:
            raise TokenizerError(f"the split pattern of {self._where} drops part of the text: {text[:40]!r}")
        return pieces

    def splits(self, text: str, *, parse_special: bool = True) -> list[tuple[int, int]] | None:
        if unsettled_texts([check_text(text)]).size:
            return None
        spans: list[tuple[int, int]] = []
        pieces = self.tokens(text, add_special_tokens=False, parse_special=parse_special)
        for special, run in itertools.groupby(pieces, key=lambda piece: piece.special):
            stretch = list(run)
            found = [piece.span for piece in stretch] if special else self._split(stretch)
            if found is None:
                return None
            spans += found
        return spans

    def _split(self, pieces: list[Token]) -> list[tuple[int, int]] | None:
        """The splits of a stretch without special tokens; None where these pieces do not follow from them."""
        text = b"".join(piece.bytes for piece in pieces).decode()
        import regex

        try:
            pattern = regex.compile(self._pat_str, regex.V1)
            words = [match.group() for match in pattern.finditer(text, timeout=SPLIT_SECONDS)]
        except (regex.error, TimeoutError):
            return None
        spans, ids, start = [], [], pieces[0].span[0]
        for word in words:
            data = word.encode()
            replayed = self._merges.replay(data)
            if replayed is None:
                return None
            spans.append((start, start + len(data)))
            ids += replayed[1]
            start += len(data)
        return spans if "".join(words) == text and ids == [piece.id for piece in pieces] else None

    def merges(self, ids: Sequence[int]) -> list[Merged] | None:
        known = self._known(ids)
        return (
            None if not self.special_ids.isdisjoint(known) else self._merges.leading_to(known, self.decode_bytes(known))
        )

    @cached_property
    def _merges(self) -> Merges:
        return rank_merges(self._ranks)

    def __repr__(self) -> str:
        return f"RankTokenizer({self._where!r}, {self.get_vocab_size()} tokens)"


def check_position_id_rule(ranks: Mapping[bytes, int], special_tokens: Mapping[str, int], where: str) -> None:
    """Ranks and special tokens share one row of ids: none twice, no hole below the last rank."""
    by_id: dict[int, str] = {}
    taken = set(ranks.values())
    for token, token_id in special_tokens.items():
        check_text(token, f"a special token of {where}")
        if not token or type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise TokenizerError(
                f"special token {token!r} of {where} has id {token_id!r:.40}; it needs a name and an id in 0..{MAX_ID}"
            )
        if token_id in taken or token_id in by_id:
            other = by_id.get(token_id, "a rank")
            raise TokenizerError(f"special token {token!r} of {where} has id {token_id}, which {other!r} already has")
        by_id[token_id] = token
    hole = next(
        (token_id for token_id in range(max(taken, default=-1)) if token_id not in taken and token_id not in by_id),
        None,
    )
    if hole is not None:
        raise TokenizerError(
            f"{where} has no rank {hole}, below its last rank {max(taken)}; is the file cut or damaged?"
        )
