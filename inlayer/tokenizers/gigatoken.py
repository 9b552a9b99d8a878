"""The fast path: when gigatoken may encode instead of `tokenizers` or tiktoken.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
gigatoken is 10 to 50 times faster and almost always gives the same ids. Three checks make that "always":
1. the tokenizer uses only features that differential fuzzing has shown to be equal. gigatoken rejects many others, but
   accepts some that it encodes differently (no pre-tokenizer, single_word, dropout, ...)
2. the text has no character on which Unicode versions differ (unicode_versions.py)
3. the installed versions agree on a short self-check when the fast path opens
Without gigatoken everything works, only slower.
- elsewhere: the exact libraries (huggingface.py, tiktoken.py)
Tested by differential fuzzing with modified tokenizers in tests/tokenizers/test_gigatoken.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from inlayer.errors import TokenizerError
from inlayer.ragged import Ragged
from inlayer.tokenizers.tokenizer_json import steps_of
from inlayer.tokenizers.untrusted_files import library_errors

__all__ = ["EncodeBatch", "encode_with_both", "is_supported", "open_fast_path"]

EncodeBatch = Callable[[list[str]], Ragged]

SPLIT_BEHAVIORS = ({"behavior": "Isolated", "invert": False}, {"behavior": "Removed", "invert": True})
REPLACE_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_SPACE = {"type": "Prepend", "prepend": "▁"}
SPLIT_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}

UNSUPPORTED = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")  # fields of a model

# Every kind of boundary a pre-tokenizer can find, next to every other kind.
SELF_CHECK = (
    "", " ", "  ", "\n", "a", " a", "a  b", "a \n b", "x\n\n\ny", " \t\r\n ", "Hello, world! It's  I'LL don'ſ",
    "HTTPServer aB Ab AB ab", "1 12 123 1234567 x1y22", "٣٤५ ½ ² Ⅷ", "…?!\n\n--==##/\\ ",
    "你好，世界123abc。漢字かなカナ",
    "한국어 العربية עברית हिन्दी ไทย", "e\u0301 A\u030a\u0323 \u1100\u1161 ﬁ Å", "🙂👩‍👩‍👧❤️🇫🇷\u200d\ufe0f",
    "\x00\x01\x7f\xa0\u3000\u2028\x85\u200b\ufeff",
    "\u0301\n \nx'sK'S", "a" * 300, " " * 300 + "b", "\n" * 70 + " " * 3, "▁▁a ▁b", "ĠaĊ", "<|x|> <s></s>[CLS]",
)  # fmt: skip


def encode_fast(encoder: Any, texts: list[str]) -> Ragged:
    """Encode texts of stable characters into two arrays made in Rust, with no object per text.

    Special tokens in the text are parsed, and none are added around it.
    """
    layout = encoder.encode_batch(texts).layout
    offsets = np.asarray(layout.offsets.data)
    return Ragged(np.asarray(layout.content.data)[: offsets[-1]], offsets)


def encode_with_both(texts: list[str], fast: EncodeBatch, exact: EncodeBatch, excluded: Sequence[int]) -> Ragged:
    """Encode the texts with these indices exactly and all others on the fast path."""
    if not excluded:
        return fast(texts)
    slow = np.array(excluded, np.int64)
    quick = np.setdiff1d(np.arange(len(texts)), slow)
    parts = [(quick, fast([texts[index] for index in quick])), (slow, exact([texts[index] for index in slow]))]
    return Ragged.merge(len(texts), parts)


def open_fast_path(make: Callable[[Any], Any], exact: EncodeBatch, added_tokens: list[str]) -> EncodeBatch | None:
    """Open a tokenizer with `make(gigatoken)`; None if it differs from the exact one on the self-check texts."""
    try:
        import gigatoken
    except ImportError:  # optional: not every platform has a wheel
        return None
    texts = [*SELF_CHECK]
    for token in [*added_tokens[:24], *added_tokens[-24:]]:
        texts += [token, f" {token} ", f"a{token}b", f"\n{token}\u0301{token}"]
    try:
        with library_errors("gigatoken"):
            fast = partial(encode_fast, make(gigatoken))
            ours = fast(texts)
    except TokenizerError:  # this kind of tokenizer is not supported
        return None
    return fast if ours == exact(texts) else None


def is_supported(config: dict[str, Any], id_of: Callable[[str], int | None]) -> bool:
    """Does a tokenizer.json only use features that are proven to be equal?

    `id_of` returns the id that `tokenizers` gives an added token: it renumbers those that would leave a gap.
    """
    model = config["model"]
    if model.get("type", "BPE") != "BPE" or any(map(model.get, UNSUPPORTED)):
        return False
    normalizers, pre_tokenizers = steps_of(config, "normalizer"), steps_of(config, "pre_tokenizer")
    if model.get("byte_fallback"):
        known = normalizers in ([PREPEND_SPACE, REPLACE_SPACES], [REPLACE_SPACES])
        known = known and pre_tokenizers in ([], [SPLIT_AT_SPACES]) and not model.get("ignore_merges")
    else:
        known = [step.get("type") for step in normalizers] in ([], ["NFC"]) and keeps_all_bytes(pre_tokenizers)
    tokens = config.get("added_tokens") or []
    if not known or any(token.get("single_word") or (token.get("normalized") and normalizers) for token in tokens):
        return False
    if any(not token.get("content") or token.get("id") != id_of(token["content"]) for token in tokens):
        return False
    # `tokenizers` finds the raw ones first, then the normalized ones in the rest: where they overlap, the leftmost one
    # does not always win
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    return not can_overlap(normalized, [token["content"] for token in tokens if not token.get("normalized")])


def keeps_all_bytes(pre_tokenizers: list[dict[str, Any]]) -> bool:
    """Is it ByteLevel with its own pattern, or ByteLevel after splits that keep all of the text?"""
    if not pre_tokenizers or pre_tokenizers[-1].get("type") != "ByteLevel":
        return False
    *splits, byte_level = pre_tokenizers
    if not splits:
        return byte_level.get("use_regex", True) is True
    return (
        byte_level.get("use_regex") is False
        and byte_level.get("add_prefix_space") is False
        and all(
            step.get("type") == "Split"
            and "Regex" in step.get("pattern", {})
            and {"behavior": step.get("behavior"), "invert": step.get("invert", False)} in SPLIT_BEHAVIORS
            for step in splits
        )
    )


def can_overlap(some: list[str], others: list[str]) -> bool:
    """Can an occurrence of a token in `some` share characters with one in `others`?"""
    for left, right in ((some, others), (others, some)):
        joined = "\0".join(right)
        if right and any(token in joined for token in left):
            return True
        prefixes = {token[:end] for token in left for end in range(1, len(token))}
        if any(token[start:] in prefixes for token in right for start in range(1, len(token))):
            return True
    return False
