"""How a byte-level GGUF splits text: the names in `tokenizer.ggml.pre`, and what each stands for.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- a GGUF names the rule and does not spell it. A rule here is the original tokenizer's: its split, its normalizer, and
  whether a piece that is a token skips the merges
- where llama.cpp cuts text its own way (no NFC, runs of digits), the original's way is taken
- a name whose three parts are not all known is left out: a near miss would give wrong ids without a word
- "default", or no name at all, is what llama.cpp makes of it: such a file does not say more
Checked against the original tokenizers, or put together by hand, in tests/tokenizers/test_gguf.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inlayer.tokenizers.patterns import CONTRACTIONS, KIMI, LLAMA_3, LOWER, O200K, UPPER, WHITE_SPACE

__all__ = ["BYTES", "PRE_TOKENIZERS", "PreTokenizer", "Step"]

Step = dict[str, Any]
BYTES: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT_2_BYTES = BYTES | {"use_regex": True}  # with GPT-2's own split
DIGITS: Step = {"type": "Digits", "individual_digits": True}
DIGIT_RUNS: Step = {"type": "Digits", "individual_digits": False}
NFC: Step = {"type": "NFC"}


def split(pattern: str) -> Step:
    """Cut so that each match is a piece of its own."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """What a name in `pre` stands for."""

    steps: Sequence[Step]
    normalizer: Step | None = None
    ignore_merges: bool = False  # a piece that is a token is taken whole, however its merges would go
    adds_begin: bool = False  # where the file itself does not say


LETTERS_AND_NUMBERS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
WITH_MARKS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + WHITE_SPACE
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + WHITE_SPACE
)
GPT_2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_LETTERS = (
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ"
    r"-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰"
    r"-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
# The line breaks stand there themselves, as in the original: gigatoken knows a pattern by its letters.
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^LINE\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[LINE]*|"""
    r"\s*[LINE]+|\s+(?!\S)|\s+"
).replace("LINE", "\r\n")

GPT_2 = PreTokenizer(steps=[GPT_2_BYTES])
GPT_NEOX = PreTokenizer(steps=[GPT_2_BYTES], normalizer=NFC)
STARCODER = PreTokenizer(steps=[DIGITS, GPT_2_BYTES])
LLAMA_3_MERGED = PreTokenizer(steps=[split(LLAMA_3), BYTES])
LLAMA_3_WHOLE = PreTokenizer(steps=[split(LLAMA_3), BYTES], ignore_merges=True)
LLAMA_3_BEGUN = PreTokenizer(steps=[split(LLAMA_3), BYTES], ignore_merges=True, adds_begin=True)
QWEN_2 = PreTokenizer(steps=[split(LETTERS_AND_NUMBERS), BYTES], normalizer=NFC)
BLOOMING = PreTokenizer(steps=[split(BLOOM), BYTES])
DEEPSEEK_LLM = PreTokenizer(
    steps=[
        split("[\r\n]"),
        split(rf"\s?[{DEEPSEEK_LETTERS}]+"),
        split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split(r"\s+$"),
        split(DEEPSEEK_CJK),
        DIGITS,
        BYTES,
    ]
)
DEFAULT = PreTokenizer(
    steps=[
        split(r"[\p{P}\$\+<=>\^~\|]+"),
        split(GPT_2_SPLIT),
        split(r"\p{N}+"),
        split("[0-9][0-9][0-9]"),
        BYTES,
    ]
)

PRE_TOKENIZERS = {
    "": DEFAULT,
    "bloom": BLOOMING,
    "chatglm-bpe": LLAMA_3_WHOLE,
    "command-r": PreTokenizer(steps=[DIGITS, GPT_2_BYTES], normalizer=NFC),
    "dbrx": LLAMA_3_MERGED,
    "deepseek-coder": PreTokenizer(
        steps=[split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_CJK), DIGITS, BYTES]
    ),
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-r1-qwen": QWEN_2,
    "deepseek-v3": PreTokenizer(
        steps=[split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_V3), BYTES]
    ),
    "default": DEFAULT,
    "falcon": PreTokenizer(
        steps=[{"type": "Punctuation", "behavior": "Contiguous"}, GPT_2_BYTES, DIGIT_RUNS, split("[0-9][0-9][0-9]")]
    ),
    "glm4": LLAMA_3_WHOLE,
    "gpt-2": GPT_2,
    "gpt-4o": PreTokenizer(steps=[split(O200K), BYTES]),
    "kimi-k2": PreTokenizer(steps=[split(KIMI), BYTES], ignore_merges=True),
    "llama-bpe": LLAMA_3_BEGUN,
    "llama-v3": LLAMA_3_BEGUN,
    "llama3": LLAMA_3_BEGUN,
    "mpt": GPT_NEOX,
    "olmo": GPT_NEOX,
    "phi-2": GPT_2,
    "poro-chat": BLOOMING,
    "qwen2": QWEN_2,
    "qwen35": PreTokenizer(steps=[split(WITH_MARKS), BYTES], normalizer=NFC),
    "refact": STARCODER,
    "roberta-bpe": GPT_2,
    "smaug-bpe": LLAMA_3_MERGED,
    "smollm": STARCODER,
    "starcoder": STARCODER,
    "tekken": PreTokenizer(steps=[split(CASED), BYTES], ignore_merges=True, adds_begin=True),
}
