"""The texts of a table's rows, and filters on rows: whole words, a script, special tokens.

tokenizer -> [texts, masks] -> which rows a search may return
- a row's text is the text of its token; a row without a token has none
- a whole word is an all-letter token that the tokenizer produces for its text after another word. This definition
  needs no knowledge of how a tokenizer marks spaces (`Ġking`, `▁king`, `king` and `##ing`)
Tested on real tokenizers in tests/geometry/test_neighbors.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import regex

from inlayer.errors import InputError
from inlayer.files import quote
from inlayer.shapes import Mask
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import is_reserved, text_of_bytes, token_bytes, token_label

WORD = regex.compile(r"\p{L}[\p{L}\p{M}'’-]*")
CONTEXT = "the"  # the word before a candidate
BYTES = regex.compile(r"\\x[89a-f][0-9a-f]")  # escapes for bytes that are not whole characters
SPACES = str.maketrans({"▁": " ", "Ġ": " "})
INFLECTIONS = ("s", "ed", "ing", "ly")
MIN_WORD = 4  # letters; shorter words are neither truncated nor labeled first
ENDINGS = frozenset(["s", "es", "d", "ed", "ing", "er", "ers", "ly"])


def without_spaces(text: str | None) -> str:
    """Return the text of a token without spaces around it, however its tokenizer marks them."""
    return (text or "").translate(SPACES).strip()


class Vocabulary:
    """The texts of a table's rows. Without a tokenizer, rows have no texts, and no filter can be used."""

    def __init__(self, tokenizer: Tokenizer | None, rows: int) -> None:
        self.tokenizer, self.rows = tokenizer, rows

    @cached_property
    def texts(self) -> list[str | None]:
        """The text of every row; None without a token. Bytes that do not form whole characters are escaped."""
        tokens = (token_bytes(self.tokenizer, token_id) for token_id in range(self.rows))
        return [None if token is None else text_of_bytes(token) for token in tokens]

    def text(self, token_id: int) -> str:
        """Return the text of one row, or "#id" if it has no token."""
        return token_label(self.tokenizer, token_id)

    @cached_property
    def special(self) -> Mask:
        """Rows of special tokens and placeholders, and rows without a token."""
        known = self._tokenizer().special_ids
        texts = enumerate(self.texts)
        return np.array([text is None or i in known or is_reserved(text.encode()) for i, text in texts], np.bool_)

    @cached_property
    def words(self) -> Mask:
        """Rows of whole words."""
        texts = enumerate(map(without_spaces, self.texts))
        candidates = {token_id: f"{CONTEXT} {text}" for token_id, text in texts if WORD.fullmatch(text)}
        before = self._tokenizer().encode(CONTEXT, add_special_tokens=False)
        encoded = self._tokenizer().encode_batch(candidates.values(), add_special_tokens=False, parse_special=False)
        mask = np.zeros(self.rows, np.bool_)
        for token_id, ids in zip(candidates, encoded, strict=True):
            mask[token_id] = ids.tolist() == [*before, token_id]
        return mask & ~self.special

    @cached_property
    def inflected(self) -> Mask:
        """Words that are certainly complete: those that are another word plus an ending, and those that take an "s"."""
        words = self._ids_by_word
        mask = np.zeros(self.rows, np.bool_)
        for word, token_id in words.items():
            for ending in INFLECTIONS:
                stem = word.removesuffix(ending)
                if MIN_WORD <= len(stem) < len(word) and stem in words:
                    mask[token_id] = True  # "includ" is not complete, although "included" is
                    mask[words[stem]] |= ending == "s" and stem[-1] != "s"
        return mask

    @cached_property
    def truncated(self) -> Mask:
        """Whole words that look truncated, such as "econom": another word extends them by more than a suffix."""
        words = self._ids_by_word
        mask = np.zeros(self.rows, np.bool_)
        for word in words:
            for end in range(MIN_WORD, len(word)):
                is_compound = len(word) - end > 1 and word[end:] in words  # with + in
                if word[:end] in words and word[end:] not in ENDINGS and not is_compound:
                    mask[words[word[:end]]] = True
        return mask & ~self.inflected

    @cached_property
    def _ids_by_word(self) -> dict[str, int]:
        return {without_spaces(self.texts[token_id]): token_id for token_id in np.flatnonzero(self.words).tolist()}

    def allowed(self, *, words_only: bool = False, script: str | None = None, include_special: bool = False) -> Mask:
        """Flag the rows that a search may return: only whole words, only a script, also special tokens."""
        mask = np.ones(self.rows, np.bool_)
        if self.tokenizer is not None and not include_special:
            mask &= ~self.special
        if words_only:
            mask &= self.words
        if script is not None:
            mask &= self.script(script)
        return mask

    def script(self, name: str) -> Mask:
        """Flag the rows whose letters all belong to a Unicode script, such as Latin, Cyrillic, or Han."""
        try:
            pattern = regex.compile(rf"[^\p{{L}}]*\p{{Script={name}}}([^\p{{L}}]|\p{{Script={name}}})*")
        except regex.error:
            raise InputError(f"script {quote(name)} is unknown; use a Unicode name such as Latin or Han") from None
        return np.array([text is not None and pattern.fullmatch(BYTES.sub("", text)) for text in self.texts], np.bool_)

    def variants(self, words: Iterable[str]) -> list[int]:
        """Return the ids of all tokens that are one of these words, ignoring case and whitespace."""
        wanted = {without_spaces(word).casefold() for word in words} - {""}
        texts = [] if self.tokenizer is None else self.texts
        return [i for i, text in enumerate(texts) if without_spaces(text).casefold() in wanted]

    def ids_of(self, text: str) -> list[int]:
        """Return the ids of a word or text, as it occurs in running text."""
        return self.as_in_text(text)[1]

    def as_in_text(self, text: str) -> tuple[str, list[int]]:
        """Return text as it occurs in running text (after a space unless that takes more tokens), and its ids."""
        tokenizer = self._tokenizer()
        if not text.strip():
            raise InputError("the query is empty; pass a word, a text, or a token id")
        forms = [(form, tokenizer.encode(form, add_special_tokens=False)) for form in (f" {text.strip()}", text)]
        return min((form for form in forms if form[1]), key=lambda form: len(form[1]), default=forms[1])

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "this model has no tokenizer, so words cannot be looked up; put one next to the weights, or look up "
                "token ids or vectors"
            )
        return self.tokenizer
