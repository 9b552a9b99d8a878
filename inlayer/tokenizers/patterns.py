"""What a rank file does not carry: how its text is split, and its special tokens.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
A tiktoken rank file holds bytes and ranks, nothing else; the rest lives in the code of each model, which is never run.
- a rank file is recognized by the SHA-256 of its ranks (in order, one `base64 rank` line each): that cannot be wrong.
  A number of ranks alone could be, silently
- a folder may also say who it is: tokenizer_config.json's tokenizer_class with its auto_map, config.json's model_type
- anything else needs `pat_str=`, or a pat_str.txt beside the ranks
- not here: reading ranks and encoding (ranks.py)
Checked against recorded fixtures and tokenizer.json twins in tests/tokenizers/test_ranks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["KINDS", "KNOWN_RANKS", "MODEL_TYPES", "TOKENIZER_MODULES", "RankKind"]

RESERVED = 256  # special ids after the ranks, in Kimi's and LLaMA-3's own code


@dataclass(frozen=True, kw_only=True)
class RankKind:
    """A line of models: its split pattern, gigatoken's name for it, its special tokens given the number of ranks."""

    pat_str: str
    scheme: str | None
    specials: Callable[[int], dict[str, int]]


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NO_HAN = r"&&[^\p{Han}]"
WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cased_words(but: str) -> str:
    """Words cut where lower case turns to upper, with a contraction at the end."""
    head = r"[^\r\n\p{L}\p{N}]?"
    return f"{head}[{UPPER}{but}]*[{LOWER}{but}]+{CONTRACTIONS}?|{head}[{UPPER}{but}]+[{LOWER}{but}]*{CONTRACTIONS}?"


KIMI = r"[\p{Han}]+|" + cased_words(NO_HAN) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
O200K = cased_words("") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + WHITE_SPACE
LLAMA_3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
GPT_2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# like LLaMA-3's, but white space at the very end of a text is one piece
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s"
)


def kimi_specials(ranks: int) -> dict[str, int]:
    return {f"<|reserved_token_{token_id}|>": token_id for token_id in range(ranks, ranks + RESERVED)}


def llama3_specials(ranks: int) -> dict[str, int]:
    """Named ones where LLaMA-3 put them, reserved ones numbered around them."""
    named = {
        0: "<|begin_of_text|>",
        1: "<|end_of_text|>",
        6: "<|start_header_id|>",
        7: "<|end_header_id|>",
        9: "<|eot_id|>",
    }
    specials: dict[str, int] = {}
    for place in range(RESERVED):
        reserved = f"<|reserved_special_token_{place - sum(other < place for other in named)}|>"
        specials[named.get(place, reserved)] = ranks + place
    return specials


KINDS = {
    "kimi": RankKind(pat_str=KIMI, scheme="kimi", specials=kimi_specials),
    # no scheme: some of its tokens cannot be built by merges, which gigatoken does not accept in a rank file
    "llama3": RankKind(pat_str=LLAMA_3, scheme=None, specials=llama3_specials),
    "r50k": RankKind(pat_str=GPT_2, scheme="gpt2", specials=lambda _: {"<|endoftext|>": 50256}),
    "p50k": RankKind(pat_str=GPT_2, scheme=None, specials=lambda _: {"<|endoftext|>": 50256}),
    "cl100k": RankKind(
        pat_str=CL100K,
        scheme="gpt4",
        specials=lambda _: {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k": RankKind(
        pat_str=O200K, scheme="o200k", specials=lambda _: {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}

# SHA-256 of the ranks -> kind. The OpenAI sums are those tiktoken itself checks its downloads with.
KNOWN_RANKS = {
    "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103": "kimi",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k",
}

# The module a folder's tokenizer_config.json names in auto_map (it is read, not run), and config.json's model_type.
TOKENIZER_MODULES = {"tokenization_kimi": "kimi", "tokenization_moonshot": "kimi"}
MODEL_TYPES = {"kimi_k2": "kimi", "kimi_k25": "kimi", "kimi_linear": "kimi", "kimi_vl": "kimi"}
