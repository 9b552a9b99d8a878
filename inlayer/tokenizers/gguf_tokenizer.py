"""GGUF tokenizers: convert the tokenizer fields of a GGUF file to a tokenizer.json or a sentencepiece model.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- "gpt2" (byte-level BPE) and "bert" (WordPiece) become a tokenizer.json, "llama" (BPE by scores) and "t5" (Unigram) a
  sentencepiece model. The result is opened and validated like any other file of that format
- a file contains only the name of its pre-tokenizer. Where llama.cpp deviates from the original (no NFC, runs of
  digits), we follow the original. An unknown name is an error, because a similar pre-tokenizer would give wrong ids
- tokens such as `[PAD151665]` pad the vocabulary to the size of the table. They are omitted at the end of the
  vocabulary
Tested against the original tokenizers in tests/tokenizers/test_gguf_tokenizer.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from inlayer.errors import TokenizerError
from inlayer.files import quote
from inlayer.shapes import Array
from inlayer.tokenizers.base import Tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.tiktoken import CONTRACTIONS, KIMI, LLAMA_3, LOWER, O200K, UPPER, WHITE_SPACE

Step = dict[str, Any]  # a step in a tokenizer.json

TOKENIZER_ARRAYS = ("tokens", "token_type", "scores", "merges", "precompiled_charsmap")

WORD_PIECE = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
BERT = {"clean_text": True, "handle_chinese_chars": True}

# Token types, numbered as in sentencepiece.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def open_gguf_tokenizer(fields: Mapping[str, Any], *, source: str) -> Tokenizer:
    """Open the tokenizer described by the `tokenizer.ggml.*` fields of a file, given without that prefix.

    An array is a list of str (tokens, merges) or a numpy array (token_type, scores, precompiled_charsmap).
    """
    converters: dict[str, Callable[[GgufFields], Tokenizer]] = {
        "gpt2": byte_level_bpe,
        "bert": word_piece,
        "llama": partial(open_as_sentencepiece, unigram=False),
        "t5": partial(open_as_sentencepiece, unigram=True),
    }
    model = fields.get("model")
    if not isinstance(model, str) or model not in converters:
        raise TokenizerError(
            f"{source} has a tokenizer of unknown type {quote(model)}; supported: {', '.join(converters)}"
        )
    return converters[model](GgufFields(fields, source))


class GgufFields:
    """The tokenizer fields of a GGUF file, each validated when it is read."""

    def __init__(self, fields: Mapping[str, Any], source: str) -> None:
        self._fields, self.source = fields, source
        self.pre = pre if isinstance(pre := fields.get("pre"), str) else ""
        self.tokens = [*self.strings("tokens")]
        if not self.tokens or len(set(self.tokens)) < len(self.tokens):
            raise self.error("has no tokens, or the same token twice")
        types = self._numbers("token_type", "iu")
        kinds = [NORMAL] * len(self.tokens) if types is None else types.tolist()
        self.types: list[int] = [kind if NORMAL <= kind <= BYTE else NORMAL for kind in kinds]
        while self.types[1:] and self.types[-1] == UNUSED and self.tokens[-1] == f"[PAD{len(self.tokens) - 1}]":
            del self.tokens[-1], self.types[-1]
        if types is None:  # an old file without types: at least the named tokens are not text
            for name in ("bos", "eos", "unknown", "padding"):
                if (token_id := self.id(name)) is not None:
                    self.types[token_id] = UNKNOWN if name == "unknown" else CONTROL

    def error(self, problem: str) -> TokenizerError:
        return TokenizerError(f"the tokenizer of {self.source} {problem}")

    def strings(self, name: str) -> list[str]:
        value = self._fields.get(name, [])
        if not isinstance(value, list):
            raise self.error(f"has {name} that are not a list of strings")
        return value

    def scores(self) -> list[float]:
        scores = self._numbers("scores", "f")
        if scores is None or scores.dtype.itemsize != 4 or not np.isfinite(scores).all():
            raise self.error("has no scores, or one that is not a finite float32")
        return [float(score) for score in scores]

    def charsmap(self) -> bytes:
        value = self._fields.get("precompiled_charsmap", np.empty(0, np.uint8))
        if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1:
            raise self.error("has a precompiled_charsmap that is not an array of bytes")
        return value.tobytes()

    def _numbers(self, name: str, kinds: str) -> Array | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or len(value) < len(self.tokens) or value.dtype.kind not in kinds:
            raise self.error(f"has a {name} array without one number per token")
        return value[: len(self.tokens)]

    def id(self, name: str, default: int | None = None) -> int | None:
        """Return the id of a special token; an id outside the vocabulary is treated as missing."""
        for value in (self._fields.get(f"{name}_token_id"), default):
            if type(value) is int and 0 <= value < len(self.tokens):
                return value
        return None

    def flag(self, name: str, default: bool) -> bool:
        value = self._fields.get(name)
        return value if isinstance(value, bool) else default

    def token(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]


# -- tokenizer.json --


def byte_level_bpe(fields: GgufFields) -> Tokenizer:
    if fields.pre not in PRE_TOKENIZERS:
        known = ", ".join(filter(None, PRE_TOKENIZERS))
        raise fields.error(f"uses the unknown pre-tokenizer {quote(fields.pre)}; supported: {known}")
    pre_tokenizer = PRE_TOKENIZERS[fields.pre]
    pairs = [merge.split(" ") for merge in fields.strings("merges")]
    if not pairs:
        raise fields.error("has no merges")
    # Special tokens after the last ordinary token are not part of the model, as in the original files.
    ordinary = [index for index, kind in enumerate(fields.types) if kind not in (CONTROL, USER_DEFINED)]
    vocab = {token: token_id for token_id, token in enumerate(fields.tokens[: max(ordinary, default=-1) + 1])}
    return open_as_json(
        fields,
        model={"type": "BPE", "ignore_merges": pre_tokenizer.ignore_merges, "vocab": vocab, "merges": pairs},
        normalizer=pre_tokenizer.normalizer,
        pre_tokenizer={"type": "Sequence", "pretokenizers": pre_tokenizer.steps},
        decoder=BYTE_LEVEL,
        bos=fields.id("bos") if fields.flag("add_bos_token", pre_tokenizer.add_bos) else None,
        eos=fields.id("eos") if fields.flag("add_eos_token", False) else None,
    )


def word_piece(fields: GgufFields) -> Tokenizer:
    words = [restore_word(token) for token in fields.tokens]
    vocab = {word: token_id for token_id, word in enumerate(words)}
    if len(vocab) < len(words):
        raise fields.error("has the same WordPiece token twice")
    unknown = fields.id("unknown", 100)
    if unknown is None:
        raise fields.error("has no unknown token, which WordPiece needs")
    # Only newer files say whether the vocabulary is lowercase; in older ones, it is if no token has uppercase letters.
    plain = (word for word, kind in zip(words, fields.types, strict=True) if kind == NORMAL and word[:1] != "[")
    lowercase = fields.flag("normalizer.lowercase", all(word == word.lower() for word in plain))
    strip_accents = fields.flag("normalizer.strip_accents", lowercase)
    fields.tokens = words
    return open_as_json(
        fields,
        model={"type": "WordPiece", "unk_token": words[unknown], "vocab": vocab, **WORD_PIECE},
        normalizer={"type": "BertNormalizer", "lowercase": lowercase, "strip_accents": strip_accents, **BERT},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        bos=fields.id("bos", fields.id("cls", 101)) if fields.flag("add_bos_token", True) else None,
        eos=fields.id("seperator", fields.id("eos", 102)) if fields.flag("add_sep_token", True) else None,
    )


def restore_word(token: str) -> str:
    """Restore the original spelling: `▁the` -> `the`, `ing` -> `##ing`; `[CLS]` stays."""
    if token.startswith("▁"):
        return token.removeprefix("▁")
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"


def open_as_json(fields: GgufFields, *, bos: int | None, eos: int | None, **parts: Step | None) -> Tokenizer:
    """Open a tokenizer.json with these parts: model, normalizer, pre_tokenizer, and decoder."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": token_id, "content": fields.tokens[token_id], **flags, "special": kind != USER_DEFINED}
        for token_id, kind in enumerate(fields.types)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    ids = {name: token_id for name, token_id in (("bos", bos), ("eos", eos)) if token_id is not None}
    before, after = ([{"SpecialToken": {"id": name, "type_id": 0}}] if name in ids else [] for name in ("bos", "eos"))
    text, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [*before, text, *after],
        "pair": [*before, text, *after, second],
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [fields.tokens[token_id]]} for name, token_id in ids.items()
        },
    }
    content = {"version": "1.0", "added_tokens": added, "post_processor": template if ids else None, **parts}
    data = json.dumps(content).encode()
    return HuggingFaceTokenizer(data, source=fields.source, pad_token=fields.token(fields.id("padding")))


