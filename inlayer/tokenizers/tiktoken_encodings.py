"""Known tiktoken encodings: the split patterns and special tokens that a tiktoken file does not contain.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
A tiktoken file contains only token bytes and ranks. The rest is in each model's own code, which is never run.
- a file is identified by the SHA-256 of its ranks, one `base64 rank` line each, in order. The number of ranks alone
  would not be reliable
- a folder may also identify the model: the auto_map in tokenizer_config.json, or model_type in config.json
- any other file needs `pat_str=`, or a pat_str.txt next to it
- elsewhere: reading ranks and encoding (tiktoken.py)
Tested against recorded ids and matching tokenizer.json files in tests/tokenizers/test_tiktoken.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ENCODINGS", "TiktokenEncoding", "find_encoding", "ranks_sha256"]

RESERVED = 256  # special ids after the ranks, in the code of Kimi and LLaMA-3


@dataclass(frozen=True, kw_only=True)
class TiktokenEncoding:
    """What the code of one model line defines."""

    pat_str: str
    scheme: str | None  # gigatoken's name for the pattern
    special_tokens: Callable[[int], dict[str, int]]  # given the number of ranks


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NOT_HAN = r"&&[^\p{Han}]"
WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cased_words(restriction: str) -> str:
    """Return a pattern for words that end where lower case turns to upper case, with a contraction at the end."""
    upper, lower, first = f"[{UPPER}{restriction}]", f"[{LOWER}{restriction}]", r"[^\r\n\p{L}\p{N}]?"
    return f"{first}{upper}*{lower}+{CONTRACTIONS}?|{first}{upper}+{lower}*{CONTRACTIONS}?"


KIMI = r"[\p{Han}]+|" + cased_words(NOT_HAN) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
O200K = cased_words("") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + WHITE_SPACE
LLAMA_3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + WHITE_SPACE
GPT_2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# Like LLaMA-3's, but white space at the very end of a text is one pre-token.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s"
)


def kimi_special_tokens(ranks: int) -> dict[str, int]:
    return {f"<|reserved_token_{token_id}|>": token_id for token_id in range(ranks, ranks + RESERVED)}


def llama3_special_tokens(ranks: int) -> dict[str, int]:
    """Return LLaMA-3's named special tokens, with numbered reserved ones between them."""
    named = {
        0: "<|begin_of_text|>",
        1: "<|end_of_text|>",
        6: "<|start_header_id|>",
        7: "<|end_header_id|>",
        9: "<|eot_id|>",
    }
    free = [index for index in range(RESERVED) if index not in named]
    reserved = {index: f"<|reserved_special_token_{number}|>" for number, index in enumerate(free)}
    return {token: ranks + index for index, token in sorted((named | reserved).items())}


CL100K_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}
ENCODINGS = {
    "kimi": TiktokenEncoding(pat_str=KIMI, scheme="kimi", special_tokens=kimi_special_tokens),
    # no scheme: merges cannot produce some of its tokens, and gigatoken rejects such a file
    "llama3": TiktokenEncoding(pat_str=LLAMA_3, scheme=None, special_tokens=llama3_special_tokens),
    "r50k": TiktokenEncoding(pat_str=GPT_2, scheme="gpt2", special_tokens=lambda _: {"<|endoftext|>": 50256}),
    "p50k": TiktokenEncoding(pat_str=GPT_2, scheme=None, special_tokens=lambda _: {"<|endoftext|>": 50256}),
    "cl100k": TiktokenEncoding(pat_str=CL100K, scheme="gpt4", special_tokens=lambda _: CL100K_SPECIAL_TOKENS),
    "o200k": TiktokenEncoding(
        pat_str=O200K, scheme="o200k", special_tokens=lambda _: {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}

# SHA-256 of the ranks -> encoding. For OpenAI's files these are the sums with which tiktoken checks its downloads.
KNOWN_FILES = {
    "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103": "kimi",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k",
}
TOKENIZER_MODULES = {"tokenization_kimi": "kimi", "tokenization_moonshot": "kimi"}  # in auto_map
MODEL_TYPES = {"kimi_k2": "kimi", "kimi_k25": "kimi", "kimi_linear": "kimi", "kimi_vl": "kimi"}  # in config.json


def ranks_sha256(ranks: Mapping[bytes, int]) -> str:
    """Hash the ranks in order, so that the order of lines in the file does not matter."""
    digest = hashlib.sha256()
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        digest.update(base64.b64encode(token) + b" %d\n" % rank)
    return digest.hexdigest()


def find_encoding(
    ranks: Mapping[bytes, int], tokenizer_config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> TiktokenEncoding | None:
    """Identify the encoding of a tiktoken file by its ranks, or else by the config files next to it."""
    name = KNOWN_FILES.get(ranks_sha256(ranks))
    if name is None:
        auto_map = tokenizer_config.get("auto_map")
        entry = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else None
        classes = entry if isinstance(entry, list) else [entry]
        modules = [str(value).rsplit("--", 1)[-1].split(".")[0] for value in classes if value]
        name = next((TOKENIZER_MODULES[module] for module in modules if module in TOKENIZER_MODULES), None)
    if name is None:
        name = MODEL_TYPES.get(str(model_config.get("model_type")))
    return ENCODINGS[name] if name is not None else None
