"""The gate to gigatoken: which tokenizers and which texts may take the fast path, and why.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
Exactness is the rule: ids equal those of `tokenizers` (or `tiktoken`) on every input. gigatoken is 10 to 50 times
faster and equal almost always; three locks keep the rest out.
1. the tokenizer: an allow-list of features proven equal by differential fuzzing. gigatoken refuses many others by
   itself, but accepts some and cuts them differently (no pre-tokenizer, single_word, dropout, ...)
2. the text: no character on which Unicode versions differ (charset.py)
3. the installed versions: a short self-check against the exact library when the gate opens
Without gigatoken the gate stays shut and everything works, only slower.
- not here: the exact paths (huggingface.py, ranks.py)
Checked by differential fuzzing, with mutated tokenizers, in tests/tokenizers/test_fast.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlayer.errors import TokenizerError
from inlayer.ragged import Ragged
from inlayer.tokenizers.charset import unsettled_texts
from inlayer.tokenizers.guard import library_errors
from inlayer.tokenizers.parts import flatten

__all__ = ["LONG_TEXT", "ExactBatch", "FastPath", "encode_both", "open_json", "open_ranks", "reason_for_exact"]

ExactBatch = Callable[[list[str]], Ragged]

LONG_TEXT = 4096  # characters from which one text alone is worth opening the fast path

SPLIT_BEHAVIORS = ({"behavior": "Isolated", "invert": False}, {"behavior": "Removed", "invert": True})
SPACE_TO_BLOCK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_BLOCK = {"type": "Prepend", "prepend": "▁"}
SPLIT_AT_SPACE = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}

# Every kind of cut a pre-tokenizer can make, next to every other kind.
SELF_CHECK = (
    "", " ", "  ", "\n", "a", " a", "a  b", "a \n b", "x\n\n\ny", " \t\r\n ", "Hello, world! It's  I'LL don'ſ",
    "HTTPServer aB Ab AB ab", "1 12 123 1234567 x1y22", "٣٤५ ½ ² Ⅷ", "…?!\n\n--==##/\\ ",
    "你好，世界123abc。漢字かなカナ",
    "한국어 العربية עברית हिन्दी ไทย", "e\u0301 A\u030a\u0323 \u1100\u1161 ﬁ Å", "🙂👩‍👩‍👧❤️🇫🇷\u200d\ufe0f",
    "\x00\x01\x7f\xa0\u3000\u2028\x85\u200b\ufeff",
    "\u0301\n \nx'sK'S", "a" * 300, " " * 300 + "b", "\n" * 70 + " " * 3, "▁▁a ▁b", "ĠaĊ", "<|x|> <s></s>[CLS]",
)  # fmt: skip


class FastPath:
    """gigatoken's encoder for one tokenizer. It finds special tokens in the text and adds none around it."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def encode_batch(self, texts: list[str]) -> Ragged:
        """Ids of texts that passed the lock on characters: two arrays made in Rust, no object per text."""
        layout = self._backend.encode_batch(texts).layout
        offsets = np.asarray(layout.offsets.data)
        return Ragged(np.asarray(layout.content.data)[: offsets[-1]], offsets)


def encode_both(texts: list[str], fast: FastPath, exact: ExactBatch, keep_out: Callable[[str], bool] | None) -> Ragged:
    """Each text through the path that is right for it. `keep_out` names further texts the fast one may not see."""
    odd = unsettled_texts(texts)
    if keep_out is not None:
        odd = np.union1d(odd, [index for index, text in enumerate(texts) if keep_out(text)]).astype(np.int64)
    if odd.size == 0:
        return fast.encode_batch(texts)
    plain = np.setdiff1d(np.arange(len(texts)), odd)
    parts = [
        (plain, fast.encode_batch([texts[index] for index in plain])),
        (odd, exact([texts[index] for index in odd])),
    ]
    return Ragged.merge(len(texts), parts)


def open_json(
    data: str, config: dict[str, Any], real_id: Callable[[str], int | None], exact: ExactBatch
) -> FastPath | None:
    """The fast path of a tokenizer.json, or None where only the exact one is proven."""
    if reason_for_exact(config, real_id) is not None:
        return None
    added = [token["content"] for token in config.get("added_tokens") or []]
    return open_checked(lambda gigatoken: gigatoken.Tokenizer.from_json(data), exact, added)


