"""The tokenizer inside a GGUF: plain data for the two exact paths, a tokenizer.json or a sentencepiece model.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- "gpt2" (byte-level BPE) and "bert" (WordPiece) become a tokenizer.json, "llama" (BPE by scores) and "t5" (Unigram) a
  sentencepiece model; both are then opened like any other file of their kind, and checked like one
- ids are those of the tokenizer the GGUF was made from; a byte-level one whose split is not known is an error
- a BERT vocabulary is written with word starts marked and `##` dropped; that is undone. Whether it was lower-cased is
  said by newer files only; an upper-case letter in the vocabulary answers it for the others
- `[PAD151665]` and the like fill a table up to its size. At the end of a vocabulary they are no tokens and are left out
- not here: reading the file (checkpoint/gguf.py), how a byte-level GGUF splits text (tokenizers/gguf_splits.py)
Checked against the original tokenizers in tests/tokenizers/test_gguf.py.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import TokenizerError
from inlayer.tokenizers.base import Tokenizer
from inlayer.tokenizers.charsmap import charsmap_fault
from inlayer.tokenizers.gguf_splits import BYTES, PRE_TOKENIZERS, Step
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer

__all__ = ["TOKENIZER_ARRAYS", "open_gguf_tokenizer"]

TOKENIZER_ARRAYS = ("tokens", "token_type", "scores", "merges", "precompiled_charsmap")

# the types of tokens, as sentencepiece numbers them too
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def open_gguf_tokenizer(fields: Mapping[str, Any], *, where: str) -> Tokenizer:
    """The tokenizer that the `tokenizer.ggml.*` values of a file describe, given under their names without that prefix.

    Arrays are a list of texts (tokens, merges) or a numpy array (token_type, scores, precompiled_charsmap).
    """
    model = fields.get("model")
    said = _Said(fields, where)
    if model == "gpt2":
        return _byte_level(said)
    if model == "bert":
        return _word_piece(said)
    if model == "llama":
        return _sentence_piece(said, unigram=False)
    if model == "t5":
        return _sentence_piece(said, unigram=True)
    raise TokenizerError(f"{where} has a tokenizer of the kind {_quoted(model)}; gpt2, bert, llama and t5 are known")


class _Said:
    """What a file says of its tokenizer, each value checked as it is asked for."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self._fields, self.where = fields, where
        tokens = self.texts("tokens")
        if not tokens:
            raise TokenizerError(f"{where} has a tokenizer without tokens")
        if len(set(tokens)) < len(tokens):
            raise TokenizerError(f"{where} has a tokenizer in which a token stands twice")
        types = self._numbers("token_type", len(tokens), "iu")
        known = [NORMAL] * len(tokens) if types is None else [int(kind) for kind in types]
        self.types = [kind if NORMAL <= kind <= BYTE else NORMAL for kind in known]
        size = len(tokens)
        while size > 1 and self.types[size - 1] == UNUSED and tokens[size - 1] == f"[PAD{size - 1}]":
            size -= 1
        self.tokens, self.types = tokens[:size], self.types[:size]
        if types is None:  # an old file: the named ones at least are no text
            for name in ("bos", "eos", "unknown", "padding"):
                token_id = self.id(name)
                if token_id is not None:
                    self.types[token_id] = UNKNOWN if name == "unknown" else CONTROL

    def texts(self, name: str) -> list[str]:
        value = self._fields.get(name, [])
        if not isinstance(value, list):
            raise TokenizerError(f"{self.where} has a tokenizer whose {name} are no list of texts")
        return value

    def scores(self) -> list[float]:
        scores = self._numbers("scores", len(self.texts("tokens")), "f")
        if scores is None:
            raise TokenizerError(f"{self.where} has a tokenizer of scored pieces without scores")
        if scores.dtype.itemsize != 4 or not np.isfinite(scores).all():
            raise TokenizerError(f"{self.where} has a tokenizer with a score that is no finite float32")
        return [float(score) for score in scores]

    def charsmap(self) -> bytes:
        value = self._fields.get("precompiled_charsmap")
        if value is None:
            return b""
        one_byte = isinstance(value, np.ndarray) and value.dtype.itemsize == 1
        fault = charsmap_fault(base64.b64encode(value.tobytes()).decode()) if one_byte else "is no array of bytes"
        if fault is not None:
            raise TokenizerError(f"the precompiled_charsmap of {self.where} {fault}; is it damaged?")
        return bytes(value.tobytes())

    def _numbers(self, name: str, count: int, kinds: str) -> npt.NDArray[Any] | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or len(value) < count or value.dtype.kind not in kinds:
            raise TokenizerError(f"{self.where} has a tokenizer whose {name} is not one number a token")
        return value[:count]

    def id(self, name: str, otherwise: int | None = None) -> int | None:
        """The id of a special token; what lies outside the vocabulary counts as not said."""
        for value in (self._fields.get(f"{name}_token_id"), otherwise):
            if type(value) is int and 0 <= value < len(self.tokens):
                return value
        return None

    def flag(self, name: str, otherwise: bool) -> bool:
        value = self._fields.get(name)
        return value if isinstance(value, bool) else otherwise

    def word(self, name: str) -> str:
        value = self._fields.get(name, "")
        return value if isinstance(value, str) else ""

    def token(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokens[token_id]


def _byte_level(said: _Said) -> Tokenizer:
    pre = said.word("pre")
    if pre not in PRE_TOKENIZERS:
        known = ", ".join(name for name in PRE_TOKENIZERS if name)
        raise TokenizerError(
            f"{said.where} splits text by the rule {_quoted(pre)}, which is not known here; known are {known}"
        )
    rule = PRE_TOKENIZERS[pre]
    pairs = [merge.split(" ") for merge in said.texts("merges")]
    if not pairs:
        raise TokenizerError(f"{said.where} has a byte-level tokenizer without merges")
    odd = next((pair for pair in pairs if len(pair) != 2), None)
    if odd is not None:
        raise TokenizerError(
            f"{said.where} has the merge {_quoted(' '.join(odd))}; a merge is two tokens with a space between"
        )
    around = (
        said.id("bos") if said.flag("add_bos_token", rule.adds_begin) else None,
        said.id("eos") if said.flag("add_eos_token", False) else None,
    )
    # Special tokens after the last plain one are no part of the model, as in the original files.
    plain = max((place for place, kind in enumerate(said.types) if kind not in (CONTROL, USER_DEFINED)), default=-1) + 1
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": rule.ignore_merges,
        "vocab": {token: token_id for token_id, token in enumerate(said.tokens[:plain])},
        "merges": pairs,
    }
    steps = list(rule.steps)
    return _open_json(
        said,
        model,
        normalizer=rule.normalizer,
        pre_tokenizer=steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
        post_processors=[BYTES | {"add_prefix_space": True, "trim_offsets": False, "use_regex": True}],
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        around=around,
    )


