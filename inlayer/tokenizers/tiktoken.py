"""TiktokenTokenizer: reads tiktoken files (Kimi-K2's tiktoken.model, Llama-3's tokenizer.model, OpenAI's .tiktoken).

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids match `tiktoken.Encoding.encode(text, allowed_special="all")`; with parse_special=False, `encode_ordinary`
- a file has only token bytes and ranks. The pattern and special tokens are in each model's code, which is never run:
  known files are recognized by the SHA-256 of their ranks, or by the config files next to them
- tiktoken does not report pre-tokens. They are found with the same pattern in `regex`, and are None if the two may
  disagree: an unstable character (gigatoken.py), ids that do not follow from the pre-tokens, or a pattern that
  `regex` cannot compile or run within MAX_SPLIT_SECONDS
Tested against tiktoken in test_tiktoken.py, test_pre_tokens.py, and test_merges.py of tests/tokenizers/.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inlayer.errors import TextError, TokenizerError
from inlayer.ragged import Ragged, ragged_from_arrays, with_special_tokens
from inlayer.tokenizers.base import Analysis, PreTokens, Token, check_text
from inlayer.tokenizers.gigatoken import EncodeBatch, open_fast_path, texts_with_unstable_characters
from inlayer.tokenizers.library_tokenizer import LibraryTokenizer
from inlayer.tokenizers.merges import MergeTable, merges_from_ranks
from inlayer.tokenizers.offsets import tokens_from_offsets
from inlayer.tokenizers.untrusted_files import MAX_ID, first_line, library_errors

MAX_SPLIT_SECONDS = 10.0  # enough for several megabytes with a real pattern
RANK_LINE = re.compile(rb"\s*([!-~]+)[ \t]+(-?\d+)\s*")


def looks_like_tiktoken(data: bytes) -> bool:
    """Return whether most of the first lines are a word and an integer. parse_ranks reports damaged lines."""
    lines = [line for line in data[:4096].splitlines()[:16] if line.strip()]
    return sum(RANK_LINE.fullmatch(line) is not None for line in lines) * 2 > len(lines)


def parse_ranks(data: bytes, source: str) -> dict[bytes, int]:
    """Parse and validate a tiktoken file: token bytes -> rank."""
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        match = RANK_LINE.fullmatch(line)
        try:
            token, rank = (base64.b64decode(match[1], validate=True), int(match[2])) if match else (b"", 0)
        except ValueError:  # not base64, or thousands of digits
            token, rank = b"", 0
        if not token or rank < 0:
            raise TokenizerError(
                f"line {number} of {source} is not `base64 rank`: {line[:40]!r}; is the file damaged? Ranks start at 0"
            )
        if token in ranks or rank in seen:
            raise TokenizerError(f"line {number} of {source} repeats the token {token!r} or the rank {rank}")
        ranks[token] = rank
        seen.add(rank)
    missing = next((value for value in range(256) if bytes([value]) not in ranks), None)
    if missing is not None:
        raise TokenizerError(f"{source} has no token for byte 0x{missing:02X}; a tiktoken file needs all 256 bytes")
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
        source: str = "ranks",
        fast_source: tuple[Path, str] | None = None,
        around: tuple[Sequence[int], Sequence[int]] = ((), ()),
        pad_id: int | None = None,
    ) -> None:
        """`fast_source` is the file, with gigatoken's name for its pattern; `around` are ids added to every text."""
        check_numbering(ranks, special_tokens, source)
        import tiktoken

        self.special_tokens: Mapping[str, int] = dict(special_tokens)
        self._source, self._special_tokens_around, self._pad_id = source, around, pad_id
        self._ranks, self._pat_str, self._fast_source = ranks, pat_str, fast_source
        self._tokens = {rank: token for token, rank in ranks.items()}
        self._tokens |= {token_id: token.encode() for token, token_id in special_tokens.items()}
        self._id_limit = max(self._tokens) + 1
        with library_errors(f"{source} cannot be opened with its split pattern"):
            self._exact = tiktoken.Encoding(
                source, pat_str=pat_str, mergeable_ranks=ranks, special_tokens=dict(special_tokens)
            )

    def _encode_array(self, text: str, parse_special: bool) -> npt.NDArray[np.uint32]:
        allowed: Literal["all"] | set[str] = "all" if parse_special else set()
        try:
            return self._exact.encode_to_numpy(text, allowed_special=allowed, disallowed_special=())
        except ValueError as error:  # the regex engine gives up on about a million whitespace characters in a row
            raise TextError(f"tiktoken cannot split this text of {len(text)} characters: {first_line(error)}") from None

    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        batch = ragged_from_arrays([self._encode_array(text, parse_special) for text in texts])
        return with_special_tokens(batch, *self._special_tokens_around) if add_special_tokens else batch

    @cached_property
    def _fast_path(self) -> EncodeBatch | None:
        if self._fast_source is None:
            return None
        (path, scheme), special_tokens = self._fast_source, dict(self.special_tokens)
        exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=True)

        def make(gigatoken: Any) -> Any:
            return gigatoken.Tokenizer.from_tiktoken(str(path), scheme, special_tokens)

        return open_fast_path(make, exact, list(special_tokens))

    def _has_token(self, token_id: int) -> bool:
        return token_id in self._tokens

    def _bytes_of(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def get_vocab_size(self) -> int:
        return len(self._tokens)

    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        """Explain a text. The bytes of its tokens always add up to it exactly."""
        ids = self.encode(text, add_special_tokens=False, parse_special=parse_special)
        source, own = text.encode(), [self._tokens[token_id] for token_id in ids]
        if b"".join(own) != source:
            raise TokenizerError(f"the split pattern of {self._source} drops part of the text {text[:40]!r}")
        offsets = [(0, len(source))] * len(ids)  # the bytes of the tokens divide the whole text
        tokens = tokens_from_offsets(source, ids, offsets, own, self.special_ids)
        spans = self._find_pre_tokens(text, tokens) if split else None
        return self._with_added(tokens, len(source)) if add_special_tokens else tokens, spans

    def _find_pre_tokens(self, text: str, tokens: list[Token]) -> PreTokens:
        """Return the pre-tokens; None if `regex` may split differently, or if these tokens do not follow from them."""
        import regex

        if texts_with_unstable_characters([text]):
            return None
        with self._lock:
            table = self._merge_table
        spans: list[tuple[int, int]] = []
        try:
            pattern = regex.compile(self._pat_str, regex.V1)  # V1 supports [a&&b], as in Kimi-K2's pattern
            for special, run in itertools.groupby(tokens, key=lambda token: token.special):
                segment = list(run)
                if special:
                    spans += [token.span for token in segment]
                    continue
                part = b"".join(token.bytes for token in segment)
                matches = pattern.finditer(part.decode(), timeout=MAX_SPLIT_SECONDS)
                words = [match.group().encode() for match in matches]
                ids = [token_id for word in words for token_id in table.replay(word)[1]]
                if b"".join(words) != part or ids != [token.id for token in segment]:
                    return None
                spans += itertools.pairwise(itertools.accumulate(map(len, words), initial=segment[0].span[0]))
        except (regex.error, TimeoutError):
            return None
        return spans

    @cached_property
    def _merge_table(self) -> MergeTable:
        return merges_from_ranks(self._ranks)


def check_numbering(ranks: Mapping[bytes, int], special_tokens: Mapping[str, int], source: str) -> None:
    """Check that ranks and special tokens have distinct ids, without a gap below the last rank."""
    taken = set(ranks.values())
    for token, token_id in special_tokens.items():
        check_text(token, f"a special token of {source}")
        if not token or type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise TokenizerError(
                f"special token {token!r} of {source} has id {token_id!r:.40}; it needs a name and an id in 0..{MAX_ID}"
            )
        if token_id in taken:
            raise TokenizerError(f"special token {token!r} of {source} has id {token_id}, as does another token")
        taken.add(token_id)
    last = max(ranks.values(), default=-1)
    gap = next((token_id for token_id in range(last) if token_id not in taken), None)
    if gap is not None:
        raise TokenizerError(f"{source} has no rank {gap}, although its last rank is {last}; is the file truncated?")


# -- known encodings --

RESERVED = 256  # special ids after the ranks, in the code of Kimi and Llama-3


@dataclass(frozen=True, kw_only=True)
class TiktokenEncoding:
    """Pattern and special tokens defined by the code of one model family."""

    pat_str: str
    scheme: str | None  # gigatoken's name for the pattern
    special_tokens: Callable[[int], dict[str, int]]  # given the number of ranks


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NOT_HAN = r"&&[^\p{Han}]"
WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cased_words(restriction: str) -> str:
    """Return a pattern for words that end where lower case turns to upper case, perhaps with a contraction."""
    upper, lower, first = f"[{UPPER}{restriction}]", f"[{LOWER}{restriction}]", r"[^\r\n\p{L}\p{N}]?"
    return f"{first}{upper}*{lower}+{CONTRACTIONS}?|{first}{upper}+{lower}*{CONTRACTIONS}?"


KIMI = r"[\p{Han}]+|" + cased_words(NOT_HAN) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
O200K = cased_words("") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + WHITE_SPACE
LLAMA_3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
GPT_2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# Like Llama-3's, but whitespace at the very end of a text is one pre-token.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s"
)