def open_ranks(path: str, scheme: str, special_tokens: dict[str, int], exact: ExactBatch) -> FastPath | None:
    """The fast path of a rank file whose split pattern gigatoken knows by the name `scheme`."""
    return open_checked(
        lambda gigatoken: gigatoken.Tokenizer.from_tiktoken(path, scheme, special_tokens), exact, list(special_tokens)
    )


def open_checked(make: Callable[[Any], Any], exact: ExactBatch, added: Sequence[str]) -> FastPath | None:
    """Open gigatoken's tokenizer and compare it with the exact one on the self-check texts."""
    try:
        import gigatoken  # optional
    except ImportError:  # an accelerator: no wheel for this platform
        return None
    texts = [*SELF_CHECK]
    for token in [*added[:24], *added[-24:]]:
        texts += [token, f" {token} ", f"a{token}b", f"\n{token}\u0301{token}"]
    try:
        with library_errors("gigatoken"):
            fast = FastPath(make(gigatoken))
            ours = fast.encode_batch(texts)
    except TokenizerError:  # its way to say: this kind is not supported
        return None
    return fast if ours == exact(texts) else None


def reason_for_exact(  # a list of locks reads best one by one
    config: dict[str, Any], real_id: Callable[[str], int | None]
) -> str | None:
    """Why a tokenizer.json is outside what was proven equal; None when it is inside.

    `real_id` is the id `tokenizers` gives an added token: it renumbers those that leave holes.
    """
    model = config["model"]
    if model.get("type", "BPE") != "BPE":
        return f"model {model.get('type')}"
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            return f"model.{field}"
    normalizer = flatten(config.get("normalizer"), "normalizers")
    pre_tokenizer = flatten(config.get("pre_tokenizer"), "pretokenizers")
    if model.get("byte_fallback"):
        if model.get("ignore_merges"):
            return "ignore_merges with byte_fallback"
        if normalizer not in ([PREPEND_BLOCK, SPACE_TO_BLOCK], [SPACE_TO_BLOCK]) or pre_tokenizer not in (
            [],
            [SPLIT_AT_SPACE],
        ):
            return "normalizer and pre_tokenizer of a byte_fallback model"
    else:
        if [step.get("type") for step in normalizer] not in ([], ["NFC"]):
            return "normalizer"
        if not is_byte_level(pre_tokenizer):
            return "pre_tokenizer"
    return reason_in_added_tokens(config.get("added_tokens") or [], bool(normalizer), real_id)


def is_byte_level(steps: list[dict[str, Any]]) -> bool:
    """Byte-level with its own pattern, or after splits that keep all the text."""
    if not steps or steps[-1].get("type") != "ByteLevel":
        return False
    *splits, last = steps
    if not splits:
        return last.get("use_regex", True) is True
    return (
        last.get("use_regex") is False
        and last.get("add_prefix_space") is False
        and all(
            step.get("type") == "Split"
            and "Regex" in step.get("pattern", {})
            and {"behavior": step.get("behavior"), "invert": step.get("invert", False)} in SPLIT_BEHAVIORS
            for step in splits
        )
    )


def reason_in_added_tokens(
    tokens: list[dict[str, Any]], normalizes: bool, real_id: Callable[[str], int | None]
) -> str | None:
    for token in tokens:
        if token.get("single_word"):
            return "a single_word added token"
        if token.get("normalized") and normalizes:
            return "a normalized added token under a normalizer"
        if not token.get("content") or token.get("id") != real_id(token["content"]):
            return "an added token whose id tokenizers changes"
    # `tokenizers` looks for the raw ones first, then for the normalized ones in what is left: where the two kinds
    # overlap, the winner is not the leftmost
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    raw = [token["content"] for token in tokens if not token.get("normalized")]
    return "added tokens that overlap" if overlap(normalized, raw) else None


def overlap(some: list[str], others: list[str]) -> bool:
    """Can an occurrence of one kind share characters with an occurrence of the other?"""
    if not some or not others:
        return False
    for left, right in ((some, others), (others, some)):
        joined = "\0".join(right)
        if any(token in joined for token in left):
            return True
        beginnings = {token[:end] for token in left for end in range(1, len(token))}
        if any(token[start:] in beginnings for token in right for start in range(1, len(token))):
            return True
    return False
