"""GGUF tokenizers: converts the tokenizer fields of a GGUF file to a tokenizer.json or a sentencepiece model.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- "gpt2" (byte-level BPE) and "bert" (WordPiece) become a tokenizer.json, "llama" (BPE by scores) and "t5" (Unigram) a
  sentencepiece model. The result is opened and validated like any other file of that format
- ids are those of the tokenizer the GGUF was made from; an unknown pre-tokenizer is an error
- a BERT vocabulary is stored with word starts marked and `##` dropped; both are restored. Only newer files say whether
  it is lowercase; for others, an upper-case letter in the vocabulary means that it is not
- tokens such as `[PAD151665]` pad the vocabulary to the size of the table. At its end they are left out
- elsewhere: reading the file (checkpoint/gguf.py), pre-tokenizers (gguf_pre_tokenizers.py)
Tested against the original tokenizers in tests/tokenizers/test_gguf.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TokenizerError
from inlayer.files import quoted
from inlayer.tokenizers.base import Tokenizer
from inlayer.tokenizers.gguf_pre_tokenizers import BYTE_LEVEL, PRE_TOKENIZERS, Step
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer

__all__ = ["TOKENIZER_ARRAYS", "open_gguf_tokenizer"]

TOKENIZER_ARRAYS = ("tokens", "token_type", "scores", "merges", "precompiled_charsmap")

# Token types, numbered as in sentencepiece.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def open_gguf_tokenizer(fields: Mapping[str, Any], *, where: str) -> Tokenizer:
    """Open the tokenizer described by the `tokenizer.ggml.*` fields of a file, given without that prefix.

    Arrays are a list of str (tokens, merges) or a numpy array (token_type, scores, precompiled_charsmap).
    """
    converters = {"gpt2": byte_level_bpe, "bert": word_piece, "llama": sentencepiece_bpe, "t5": sentencepiece_unigram}
    model = fields.get("model")
    if not isinstance(model, str) or model not in converters:
        raise TokenizerError(
            f"{where} has a tokenizer of the unknown model {quoted(model)}; known are {', '.join(converters)}"
        )
    return converters[model](GgufFields(fields, where))


class GgufFields:
    """The tokenizer fields of a GGUF file, each validated when it is read."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self._fields, self.where = fields, where
        tokens = self.strings("tokens")
        if not tokens:
            raise self.error("has no tokens")
        if len(set(tokens)) < len(tokens):
            raise self.error("has the same token twice")
        types = self._numbers("token_type", len(tokens), "iu")
        self.types = [NORMAL] * len(tokens) if types is None else [int(kind) for kind in types]
        self.types = [kind if NORMAL <= kind <= BYTE else NORMAL for kind in self.types]
        size = len(tokens)
        while size > 1 and self.types[size - 1] == UNUSED and tokens[size - 1] == f"[PAD{size - 1}]":
            size -= 1
        self.tokens, self.types = tokens[:size], self.types[:size]
        if types is None:  # an old file: at least the named tokens are not text
            for name in ("bos", "eos", "unknown", "padding"):
                token_id = self.id(name)
                if token_id is not None:
                    self.types[token_id] = UNKNOWN if name == "unknown" else CONTROL

    def error(self, problem: str) -> TokenizerError:
        return TokenizerError(f"the tokenizer of {self.where} {problem}")

    def strings(self, name: str) -> list[str]:
        value = self._fields.get(name, [])
        if not isinstance(value, list):
            raise self.error(f"has {name} that are not a list of strings")
        return value

    def scores(self) -> list[float]:
        scores = self._numbers("scores", len(self.strings("tokens")), "f")
        if scores is None:
            raise self.error("has no scores")
        if scores.dtype.itemsize != 4 or not np.isfinite(scores).all():
            raise self.error("has a score that is not a finite float32")
        return [float(score) for score in scores]

    def charsmap(self) -> bytes:
        value = self._fields.get("precompiled_charsmap")
        if value is not None and not (isinstance(value, np.ndarray) and value.dtype.itemsize == 1):
            raise self.error("has a precompiled_charsmap that is not an array of bytes")
        return b"" if value is None else bytes(value.tobytes())

    def _numbers(self, name: str, count: int, kinds: str) -> npt.NDArray[Any] | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or len(value) < count or value.dtype.kind not in kinds:
            raise self.error(f"has a {name} array without one number per token")
        return value[:count]

    def id(self, name: str, default: int | None = None) -> int | None:
        """Return the id of a special token; an id outside the vocabulary counts as missing."""
        for value in (self._fields.get(f"{name}_token_id"), default):
            if type(value) is int and 0 <= value < len(self.tokens):
                return value
        return None

    def flag(self, name: str, default: bool) -> bool:
        value = self._fields.get(name)
        return value if isinstance(value, bool) else default

    def token(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]

    def pre_tokenizer_name(self) -> str:
        value = self._fields.get("pre", "")
        return value if isinstance(value, str) else ""


# -- tokenizer.json --


