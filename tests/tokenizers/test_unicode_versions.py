"""Stable characters: against their generator and, per code point, against the libraries."""

import unicodedata
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import pytest
import tokenizers

from inlayer.errors import TextError
from inlayer.tokenizers.gigatoken import stable_characters, texts_with_unstable_characters
from tests.tokenizers.make_stable_characters import compute_run_lengths
from tests.tokenizers.samples import RECENT, real_json

MEASURED = {"gigatoken": "0.10.0", "tokenizers": "0.23.3"}  # the versions whose differences the controls expect

# Contexts in which the class of a character decides a boundary that changes ids, and in which marks are reordered.
CONTEXTS = (" {} ", "{}'s", "a{}\u0323\u0301")


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="generated with Unicode 14 (Python 3.11)")
def test_table_equals_its_generator():
    lengths = compute_run_lengths()
    assert np.array_equal(stable_characters(), np.repeat(np.arange(len(lengths)) % 2 == 0, lengths))


def test_table_covers_every_code_point():
    table = stable_characters()
    assert table.shape == (0x110000,)
    assert table[:0xD800].any()
    assert not table[0xD800:0xE000].any()
    for text in RECENT:
        assert not table[ord(text)]
    for text in "aé中ひ한🙂🫠\u0301\n\u3000\0":
        assert table[ord(text)]


def test_unstable_texts_are_found_across_blocks(monkeypatch):
    monkeypatch.setattr("inlayer.tokenizers.gigatoken.BLOCK_CHARACTERS", 5)
    texts = ["abc", "é", "é\U000329ee", "", "中文字", "\u1acf", "🙂", "x\ufdd0y"]
    assert texts_with_unstable_characters(texts) == [2, 5, 7]
    assert texts_with_unstable_characters([]) == []
    with pytest.raises(TextError, match=r"text 3 contains the lone surrogate U\+DC00 at position 1"):
        texts_with_unstable_characters(["é", "a", "\U000329ee", "é\udc00"])


@cache
def libraries(name: str) -> tuple[Any, tokenizers.Tokenizer]:
    gigatoken = pytest.importorskip("gigatoken")
    data = real_json(name)
    return gigatoken.Tokenizer.from_json(data), tokenizers.Tokenizer.from_str(data.decode())


def differing(name: str, code_points: list[int], context: str) -> set[int]:
    """Return the code points whose text gigatoken and tokenizers encode differently."""
    texts = [context.format(chr(code_point)) for code_point in code_points]
    fast, exact = libraries(name)
    theirs = exact.encode_batch_fast(texts, add_special_tokens=False)
    layout = fast.encode_batch(texts).layout
    ours = np.split(np.asarray(layout.content.data), np.asarray(layout.offsets.data)[1:-1])
    return {point for point, one, other in zip(code_points, ours, theirs, strict=True) if one.tolist() != other.ids}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek-v3", "qwen-3"])
def test_libraries_agree_on_stable_characters(name):
    # every stable character, but only one in 64 of the large uniform blocks (ideographs, syllables, private use)
    blocks = ((0x3400, 0xA000), (0xAC00, 0xF900), (0x17000, 0x18D00), (0x20000, 0x110000))
    points = [
        point
        for point in np.flatnonzero(stable_characters()).tolist()
        if point % 64 == 0 or not any(first <= point < end for first, end in blocks)
    ]
    assert len(points) > 25_000
    for context in CONTEXTS:
        assert differing(name, points, context) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "context"), [("deepseek-v3", " {} "), ("qwen-3", "{}'s"), ("qwen-3", "a{}\u0323\u0301")]
)
def test_libraries_differ_on_unstable_characters(name, context):
    """Control: without the table, ids would be wrong."""
    if {package: metadata.version(package) for package in MEASURED} != MEASURED:
        pytest.skip("measured with other versions")
    points = [
        point for point in np.flatnonzero(~stable_characters()).tolist() if point < 0xD800 or 0xE000 <= point < 0x1E700
    ]
    assert len(differing(name, points, context)) > 50