# -- sentencepiece --


def open_as_sentencepiece(fields: GgufFields, *, unigram: bool) -> Tokenizer:
    bos, eos = fields.id("bos", None if unigram else 1), fields.id("eos", 1 if unigram else 2)
    padding = fields.id("padding")
    add_bos_eos = (fields.flag("add_bos_token", not unigram), fields.flag("add_eos_token", unigram))
    types = fields.types
    if UNKNOWN not in types:
        types[fields.id("unknown", 2 if unigram else 0) or 0] = UNKNOWN
    for token_id, is_added, name in zip((bos, eos), add_bos_eos, ("begin", "end"), strict=True):
        if token_id is not None and types[token_id] == NORMAL:
            types[token_id] = CONTROL
        if is_added and (token_id is None or types[token_id] != CONTROL):
            raise fields.error(f"adds a token at the {name} of every text but does not name a control token for it")
    pieces = []
    for token, kind, score in zip(fields.tokens, types, fields.scores(), strict=True):
        # User-defined pieces are stored with plain spaces, but sentencepiece has its own symbol for a space.
        piece = token.replace(" ", "▁") if kind == USER_DEFINED else token
        pieces.append(proto(1, proto(1, piece.encode()) + proto(2, score) + proto(3, kind)))
    trainer = proto(3, 1 if unigram else 2) + proto(35, BYTE in types)
    for number, token_id in ((45, types.index(UNKNOWN)), (46, bos), (47, eos), (48, padding)):
        # "\0" is not a piece, so it means there is no such token. An empty name would mean the default, `<s>`
        trainer += proto(number, (fields.token(token_id) or "\0").encode())
    normalizer = proto(1, b"identity") + proto(2, fields.charsmap())
    normalizer += proto(3, fields.flag("add_space_prefix", not unigram))
    normalizer += proto(4, fields.flag("remove_extra_whitespaces", False)) + proto(5, True)
    data = b"".join(pieces) + proto(2, trainer) + proto(3, normalizer)
    return SentencePieceTokenizer(data, source=fields.source, add_bos_eos=add_bos_eos, pad_token=fields.token(padding))


