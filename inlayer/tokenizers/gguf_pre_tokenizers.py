"""GGUF pre-tokenizers: the names in `tokenizer.ggml.pre`, and the steps each one stands for.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- a GGUF file names its pre-tokenizer but does not describe it. Each entry here is that of the original tokenizer: its
  splits, its normalizer, and whether a pre-token that is in the vocabulary skips the merges
- where llama.cpp deviates from the original (no NFC, runs of digits), the original is followed
- a name is listed only if all three are known for certain: a near miss would give wrong ids without any error
- "default", or no name, means what llama.cpp does in that case, since such a file says no more
Tested against the original tokenizers, or their parts in `tokenizers`, in tests/tokenizers/test_gguf.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inlayer.tokenizers.tiktoken_encodings import CONTRACTIONS, KIMI, LLAMA_3, LOWER, O200K, UPPER, WHITE_SPACE

__all__ = ["BYTE_LEVEL", "PRE_TOKENIZERS", "PreTokenizer", "Step"]

Step = dict[str, Any]
BYTE_LEVEL: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTE_LEVEL_GPT_2 = BYTE_LEVEL | {"use_regex": True}  # with GPT-2's pattern
DIGITS: Step = {"type": "Digits", "individual_digits": True}
DIGIT_RUNS: Step = {"type": "Digits", "individual_digits": False}
PUNCTUATION: Step = {"type": "Punctuation", "behavior": "Contiguous"}
NFC: Step = {"type": "NFC"}


def split(pattern: str) -> Step:
    """Return a step that makes each match a pre-token."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """The pre-tokenizer that a name in `pre` stands for."""

    steps: Sequence[Step]
    normalizer: Step | None = None
    ignore_merges: bool = False  # a pre-token in the vocabulary is one token, whatever its merges
    add_bos: bool = False  # unless the file sets add_bos_token


QWEN_2_PATTERN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
QWEN_35_PATTERN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + WHITE_SPACE
TEKKEN_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + WHITE_SPACE
)
GPT_2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM_PATTERN = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK_CJK_PATTERN = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_LETTERS = (
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ"
    r"-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰"
    r"-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
# With literal line breaks, as in the original: gigatoken recognizes a pattern by its exact text.
DEEPSEEK_V3_PATTERN = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^LINE\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[LINE]*|"""
    r"\s*[LINE]+|\s+(?!\S)|\s+"
).replace("LINE", "\r\n")


def byte_level(*steps: Step, **settings: Any) -> PreTokenizer:
    return PreTokenizer(steps=[*steps, BYTE_LEVEL], **settings)


KNOWN = {
    " default": byte_level(
        split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT_2_PATTERN), split(r"\p{N}+"), split("[0-9][0-9][0-9]")
    ),
    "bloom poro-chat": byte_level(split(BLOOM_PATTERN)),
    "chatglm-bpe glm4": byte_level(split(LLAMA_3), ignore_merges=True),
    "command-r": PreTokenizer(steps=[DIGITS, BYTE_LEVEL_GPT_2], normalizer=NFC),
    "dbrx smaug-bpe": byte_level(split(LLAMA_3)),
    "deepseek-coder": byte_level(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_CJK_PATTERN), DIGITS
    ),
    "deepseek-llm": byte_level(
        split("[\r\n]"),
        split(rf"\s?[{DEEPSEEK_LETTERS}]+"),
        split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split(r"\s+$"),
        split(DEEPSEEK_CJK_PATTERN),
        DIGITS,
    ),
    "deepseek-r1-qwen qwen2": byte_level(split(QWEN_2_PATTERN), normalizer=NFC),
    "deepseek-v3": byte_level(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_V3_PATTERN)),
    "falcon": PreTokenizer(steps=[PUNCTUATION, BYTE_LEVEL_GPT_2, DIGIT_RUNS, split("[0-9][0-9][0-9]")]),
    "gpt-2 phi-2 roberta-bpe": PreTokenizer(steps=[BYTE_LEVEL_GPT_2]),
    "gpt-4o": byte_level(split(O200K)),
    "kimi-k2": byte_level(split(KIMI), ignore_merges=True),
    "llama-bpe llama-v3 llama3": byte_level(split(LLAMA_3), ignore_merges=True, add_bos=True),
    "mpt olmo": PreTokenizer(steps=[BYTE_LEVEL_GPT_2], normalizer=NFC),
    "qwen35": byte_level(split(QWEN_35_PATTERN), normalizer=NFC),
    "refact smollm starcoder": PreTokenizer(steps=[DIGITS, BYTE_LEVEL_GPT_2]),
    "tekken": byte_level(split(TEKKEN_PATTERN), ignore_merges=True, add_bos=True),
}
PRE_TOKENIZERS = {name: known for names, known in KNOWN.items() for name in names.split(" ")}