def byte_level_bpe(fields: GgufFields) -> Tokenizer:
    name = fields.pre_tokenizer_name()
    if name not in PRE_TOKENIZERS:
        known = ", ".join(known for known in PRE_TOKENIZERS if known)
        raise fields.error(f"uses the unknown pre-tokenizer {quoted(name)}; known are {known}")
    pre_tokenizer = PRE_TOKENIZERS[name]
    pairs = [merge.split(" ") for merge in fields.strings("merges")]
    if not pairs:
        raise fields.error("has no merges")
    malformed = next((pair for pair in pairs if len(pair) != 2), None)
    if malformed is not None:
        raise fields.error(f"has the merge {quoted(' '.join(malformed))}; a merge is two tokens separated by a space")
    # Special tokens after the last ordinary token are not part of the model, as in the original files.
    ordinary = [index for index, kind in enumerate(fields.types) if kind not in (CONTROL, USER_DEFINED)]
    vocab = {token: token_id for token_id, token in enumerate(fields.tokens[: max(ordinary, default=-1) + 1])}
    return open_as_json(
        fields,
        model={"type": "BPE", "ignore_merges": pre_tokenizer.ignore_merges, "vocab": vocab, "merges": pairs},
        normalizer=pre_tokenizer.normalizer,
        pre_tokenizer={"type": "Sequence", "pretokenizers": list(pre_tokenizer.steps)},
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
    plain = (word for word, kind in zip(words, fields.types, strict=True) if kind == NORMAL and word[:1] != "[")
    lowercase = fields.flag("normalizer.lowercase", all(word == word.lower() for word in plain))
    fields.tokens = words
    return open_as_json(
        fields,
        model={
            "type": "WordPiece",
            "unk_token": words[unknown],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": fields.flag("normalizer.strip_accents", lowercase),
            "lowercase": lowercase,
        },
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


def open_as_json(
    fields: GgufFields,
    *,
    model: Step,
    normalizer: Step | None,
    pre_tokenizer: Step,
    decoder: Step,
    bos: int | None,
    eos: int | None,
) -> Tokenizer:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": token_id, "content": fields.tokens[token_id], **flags, "special": kind != USER_DEFINED}
        for token_id, kind in enumerate(fields.types)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None if bos is None and eos is None else template(fields, bos, eos),
        "decoder": decoder,
        "model": model,
    }
    data = json.dumps(content).encode()
    return HuggingFaceTokenizer(data, where=fields.where, pad_token=fields.token(fields.id("padding")))


def template(fields: GgufFields, bos: int | None, eos: int | None) -> Step:
    """Return the post-processor that adds these ids around a text."""
    tokens = {token_id: fields.tokens[token_id] for token_id in (bos, eos) if token_id is not None}
    before, after = (
        [] if token_id is None else [{"SpecialToken": {"id": tokens[token_id], "type_id": 0}}]
        for token_id in (bos, eos)
    )
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*before, first, *after],
        "pair": [*before, first, *after, second, *after],
        "special_tokens": {
            token: {"id": token, "ids": [token_id], "tokens": [token]} for token_id, token in tokens.items()
        },
    }


# -- sentencepiece --


def sentencepiece_bpe(fields: GgufFields) -> Tokenizer:
    return open_as_sentencepiece(fields, unigram=False, bos=fields.id("bos", 1), eos=fields.id("eos", 2))


def sentencepiece_unigram(fields: GgufFields) -> Tokenizer:
    return open_as_sentencepiece(fields, unigram=True, bos=fields.id("bos"), eos=fields.id("eos", 1))


def open_as_sentencepiece(fields: GgufFields, *, unigram: bool, bos: int | None, eos: int | None) -> Tokenizer:
    padding = fields.id("padding")
    add_bos_eos = (fields.flag("add_bos_token", not unigram), fields.flag("add_eos_token", unigram))
    types = list(fields.types)
    if UNKNOWN not in types:
        types[fields.id("unknown", 2 if unigram else 0) or 0] = UNKNOWN
    for token_id, wanted, name in zip((bos, eos), add_bos_eos, ("begin", "end"), strict=True):
        if token_id is not None and types[token_id] == NORMAL:
            types[token_id] = CONTROL
        if wanted and (token_id is None or types[token_id] != CONTROL):
            raise fields.error(f"adds a token at the {name} of every text but does not name a control token for it")
    # User-defined pieces are stored with plain spaces, but sentencepiece has its own symbol for them.
    spelled = (
        token.replace(" ", "▁") if kind == USER_DEFINED else token
        for token, kind in zip(fields.tokens, types, strict=True)
    )
    pieces = b"".join(
        bytes_field(1, bytes_field(1, piece.encode()) + float_field(2, score) + int_field(3, kind))
        for piece, kind, score in zip(spelled, types, fields.scores(), strict=False)
    )
    trainer = int_field(3, 1 if unigram else 2) + int_field(35, BYTE in types)
    for number, token_id in ((45, types.index(UNKNOWN)), (46, bos), (47, eos), (48, padding)):
        # "\0" is not a piece, so it means that there is none; an empty name would mean the default, `<s>`
        trainer += bytes_field(number, (fields.token(token_id) or "\0").encode())
    normalizer = bytes_field(1, b"identity") + bytes_field(2, fields.charsmap())
    normalizer += int_field(3, fields.flag("add_space_prefix", not unigram))
    normalizer += int_field(4, fields.flag("remove_extra_whitespaces", False)) + int_field(5, True)
    data = pieces + bytes_field(2, trainer) + bytes_field(3, normalizer)
    return SentencePieceTokenizer(data, where=fields.where, add_bos_eos=add_bos_eos, pad_token=fields.token(padding))


# The fields of a protobuf message: a key (number x 8 + wire type), then the value. A ModelProto has pieces (1), a
# trainer_spec (2) and a normalizer_spec (3); all numbers are those of sentencepiece_model.proto.


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(int(value))


def bytes_field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def float_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)