def proto(field: int, value: bytes | int | float) -> bytes:
    """Return a field of a protobuf message: number x 8 + wire type, then the value. See sentencepiece_model.proto."""
    if isinstance(value, bytes):
        return varint(field << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(field << 3 | 5) + struct.pack("<f", value)
    return varint(field << 3) + varint(int(value))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# -- pre-tokenizers: the names in `tokenizer.ggml.pre` --

BYTE_LEVEL: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTE_LEVEL_GPT_2 = BYTE_LEVEL | {"use_regex": True}  # uses GPT-2's pattern
DIGITS: Step = {"type": "Digits", "individual_digits": True}
DIGIT_RUNS: Step = {"type": "Digits", "individual_digits": False}
PUNCTUATION: Step = {"type": "Punctuation", "behavior": "Contiguous"}
NFC: Step = {"type": "NFC"}

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
DEEPSEEK_LLM_PATTERNS = (
    "[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", DEEPSEEK_CJK_PATTERN,
)  # fmt: skip
# With literal line breaks, as in the original: gigatoken recognizes a pattern by its exact text.
DEEPSEEK_V3_PATTERN = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^LINE\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[LINE]*|"""
    r"\s*[LINE]+|\s+(?!\S)|\s+"
).replace("LINE", "\r\n")


class PreTokenizer(NamedTuple):
    """The pre-tokenizer a name in `pre` stands for."""

    steps: list[Step]
    normalizer: Step | None = None
    ignore_merges: bool = False  # a pre-token in the vocabulary is one token, regardless of its merges
    add_bos: bool = False  # unless the file sets add_bos_token


def steps(*parts: Step | str, last: Step | str = BYTE_LEVEL) -> list[Step]:
    """Return a pre-tokenizer's steps, given as steps or as patterns. Each match of a pattern is a pre-token."""
    return [
        {"type": "Split", "pattern": {"Regex": part}, "behavior": "Isolated", "invert": False}
        if isinstance(part, str) else part
        for part in (*parts, last)
    ]  # fmt: skip


PRE_TOKENIZERS_BY_NAMES = {  # "default", or no name, means what llama.cpp does in that case
    " default": PreTokenizer(steps(r"[\p{P}\$\+<=>\^~\|]+", GPT_2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")),
    "bloom poro-chat": PreTokenizer(steps(BLOOM_PATTERN)),
    "chatglm-bpe glm4": PreTokenizer(steps(LLAMA_3), ignore_merges=True),
    "command-r": PreTokenizer(steps(DIGITS, last=BYTE_LEVEL_GPT_2), normalizer=NFC),
    "dbrx smaug-bpe": PreTokenizer(steps(LLAMA_3)),
    "deepseek-coder": PreTokenizer(steps("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK_PATTERN, DIGITS)),
    "deepseek-llm": PreTokenizer(steps(*DEEPSEEK_LLM_PATTERNS, DIGITS)),
    "deepseek-r1-qwen qwen2": PreTokenizer(steps(QWEN_2_PATTERN), normalizer=NFC),
    "deepseek-v3": PreTokenizer(steps(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_V3_PATTERN)),
    "falcon": PreTokenizer(steps(PUNCTUATION, BYTE_LEVEL_GPT_2, DIGIT_RUNS, last="[0-9][0-9][0-9]")),
    "gpt-2 phi-2 roberta-bpe": PreTokenizer(steps(last=BYTE_LEVEL_GPT_2)),
    "gpt-4o": PreTokenizer(steps(O200K)),
    "kimi-k2": PreTokenizer(steps(KIMI), ignore_merges=True),
    "llama-bpe llama-v3 llama3": PreTokenizer(steps(LLAMA_3), ignore_merges=True, add_bos=True),
    "mpt olmo": PreTokenizer(steps(last=BYTE_LEVEL_GPT_2), normalizer=NFC),
    "qwen35": PreTokenizer(steps(QWEN_35_PATTERN), normalizer=NFC),
    "refact smollm starcoder": PreTokenizer(steps(DIGITS, last=BYTE_LEVEL_GPT_2)),
    "tekken": PreTokenizer(steps(TEKKEN_PATTERN), ignore_merges=True, add_bos=True),
}
PRE_TOKENIZERS = {name: known for names, known in PRE_TOKENIZERS_BY_NAMES.items() for name in names.split(" ")}