def _word_piece(said: _Said) -> Tokenizer:
    words = [_word(token) for token in said.tokens]
    vocab = {word: token_id for token_id, word in enumerate(words)}
    if len(vocab) < len(words):
        raise TokenizerError(f"{said.where} has a WordPiece tokenizer in which a token stands twice")
    unknown = said.id("unknown", 100)
    if unknown is None:
        raise TokenizerError(f"{said.where} has a WordPiece tokenizer without an unknown token")
    plain = (word for word, kind in zip(words, said.types, strict=True) if kind == NORMAL and not word.startswith("["))
    lower_cased = said.flag("normalizer.lowercase", all(word == word.lower() for word in plain))
    said.tokens = words
    model = {
        "type": "WordPiece",
        "unk_token": words[unknown],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": vocab,
    }
    return _open_json(
        said,
        model,
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": said.flag("normalizer.strip_accents", lower_cased),
            "lowercase": lower_cased,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processors=[],
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        around=(
            said.id("bos", said.id("cls", 101)) if said.flag("add_bos_token", True) else None,
            said.id("seperator", said.id("eos", 102)) if said.flag("add_sep_token", True) else None,
        ),
    )


def _word(token: str) -> str:
    """`▁the` -> `the`, `ing` -> `##ing`; `[CLS]` and its like are not marked."""
    if token.startswith("▁"):
        return token.removeprefix("▁")
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"


