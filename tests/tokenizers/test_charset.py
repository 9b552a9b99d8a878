"""The table of settled characters: against its generator, and per code point against the libraries."""

import unicodedata
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import pytest
import tokenizers

from inlayer.errors import TextError
from inlayer.tokenizers.charset import RUNS, settled_table, unsettled_texts
from tests.tokenizers.make_charset import run_lengths
from tests.tokenizers.samples import YOUNG, counted

MEASURED = {"gigatoken": "0.10.0", "tokenizers": "0.23.3"}  # the versions whose differences the controls expect

# Contexts where the class of a character decides a cut that changes ids, and where marks are put in order.
CONTEXTS = (" {} ", "{}'s", "a{}\u0323\u0301")


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="generated with Unicode 14 (Python 3.11)")
def test_table_is_what_its_generator_makes():
    assert [int(length) for length in RUNS.split()] == run_lengths()


def test_table_covers_every_code_point():
    table = settled_table()
    assert table.shape == (0x110000,)
    assert table[:0xD800].any()
    assert not table[0xD800:0xE000].any()
    for text in YOUNG:
        assert not table[ord(text)]
    for text in "aé中ひ한🙂🫠\u0301\n\u3000\0":
        assert table[ord(text)]


def test_texts_are_told_apart_across_blocks(monkeypatch):
    monkeypatch.setattr("inlayer.tokenizers.charset.BLOCK_CHARACTERS", 5)
    texts = ["abc", "é", "é\U000329ee", "", "中文字", "\u1acf", "🙂", "x\ufdd0y"]
    assert unsettled_texts(texts).tolist() == [2, 5, 7]
    assert unsettled_texts([]).tolist() == []
    with pytest.raises(TextError, match=r"text 3 holds the lone surrogate U\+DC00 at position 1"):
        unsettled_texts(["é", "a", "\U000329ee", "é\udc00"])


@cache
def libraries(name: str) -> tuple[Any, tokenizers.Tokenizer]:
    gigatoken = pytest.importorskip("gigatoken")
    data = counted(name)
    return gigatoken.Tokenizer.from_json(data), tokenizers.Tokenizer.from_str(data.decode())


def differing(name: str, code_points: list[int], context: str) -> set[int]:
    """Code points whose text gigatoken and tokenizers cut differently."""
    texts = [context.format(chr(code_point)) for code_point in code_points]
    fast, exact = libraries(name)
    theirs = exact.encode_batch_fast(texts, add_special_tokens=False)
    layout = fast.encode_batch(texts).layout
    ours = np.split(np.asarray(layout.content.data), np.asarray(layout.offsets.data)[1:-1])
    return {point for point, one, other in zip(code_points, ours, theirs, strict=True) if one.tolist() != other.ids}


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen-3"])
def test_libraries_agree_on_settled_characters(name):
    # every settled character, but of the big uniform blocks (ideographs, syllables, private use) one in 64
    blocks = ((0x3400, 0xA000), (0xAC00, 0xF900), (0x17000, 0x18D00), (0x20000, 0x110000))
    points = [
        point
        for point in np.flatnonzero(settled_table()).tolist()
        if point % 64 == 0 or not any(first <= point < end for first, end in blocks)
    ]
    assert len(points) > 25_000
    for context in CONTEXTS:
        assert differing(name, points, context) == set()


@pytest.mark.parametrize(
    ("name", "context"), [("deepseek-v3", " {} "), ("qwen-3", "{}'s"), ("qwen-3", "a{}\u0323\u0301")]
)
def test_libraries_do_differ_on_unsettled_characters(name, context):
    """The control: without the table, ids would be wrong."""
    if {package: metadata.version(package) for package in MEASURED} != MEASURED:
        pytest.skip("measured with other versions")
    points = [
        point for point in np.flatnonzero(~settled_table()).tolist() if point < 0xD800 or 0xE000 <= point < 0x1E700
    ]
    assert len(differing(name, points, context)) > 50
