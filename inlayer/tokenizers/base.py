"""Tokenizer: the interface of every tokenizer, and the input checks they all share.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- text must be valid Unicode: a lone surrogate raises TextError instead of silently becoming U+FFFD
- an id outside the vocabulary raises IdRangeError instead of being skipped
- explanations are exact or None: `tokens` (bytes and spans), `pre_tokens`, and `merges` never guess
- see also: tokenizers backed by a library (library_tokenizer.py)
Tested for every kind of tokenizer in tests/tokenizers/test_contract.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from inlayer.checks import check_id_array
from inlayer.errors import DtypeError, IdRangeError, InlayerError, InputError, TextError, type_name
from inlayer.ragged import Ragged, flat_int64

# [unused0] <unused7> <|reserved_special_token_3|> <reserved_106> <｜place▁holder▁no▁2｜> <|dummy_5|> <dummy32000>
# <|extra_0|> (but not T5's <extra_id_0>) [control_12] <SPECIAL_20> [PAD151700] (GGUF) [UNUSED_TOKEN_3] >>UNUSED_1<<
_RESERVED = re.compile(
    r"[<\[>]{1,2}[|｜]?"
    r"(unused|reserved|dummy|place.?holder|extra_(?!id)|control_|special_|spare|pad)[\w▁ -]*\d"
    r"[|｜]?[>\]<]{1,2}|madeupword\d+",
    re.IGNORECASE,
)


class Token(NamedTuple):
    """One token of a text, with the bytes it covers.

    `span` is a half-open range of UTF-8 byte offsets in the text, and `bytes` is the text in that range. Spans are in
    order and never overlap. A token that the tokenizer added itself (begin-of-text) has an empty span and no bytes.
    """

    id: int
    bytes: bytes
    span: tuple[int, int]
    special: bool


PreTokens = list[tuple[int, int]] | None  # spans; None if they are not known
Analysis = tuple[list[Token], PreTokens]


class Merge(NamedTuple):
    """One BPE merge: `left` and `right` become the token `id`.

    Merges with a lower `rank` happen first. In a tokenizer.json the rank is the position in the list of merges; in a
    tiktoken file it is the id of the resulting token.
    """

    left: bytes
    right: bytes
    rank: int
    id: int


class Tokenizer(ABC):
    """Converts text to ids and back, as returned by `open_tokenizer`. All tokenizers have these methods.

    Attributes:
        special_tokens: The id of each special token, by its text.

    Example:
        >>> tokenizer = inlayer.load("default").tokenizer
        >>> tokenizer.encode("I love dogs")
        [40, 812, 2228, 82]
        >>> tokenizer.special_tokens
        {'<pad>': 6142, '<|endoftext|>': 6143}
    """

    special_tokens: Mapping[str, int]
    _id_limit: int  # one more than the largest id
    _pad_id: int | None = None  # as named by the tokenizer's files
    _byte_level = False  # true if the bytes of the tokens add up to the text
    _continuation_prefix = b""  # the prefix of tokens that continue a word: `##` in WordPiece

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Encode one text.

        Args:
            text: Valid Unicode.
            add_special_tokens: Add the ids that the model expects around a text, such as begin-of-text.
            parse_special: Encode special tokens in the text as their single id. Pass False for untrusted text, to read
                them as plain text.

        Returns:
            The ids.

        Raises:
            DtypeError: If `text` is not a str.
            TextError: If the text cannot be encoded: a lone surrogate, or a word that is not in the vocabulary.

        Example:
            >>> inlayer.load("default").tokenizer.encode("I love<|endoftext|>")
            [40, 812, 6143]
        """
        return [token.id for token in self._explain(text, add_special_tokens, parse_special, False)[0]]

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        """Encode many texts into one flat array. Each row is identical to the result of `encode`.

        Args:
            texts: The texts; not a single str.
            add_special_tokens: Same as in `encode`.
            parse_special: Same as in `encode`.

        Returns:
            The ids of all texts.

        Raises:
            DtypeError: If `texts` is not a list of str.
            TextError: If a text cannot be encoded; the message names it.

        Example:
            >>> inlayer.load("default").tokenizer.encode_batch(["I love dogs", "Hi"]).counts.tolist()
            [4, 2]
        """
        return self._encode_texts(check_texts(texts), add_special_tokens, parse_special)

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """Decode ids to text.

        Args:
            ids: Ids of one text.
            skip_special_tokens: Leave out special tokens.

        Returns:
            The text. Invalid UTF-8 becomes U+FFFD; use `decode_bytes` to keep it.

        Raises:
            IdRangeError: If an id is not in the vocabulary.

        Example:
            >>> inlayer.load("default").tokenizer.decode([40, 812, 6143], skip_special_tokens=True)
            'I love'
        """
        return b"".join(map(self._bytes_of, self._valid_ids(ids, skip_special_tokens))).decode(errors="replace")

    def decode_bytes(self, ids: Any) -> bytes:
        """Decode ids to their exact bytes.

        Args:
            ids: Ids of one text.

        Returns:
            The bytes, valid UTF-8 or not.

        Raises:
            IdRangeError: If an id is not in the vocabulary.
            InputError: If the tokenizer does not preserve the bytes of a text.

        Example:
            >>> inlayer.load("default").tokenizer.decode_bytes([40, 812])
            b'I love'
        """
        if not self._byte_level:
            raise InputError(f"{self!r} does not preserve the exact bytes of a text; use decode instead")
        return b"".join(map(self._bytes_of, self._valid_ids(ids)))

    def token_bytes(self, token_id: int) -> bytes:
        """Look up the bytes of one token.

        Args:
            token_id: Id of the token.

        Returns:
            The bytes that it stands for in a text; the vocabulary's spelling (`##ing`, `▁the`) if the tokenizer does
            not preserve the bytes of a text.

        Raises:
            IdRangeError: If the id is not in the vocabulary.

        Example:
            >>> inlayer.load("default").tokenizer.token_bytes(812)
            b' love'
        """
        if type(token_id) is int and 0 <= token_id < self._id_limit and self._has_token(token_id):
            return self._bytes_of(token_id)  # ten times as fast as the checks below, which only run to report the error
        return self._bytes_of(self._valid_ids([token_id])[0])

    def get_vocab_size(self) -> int:
        """Count the tokens, added tokens included.

        Returns:
            The number of tokens. Some files leave gaps in their ids (special tokens far above the rest), so ids can
            exceed this number.

        Example:
            >>> inlayer.load("default").tokenizer.get_vocab_size()
            6144
        """
        return self._id_limit

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """Encode one text into tokens with their bytes and spans.

        Args:
            text: Valid Unicode.
            add_special_tokens: Same as in `encode`.
            parse_special: Same as in `encode`.

        Returns:
            One Token per id: `id`, `bytes`, `span` (UTF-8 byte offsets in the text), and `special`.

        Raises:
            InlayerError: Same as `encode`.

        Example:
            >>> inlayer.load("default").tokenizer.tokens("I love dogs")[1]
            Token(id=812, bytes=b' love', span=(1, 6), special=False)
        """
        return self._explain(text, add_special_tokens, parse_special, False)[0]

    def pre_tokens(self, text: str, *, parse_special: bool = True) -> PreTokens:
        """Find the pre-tokens: the spans into which the text is split before it is tokenized.

        Args:
            text: Valid Unicode.
            parse_special: Same as in `encode`.

        Returns:
            Spans in UTF-8 byte offsets, in order, nonempty and without overlap; no token crosses their boundaries. Each
            special or added token in the text has its own span. Text that no token covers (whitespace in BERT) is
            outside all spans, unless a normalizer removed it from the middle of a word. None if the tokenizer does not
            pre-tokenize, or if its boundaries cannot be determined with certainty.

        Raises:
            InlayerError: Same as `encode`.

        Example:
            >>> inlayer.load("default").tokenizer.pre_tokens("I love dogs")
            [(0, 1), (1, 6), (6, 11)]
        """
        return self._explain(text, False, parse_special, True)[1]

    def _analyze(self, text: str) -> Analysis:
        """Return the tokens and the pre-tokens of a text, from one encoding."""
        return self._explain(text, True, True, True)

    def merges(self, ids: Sequence[int]) -> list[Merge] | None:
        """Find the BPE merges, in order, that turn the bytes of one pre-token into exactly these ids.

        Args:
            ids: The ids of one pre-token.

        Returns:
            The merges. Empty if nothing is merged: a single byte, or a pre-token that is looked up as a whole. None if
            the tokenizer is not a byte-level BPE, if merges do not produce these ids (special and added tokens, ids of
            several pre-tokens), or if the pre-token is too long (merges.MAX_PRE_TOKEN_BYTES).

        Raises:
            IdRangeError: If an id is not in the vocabulary.

        Example:
            >>> [merge.left + merge.right for merge in inlayer.load("default").tokenizer.merges([812])]
            [b' l', b've', b' lo', b' love']
        """
        self._valid_ids(ids)
        return None

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens.

        Example:
            >>> sorted(inlayer.load("default").tokenizer.special_ids)
            [6142, 6143]
        """
        return frozenset(self.special_tokens.values())

    @property
    def pad_id(self) -> int | None:
        """The id of the padding token, or None.

        This is the token named by the tokenizer's files, or else the only special token whose name is "pad" (`<pad>`,
        `[PAD]`, `<|pad|>`, but not `<|image_pad|>`).

        Example:
            >>> inlayer.load("default").tokenizer.pad_id
            6142
        """
        names = {token_id: re.sub(r"[\W_]", "", token).lower() for token, token_id in self.special_tokens.items()}
        found = [token_id for token_id, name in names.items() if name == "pad"]
        return found[0] if self._pad_id is None and len(found) == 1 else self._pad_id

    # -- hooks --

    @abstractmethod
    def _encode_texts(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        """Check and encode many texts."""

    def _normalize(self, text: str) -> str:
        """Return a text as the vocabulary spells it: lowercase, for example, or without accents."""
        return text

    @abstractmethod
    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        """Check a text and return its tokens and, if `split`, its pre-tokens."""

    @abstractmethod
    def _bytes_of(self, token_id: int) -> bytes:
        """Return the bytes of a token that exists."""

    def _has_token(self, token_id: int) -> bool:
        """Return whether an id below the limit is a token. Some vocabularies have gaps in their ids."""
        return True

    def _valid_ids(self, ids: Any, skip_special_tokens: bool = False) -> list[int]:
        """Return the ids of one text as a list; raise IdRangeError if one of them is not a token."""
        if isinstance(ids, (str, bytes)):
            raise DtypeError(f"ids is {type_name(ids)}; decode takes ids, encode takes text")
        valid: list[int] = check_id_array(flat_int64(ids, "ids"), self._id_limit).tolist()
        gap = next((position for position, token_id in enumerate(valid) if not self._has_token(token_id)), None)
        if gap is not None:
            raise IdRangeError(f"id {valid[gap]} at position {gap} is not a token: the ids of {self!r} have a gap")
        skipped = self.special_ids if skip_special_tokens else ()
        return [token_id for token_id in valid if token_id not in skipped]


def token_bytes(tokenizer: Tokenizer | None, token_id: int) -> bytes | None:
    """Return the bytes of a token, or None if the id has none."""
    try:
        return None if tokenizer is None else tokenizer.token_bytes(token_id)
    except InlayerError:  # a table row beyond the vocabulary, or in a gap of its ids
        return None


def is_reserved(token: bytes) -> bool:
    """Return whether a token is a placeholder, judged by its name.

    >>> is_reserved(b"<|reserved_special_token_3|>"), is_reserved(b"reserved"), is_reserved(b"<extra_id_0>")
    (True, False, False)
    """
    return _RESERVED.fullmatch(token.decode("utf-8", errors="replace")) is not None


def token_label(tokenizer: Tokenizer | None, token_id: int) -> str:
    """Return a label for one token: its text, or `#id` if it has none."""
    data = token_bytes(tokenizer, token_id)
    return f"#{token_id}" if data is None else text_of_bytes(data)


def text_of_bytes(data: bytes) -> str:
    r"""Return the text of a token's bytes; bytes that do not form whole characters are written as escapes.

    >>> text_of_bytes(b" \xe2\x80")
    ' \\xe2\\x80'
    """
    return data.decode(errors="backslashreplace")


def check_tokenizer(tokenizer: object) -> Tokenizer:
    """Check that a value is a tokenizer, not its name or path, and return it."""
    if not isinstance(tokenizer, Tokenizer):
        advice = "pass a tokenizer, such as inlayer.ByteTokenizer() or inlayer.open_tokenizer(path)"
        raise DtypeError(f"tokenizer is {type_name(tokenizer)}; {advice}")
    return tokenizer


def check_text(text: object, name: str = "text") -> str:
    """Return the text if it is a str of valid Unicode; otherwise raise an error that names the argument."""
    if not isinstance(text, str):
        hint = "; decode it first: data.decode()" if isinstance(text, (bytes, bytearray)) else ""
        raise DtypeError(f"{name} is {type_name(text)}, not a str{hint}")
    if not text.isascii():  # isascii costs nothing because Python stores the answer with the string
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextError(
                f"{name} contains the lone surrogate U+{ord(text[error.start]):04X} at position {error.start}, which "
                "cannot be encoded as UTF-8; was it read with errors='surrogateescape', cut inside a UTF-16 pair, or "
                "given on the command line as invalid UTF-8?"
            ) from None
    return text


def is_list_like(texts: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value can be a list of texts, rather than a text, a dict, a table of columns, or a set."""
    is_other = isinstance(texts, (str, bytes, Mapping, set, frozenset)) or getattr(texts, "ndim", 1) != 1
    return isinstance(texts, Iterable) and not is_other


def check_texts(texts: object) -> list[str]:
    """Return the texts as a list of str. A single str is an error: it would be a batch of characters."""
    if not is_list_like(texts):
        raise DtypeError(f"texts is {type_name(texts)}, not a list of str; use encode for a single text")
    items = texts if isinstance(texts, list) else list(texts)
    if not {*map(type, items)} <= {str}:  # four times as fast as the loop
        for index, text in enumerate(items):
            check_text(text, f"text {index}")
    return items