def _open_json(
    said: _Said,
    model: dict[str, Any],
    *,
    normalizer: Step | None,
    pre_tokenizer: Step,
    post_processors: list[Step],
    decoder: Step,
    around: tuple[int | None, int | None],
) -> Tokenizer:
    template = _template(said.tokens, *around)
    processors = [*post_processors, *([template] if template is not None else [])]
    added = [
        {
            "id": token_id,
            "content": said.tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != USER_DEFINED,
        }
        for token_id, kind in enumerate(said.types)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {"type": "Sequence", "processors": processors} if processors else None,
        "decoder": decoder,
        "model": model,
    }
    data = json.dumps(content).encode()
    return HuggingFaceTokenizer(data, where=said.where, pad_token=said.token(said.id("padding")))


def _template(tokens: Sequence[str], begin: int | None, end: int | None) -> Step | None:
    """The ids that are put around a text."""
    if begin is None and end is None:
        return None
    before, after = (
        [] if token_id is None else [{"SpecialToken": {"id": tokens[token_id], "type_id": 0}}]
        for token_id in (begin, end)
    )
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    listed = {token_id: tokens[token_id] for token_id in (begin, end) if token_id is not None}
    return {
        "type": "TemplateProcessing",
        "single": [*before, first, *after],
        "pair": [*before, first, *after, second, *after],
        "special_tokens": {
            token: {"id": token, "ids": [token_id], "tokens": [token]} for token_id, token in listed.items()
        },
    }


def _sentence_piece(said: _Said, *, unigram: bool) -> Tokenizer:
    begin, end, padding = (
        said.id("bos", None if unigram else 1),
        said.id("eos", 1 if unigram else 2),
        said.id("padding"),
    )
    around = (said.flag("add_bos_token", not unigram), said.flag("add_eos_token", unigram))
    types = list(said.types)
    if UNKNOWN not in types:
        types[said.id("unknown", 2 if unigram else 0) or 0] = UNKNOWN
    for token_id in (begin, end):
        if token_id is not None and types[token_id] == NORMAL:
            types[token_id] = CONTROL
    for asked, token_id, name in zip(around, (begin, end), ("begin", "end"), strict=True):
        if asked and (token_id is None or types[token_id] != CONTROL):
            raise TokenizerError(
                f"{said.where} puts a token at the {name} of a text, but names no control token for it"
            )
    pieces = b"".join(
        _message(1, _bytes(1, _piece(token, kind).encode()) + _float(2, score) + _number(3, kind))
        for token, kind, score in zip(said.tokens, types, said.scores(), strict=False)
    )
    settings = _number(3, 1 if unigram else 2) + _number(35, BYTE in types)
    for number, token_id in ((45, types.index(UNKNOWN)), (46, begin), (47, end), (48, padding)):
        # a name that is no piece says that there is none: an empty one would mean the default, `<s>`
        settings += _bytes(number, (said.token(token_id) or "\0").encode())
    normalizer = _bytes(1, b"identity") + _bytes(2, said.charsmap())
    normalizer += _number(3, said.flag("add_space_prefix", not unigram))
    normalizer += _number(4, said.flag("remove_extra_whitespaces", False)) + _number(5, True)
    data = pieces + _message(2, settings) + _message(3, normalizer)
    return SentencePieceTokenizer(data, where=said.where, around=around, pad_token=said.token(padding))


def _piece(token: str, kind: int) -> str:
    """User-defined pieces are stored with plain spaces; a sentencepiece model has its own sign for them."""
    return token.replace(" ", "▁") if kind == USER_DEFINED else token


# A protobuf message is its fields, each a number (field x 8 + wire type) and a value. A ModelProto has pieces (1),
# trainer_spec (2) and normalizer_spec (3); the numbers above are those of sentencepiece_model.proto.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


_message = _bytes  # the same wire type


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _quoted(value: object) -> str:
    """A stranger's word, short and on one line: what does not print is escaped."""
    text = str(value)
    return repr(text[:60]) + ("..." if len(text) > 60 else "")
