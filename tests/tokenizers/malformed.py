"""Malformed tokenizer.json files: small valid ones of every model type, and random changes drawn from a seed.

Run as a program, it opens and uses them in a separate process, where a crash cannot end the test run:
    python -m tests.tokenizers.malformed ours|theirs <first seed> <count>    # drawn from seeds
    python -m tests.tokenizers.malformed ours|theirs <file>...               # these files
It prints one line per file: "ok", or the class and message of the error.
"""

import base64
import copy
import io
import json
import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import sentencepiece

from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

TEXTS = ["", "a", "the 1!", "a b  hello\n <s> x é 你 \0 🙂", "ab" * 30, "[CLS] the<x> c abc", "-- ..."]
VALUES = [
    None, True, 0, -1, 1.5, 2**31, 2**32 - 1, 2**64, 10**30, "", "zzz", "(", "\0", "é", "▁▁", "[a-", "\ud800", [], {},
    ["a", "b", "c"], [1], [["a", "b"]], "a b c", {"a": 1}, {"type": "Foo"}, {"Regex": "("}, {"Regex": ""},
    {"String": ""}, {"Regex": "(?=a)"},
]  # fmt: skip


def parse_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Parse the field numbers and values of a protobuf message."""
    position = 0
    while position < len(message):
        key, position = parse_varint(message, position)
        if key & 7 == 0:  # varint
            value, position = parse_varint(message, position)
            yield key >> 3, value
        elif key & 7 == 2:  # string or message
            length, position = parse_varint(message, position)
            yield key >> 3, message[position : position + length]
            position += length
        elif key & 7 == 5:  # float, not needed
            position += 4
        else:
            raise ValueError(f"unexpected wire type {key & 7}")


def parse_varint(message: bytes, position: int) -> tuple[int, int]:
    """Parse an integer stored in groups of 7 bits, lowest first; return it and the position after it."""
    value, shift = 0, 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


@cache
def charsmap() -> str:
    """Return a real precompiled_charsmap: field 2 of the normalizer (field 3) of a sentencepiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the dog and the cat"] * 20), model_writer=model, vocab_size=30, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    settings = dict(parse_fields(model.getvalue()))[3]
    return base64.b64encode(dict(parse_fields(settings))[2]).decode()


def token(token_id, content, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": content, **base, **flags}


def template(name, token_id):
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": name, "type_id": 0}}, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}},
    }


def numbered(*tokens):
    return {content: index for index, content in enumerate(tokens)}


def valid_files() -> dict[str, dict]:
    """Return one file per model type; together they use every normalizer, pre-tokenizer, post-processor and decoder."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcthe.", "the", "##e", "##h", "hello", "##s", "<s>"]
    empty = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    letters = [chr(value) for value in range(0x21, 0x7F)] + ["Ġ", "Ċ", "th", "the"]
    return {
        "bpe": {
            **empty,
            "added_tokens": [token(98, "<s>")],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": template("<s>", 98),
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": numbered(*letters), "merges": [["t", "h"], ["th", "e"]]},
        },
        "prefixed bpe": {
            **empty,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "ByteFallback"},
            ]},
            "model": {
                "type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##",
                "vocab": numbered("<unk>", "a", "b", "##b", "##c", "ab", "##bc", "abc"),
                "merges": ["a ##b", "##b ##c", "ab ##c"],
            },
        },
        "word pieces": {
            **empty,
            "truncation": {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0},
            "padding": {
                "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "[PAD]",
            },
            "added_tokens": [token(index, name) for index, name in enumerate(words[:4])],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": numbered(*words),
            },
        },
        "words": {
            **empty,
            "added_tokens": [token(17, "<x>", special=False, normalized=True, lstrip=True)],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFC"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Nmt"},
                {"type": "Lowercase"}, {"type": "StripAccents"},
            ]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Isolated"},
                {"type": "Digits", "individual_digits": True}, {"type": "CharDelimiterSplit", "delimiter": "-"},
                {"type": "Split", "pattern": {"String": "x"}, "behavior": "Removed", "invert": False},
                {"type": "FixedLength", "length": 5},
            ]},
            "post_processor": {
                "type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True,
                "add_prefix_space": True,
            },
            "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
            "model": {"type": "WordLevel", "vocab": numbered(*words), "unk_token": "[UNK]"},
        },
        "unigram": {
            **empty,
            "added_tokens": [token(0, "<unk>")],
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap()},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "post_processor": {"type": "Sequence", "processors": [template("<unk>", 0)]},
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "model": {
                "type": "Unigram", "unk_id": 0, "byte_fallback": False,
                "vocab": [["<unk>", 0.0], ["▁", -1.5], ["a", -2.0], ["▁the", -3.0]],
            },
        },
    }  # fmt: skip


def paths_in(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items)[:12]:
        yield from paths_in(inner, (*path, key))


def draw_file(seed: int) -> bytes:
    """Change one to three values of a valid file: replace, remove, or copy from elsewhere."""
    draw = random.Random(seed)
    files = valid_files()
    config = copy.deepcopy(files[draw.choice(sorted(files))])
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        part = draw.choice(sorted(config))
        *outer, key = draw.choice([path for path in paths_in(config) if path[0] == part])
        holder = config
        for step in outer:
            holder = holder[step]
        change = draw.random()
        if change < 0.6:
            holder[key] = copy.deepcopy(draw.choice(VALUES))
        elif change < 0.75:
            holder.pop(key)
        else:
            other = files[draw.choice(sorted(files))]
            for step in draw.choice(list(paths_in(other))):
                other = other[step]
            holder[key] = copy.deepcopy(other)
    return json.dumps(config).encode()


def use_ours(data: bytes) -> None:
    ours = HuggingFaceTokenizer(data)
    for text in TEXTS:
        ours.encode(text, parse_special=False)
        ours.tokens(text)
    ours.encode_batch(TEXTS)


def use_theirs(data: bytes) -> None:
    import tokenizers

    theirs = tokenizers.Tokenizer.from_str(data.decode())
    theirs.no_truncation()
    theirs.no_padding()
    for text in TEXTS:
        theirs.encode(text)


if __name__ == "__main__":
    which, *rest = sys.argv[1:]
    if rest[0].isdigit():
        files = (draw_file(seed) for seed in range(int(rest[0]), int(rest[0]) + int(rest[1])))
    else:
        files = (Path(name).read_bytes() for name in rest)
    for data in files:
        try:
            (use_ours if which == "ours" else use_theirs)(data)
            line = "ok"
        except BaseException as error:  # a panic is not an Exception
            line = f"{type(error).__name__} {error}"
        print(line)  # noqa: T201