def kimi_special_tokens(ranks: int) -> dict[str, int]:
    return {f"<|reserved_token_{token_id}|>": token_id for token_id in range(ranks, ranks + RESERVED)}


def llama3_special_tokens(ranks: int) -> dict[str, int]:
    """Return Llama-3's named special tokens, with numbered reserved ones between them."""
    names = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
    free = [index for index in range(RESERVED) if index not in names]
    reserved = {index: f"reserved_special_token_{number}" for number, index in enumerate(free)}
    return {f"<|{name}|>": ranks + index for index, name in sorted((names | reserved).items())}


CL100K_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}  # fmt: skip
ENCODINGS = {
    "kimi": TiktokenEncoding(pat_str=KIMI, scheme="kimi", special_tokens=kimi_special_tokens),
    # no scheme: merges cannot produce some of its tokens, so gigatoken rejects the file
    "llama3": TiktokenEncoding(pat_str=LLAMA_3, scheme=None, special_tokens=llama3_special_tokens),
    "r50k": TiktokenEncoding(pat_str=GPT_2, scheme="gpt2", special_tokens=lambda _: {"<|endoftext|>": 50256}),
    "p50k": TiktokenEncoding(pat_str=GPT_2, scheme=None, special_tokens=lambda _: {"<|endoftext|>": 50256}),
    "cl100k": TiktokenEncoding(pat_str=CL100K, scheme="gpt4", special_tokens=lambda _: CL100K_SPECIAL_TOKENS),
    "o200k": TiktokenEncoding(
        pat_str=O200K, scheme="o200k", special_tokens=lambda _: {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}

# SHA-256 of the ranks -> encoding. For OpenAI's files, these are the checksums that tiktoken uses to verify its
# downloads.
KNOWN_FILES = {
    "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103": "kimi",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k",
}
KIMI_MODULES = {"tokenization_kimi", "tokenization_moonshot"}  # names in auto_map
KIMI_MODEL_TYPES = {"kimi_k2", "kimi_k25", "kimi_linear", "kimi_vl"}


def ranks_sha256(ranks: Mapping[bytes, int]) -> str:
    """Hash the ranks in order, so the order of lines in the file does not matter."""
    digest = hashlib.sha256()
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        digest.update(base64.b64encode(token) + b" %d\n" % rank)
    return digest.hexdigest()


def find_encoding(
    ranks: Mapping[bytes, int], tokenizer_config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> TiktokenEncoding | None:
    """Identify the encoding of a tiktoken file by its ranks, or else by the config files next to it."""
    if (name := KNOWN_FILES.get(ranks_sha256(ranks))) is not None:
        return ENCODINGS[name]
    auto_map = tokenizer_config.get("auto_map")
    entry = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else None
    classes = entry if isinstance(entry, list) else [entry]
    modules = {str(value).rsplit("--", 1)[-1].split(".")[0] for value in classes if value}
    is_kimi = modules & KIMI_MODULES or str(model_config.get("model_type")) in KIMI_MODEL_TYPES
    return ENCODINGS["kimi"] if is_kimi else None
