"""Terminal output shows the trace, fits the terminal, and cannot be controlled by a text.

INLAYER_SNAPSHOTS=write pytest tests/trace/test_terminal.py      # updates the snapshots; review the difference
"""

from __future__ import annotations

import io
import math
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from inlayer.errors import InputError
from inlayer.facts_base import plain
from inlayer.render.glyphs import LEFT_TO_RIGHT, NUMBER, glyphs_for, number
from inlayer.tokenizers import ByteTokenizer
from inlayer.tokenizers.base import text_of_bytes
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.terminal import show
from tests.trace.pipelines import FAMILIES, family, random_bytes, sample

SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDTHS = (60, 80, 120)
TITLE = re.compile(r"^(?:──|--) (\d)  ")
DECIMAL = re.compile(r"(?<![\w.,])-?\d+\.\d+(?:e-?\d+)?(?![\w.])|(?<![\w.,])-?\d(?:\.\d)?e-?\d+")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")

HOSTILE = [
    "",
    " ",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "a\nb\r\nc\td\0\x7f\x85\u2028",
    "日本語 ｆｕｌｌ 한국어",
    "مرحبا بالعالم 123 שלום",
    "\u202eevil\u202c \u2066x\u2069 \u200f\u061c",
    "e\u0301 Z" + "\u0353" * 40 + "a" + "\u030d" * 40,
    "👩\u200d👩\u200d👧 👍🏽 🇩🇪 ❤\ufe0f 1\ufe0f\u20e3",
    "ไทยั हिन्दी \u1100\u1161\u11a8",
    "[bold]x[/bold] :smile: \\n [link=x]",
    "\ufffd\ufeff\ufff9\U000e0041\u00ad",
    "<|endoftext|><pad>",
    "x" * 5000,
    "word " * 400,
    "𝔘𝔫𝔦" * 100,
]


def rendered(
    trace: Trace, columns: int, *, step: int | None = None, encoding: str = "utf-8", color: bool = False
) -> str:
    """Print in a strict encoding, with true color or none."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    system = "truecolor" if color else None
    show(
        trace, Console(file=file, width=columns, color_system=system, force_terminal=color, highlight=False), step=step
    )
    file.flush()
    return raw.getvalue().decode(encoding)


def check_lines(printed: str, columns: int) -> None:
    for line in printed.split("\n"):
        assert cell_len(line) <= columns
        assert not line.endswith(" ")
        for character in line:
            if character != LEFT_TO_RIGHT:
                assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), ascii(line)
    assert [match[1] for line in printed.split("\n") if (match := TITLE.match(line))] == list("12345678")


# ---- snapshots


@cache
def snapshots() -> dict[str, Trace]:
    pipeline = sample("default")
    change = Change(positions="sinusoidal", theta=100.0, swap=(0, 2), pad=2)
    return {
        "one": pipeline.walk(["I love dogs"]),
        "odd": pipeline.walk(["<|endoftext|>naïve 🙂 日本語\n"]),
        "batch": pipeline.walk(["dogs love dogs, dogs love me", "I love"]),
        "changed": pipeline.walk(["I love dogs"], change=change),
        "wide": pipeline.walk(["I love dogs"], dims=32),
    }


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", ["one", "odd", "batch", "changed", "wide"])
def test_snapshot(name: str, columns: int) -> None:
    printed = rendered(snapshots()[name], columns)
    file = SNAPSHOTS / f"{name}-{columns}.txt"
    if os.environ.get("INLAYER_SNAPSHOTS") == "write":
        file.write_text(printed, encoding="utf-8")
    stored = file.read_text(encoding="utf-8")
    # Another processor may round the last digit of a gradient differently; everything else is equal.
    assert DECIMAL.sub("#", printed) == DECIMAL.sub("#", stored)
    ours, theirs = ([float(found) for found in DECIMAL.findall(text)] for text in (printed, stored))
    assert ours == pytest.approx(theirs, rel=0.03, abs=1.1e-4)
    check_lines(printed, columns)


# ---- hostile texts


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_keep_the_layout(text: str) -> None:
    check_lines(rendered(sample("default").walk([text], dims=9, max_tokens=16), 30), 30)
    check_lines(rendered(sample("default").walk([text, "Hi", text], max_tokens=16), 80), 80)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=3), st.sampled_from((37, 60, 101)))
def test_random_texts_keep_the_layout(texts: list[str], columns: int) -> None:
    check_lines(rendered(sample("default").walk(texts), columns), columns)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_fits_the_width(name: str) -> None:
    check_lines(rendered(family(name).walk(["I love dogs and dogs"]), 60), 60)


@pytest.mark.parametrize(
    ("text", "encoding"), list(zip(HOSTILE[2:11], ["ascii", "latin-1", "cp437"] * 3, strict=True)), ids=range(9)
)
def test_characters_outside_the_encoding_are_escaped(text: str, encoding: str) -> None:
    printed = rendered(
        sample("default").walk([text, "naïve"]), 80, encoding=encoding
    )  # strict: raises on characters outside the encoding
    check_lines(printed, 80)
    assert "na\\u00efve" in printed or encoding != "ascii"


def test_partial_characters_are_shown_as_bytes() -> None:
    printed = rendered(sample("default").walk(["🙂"]), 80)
    assert "\ufffd" not in printed
    assert all(f"\\x{byte:02x}" in printed for byte in "🙂".encode())
    assert "f0 9f 99 82" in printed


def test_right_to_left_text_keeps_its_columns() -> None:
    printed = rendered(random_bytes("none").walk(["שלום"]), 80, step=1)
    characters = next(line for line in printed.split("\n") if "ש" in line)
    assert characters.split() == [f"{letter}{LEFT_TO_RIGHT}" for letter in "שלום"]


# ---- content


def values_of(facts: object) -> Iterator[float]:
    if isinstance(facts, dict):
        facts = list(facts.values())
    if isinstance(facts, list):
        for one in facts:
            yield from values_of(one)
    elif isinstance(facts, float):
        yield facts
        yield abs(facts)  # the scale of a heat strip
    elif facts in ("nan", "inf", "-inf"):
        yield float(str(facts))


def printable_numbers(trace: Trace) -> set[str]:
    return {number(value, power=power) for value in values_of(plain(trace)) for power in (False, True)}


def printed_numbers(trace: Trace) -> set[str]:
    printed = "".join(rendered(trace, 120, step=step) for step in (5, 6, 7, 8))
    printed = re.sub(r"active_layer\(.*", "", printed)
    notes = " ".join(step.note for step in trace.steps)
    return {found for found in DECIMAL.findall(printed) if found not in notes}


@pytest.mark.parametrize("name", ["one", "batch", "changed"])
def test_every_printed_number_is_in_the_trace(name: str) -> None:
    trace = snapshots()[name]
    shown, held = printed_numbers(trace), printable_numbers(trace)
    assert len(shown) > 50
    assert shown <= held
    text = trace.texts[0]
    other = replace(text, tokens=[replace(token, row=[value + 0.1 for value in token.row]) for token in text.tokens])
    assert not printed_numbers(replace(trace, texts=[other, *trace.texts[1:]])) <= held


def test_single_step() -> None:
    trace = sample("default").walk(["I love dogs"])
    whole = rendered(trace, 80)
    for step in range(1, 9):
        printed = rendered(trace, 80, step=step)
        assert [match[1] for line in printed.split("\n") if (match := TITLE.match(line))] == [str(step)]
        assert printed.partition(f" {step}  ")[2].rstrip() in whole
        assert "sample" in printed  # every output names the model
    for step in (0, 9, -1):
        with pytest.raises(InputError, match=r"1\.\.8"):
            rendered(trace, 80, step=step)


def test_titles_notes_and_code_are_printed() -> None:
    trace = sample("default").walk(["I love dogs"])
    printed = " ".join(rendered(trace, 120).split())
    for step in trace.steps:
        for text in (step.title, step.note, step.code):
            assert text in printed


def test_color_changes_only_the_heat_strips() -> None:
    trace = sample("default").walk(["I love dogs", "naïve"])
    colored, bare = rendered(trace, 80, color=True), rendered(trace, 80)
    assert "\x1b[" in colored
    assert "\x1b" not in bare
    blocks = re.compile("[▁▂▃▄▅▆▇]")
    assert blocks.sub("▇", ESCAPE.sub("", colored)) == blocks.sub("▇", bare)
    assert len(set(blocks.findall(bare))) == 7
    raw = io.StringIO()
    show(trace, Console(file=raw, width=80, force_terminal=True, no_color=True, highlight=False))
    assert ESCAPE.sub("", raw.getvalue()) == bare  # NO_COLOR keeps bold and dim; heat strips use heights


def test_long_texts_are_truncated() -> None:
    trace = sample("default").walk(["ab cd " * 5000])
    printed = rendered(trace, 80)
    assert len(printed.splitlines()) < 160
    assert f"and {trace.shape[1] - 12:,} more tokens" in printed
    assert re.search(r"and 9,9\d\d more pre-tokens", printed)


def test_large_batches_are_truncated() -> None:
    printed = rendered(sample("default").walk(["I love dogs"] * 100), 80)
    assert "and 96 more texts" in printed
    assert len(printed.splitlines()) < 260


def test_padding_and_mask_are_shown() -> None:
    printed = rendered(sample("default").walk(["I love dogs", "Hi"]), 80, step=7)
    assert "text 1  mask 1 1 1 1\n" in printed
    assert "text 2  mask 1 1 0 0\n" in printed
    assert "its values are all zero\n" in printed
    added = rendered(random_bytes("learned").walk(["I love dogs", "Hi"]), 80, step=7)
    assert "added by later stages" in " ".join(added.split())


def test_stages_are_shown_by_name() -> None:
    printed = rendered(family("electra").walk(["I love dogs"]), 80, step=7)
    assert re.search(r"I  row .*\n +\+ token type .*\n +\+ position .*\n +norm .*\n +projection ", printed)
    assert re.search(r"\n +scale ", rendered(family("gemma").walk(["I love dogs"]), 80, step=7))


def test_added_positions_are_shown_as_sums() -> None:
    trace = random_bytes("learned").walk(["Hi"])
    printed = rendered(trace, 120, step=6)
    for token in trace.texts[0].tokens:
        added = token.stages[0].added
        assert added is not None
        for name, vector in (("row", token.row), (f"+ position {token.position}", added), ("= sum", token.hidden)):
            shown = " ".join(f"{number(value):>{NUMBER}}" for value in vector)
            assert re.search(rf"{re.escape(name)} +{re.escape(shown.strip())}", printed)


def test_scaled_and_unscaled_angles_are_shown() -> None:
    scaled = rendered(family("llama-3.1").walk(["I love dogs"]), 80, step=6)
    assert re.search(r"\n +unscaled +pair 0", scaled)
    assert "unscaled  pair" not in rendered(sample("default").walk(["I love dogs"]), 80, step=6)
    assert "does not change the pairs shown" in rendered(family("deepseek_v3").walk(["I love dogs"]), 80, step=6)
    both = rendered(family("gemma3_text-new").walk(["I love dogs"]), 80, step=6)
    assert both.index("full_attention: theta 1,000,000") < both.index("sliding_attention: theta 20,000")


def test_backward_step_shows_gradients() -> None:
    trace = sample("default").walk(["dogs love dogs", "Hi"])
    assert trace.backward is not None
    printed = rendered(trace, 120, step=8)
    for row in trace.backward.rows[:8]:
        assert re.search(rf" {row.id} +{row.count} +{re.escape(number(row.norm))} ", printed)
    assert re.search(r"lookup .*\n +\+ head .*\n +\+? ?= total ", printed)
    assert "without padding_idx it would receive" in printed
    assert "+ head" not in rendered(family("llama").walk(["I love dogs"]), 120, step=8)


@pytest.mark.parametrize(
    ("texts", "options", "last"),
    [
        (["I love dogs"], {"first_token": 2}, ["tokens 2 to 3 of 4"]),
        (["I love dogs"], {"first_token": 1, "max_tokens": 2}, ["tokens 1 to 2 of 4"]),
        (["I love dogs"], {"max_tokens": 2}, ["… and 2 more tokens"]),
        (["I love dogs"], {"change": Change(pad=2)}, ["4  <pad>  6142  padding", "5  <pad>  6142  padding"]),
        (["I love dogs"], {"change": Change(pad=3)}, ["4  <pad>  6142  padding", "… and 2 more padding tokens"]),
        (
            ["I love dogs", "hi"],
            {"first_token": 2, "change": Change(pad=2)},
            ["2  <pad>  6142  padding", "the text ends after 1 token", "… and 3 more padding tokens"],
        ),
    ],
)
def test_omitted_tokens_are_counted(texts: list[str], options: dict[str, Any], last: list[str]) -> None:
    printed = rendered(sample("default").walk(texts, **options), 80, step=3).partition("   merges")
    lines = [line.strip() for line in (printed[2] if len(texts) > 1 else printed[0]).splitlines()]
    assert lines[-len(last) :] == last


def test_notes_wrap_in_a_narrow_terminal() -> None:
    printed = rendered(sample("default").walk(["I love dogs"]), 40)
    check_lines(printed, 40)
    words = " ".join(printed.split())
    assert "one_hot @ table is equal to these rows, compared over all 6,144 rows" in words
    assert "without the decoder, which is why it is above the uniform guess. It is computed in float32" in words
    assert "▄ zero ▇ positive" in words
    assert not re.search(r"[a-z]…\n", printed.partition("5  embedding lookup")[2])


def test_notes_are_cut_between_words() -> None:
    printed = rendered(family("bert").walk(["I love dogs"]), 40, step=7)
    assert "because there is only …\n" in printed
    assert "……" not in printed


def test_right_to_left_notes_keep_their_order() -> None:
    layer = random_bytes("none").layer
    printed = rendered(Pipeline.from_layer(layer, ByteTokenizer(), source="שלום").walk(["a"]), 80)
    assert printed.startswith(f"שלום{LEFT_TO_RIGHT}\n")


def test_first_token_keeps_the_space_that_sentencepiece_put_before_it() -> None:
    lines = rendered(sample("wordllama").walk(["king king"]), 80, step=3).splitlines()
    assert [line.split()[:3] for line in lines[-2:]] == [["1", "␣king", "6989"], ["2", "␣king", "6989"]]


def test_inputs_embeds_are_shown_as_vectors() -> None:
    vectors = torch.randn(2, 3, 128, generator=torch.Generator().manual_seed(0))
    trace = sample("default").walk(None, inputs_embeds=vectors)
    printed = rendered(trace, 80)
    check_lines(printed, 80)
    assert "vector 2" in printed
    assert "one_hot" not in printed


def test_values_that_are_not_finite() -> None:
    pipeline = Pipeline.random(["Hi"], ByteTokenizer())
    with torch.no_grad():
        pipeline.layer.token_embedding.weight[ord("H")] = torch.tensor(
            [math.nan, math.inf, -math.inf, 3e38, 1e-45, -1.25e-6, 0, 12345.678]
        )
    printed = rendered(pipeline.walk(["Hi"]), 120, step=5)
    assert re.search(r" H +nan +inf +-inf +3\.0e38 +1\.4e-45 +-1\.2e-6 +0 +1\.2e4 +\?▇▁▇▅▃▄▅", printed)
    assert "not equal" in printed
    assert "? not a number" in printed
    with torch.no_grad():
        pipeline.layer.token_embedding.weight.fill_(math.nan)
    assert "±" not in rendered(pipeline.walk(["Hi"]), 120, step=5)  # there is no scale
    check_lines(rendered(pipeline.walk(["Hi"]), 80), 80)


# ---- glyphs


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.25, "0.2500"),
        (-9.87654, "-9.8765"),
        (9.99999, "10.0000"),
        (-9.99999, "-10.000"),
        (123.456, "123.46"),
        (-9999.9, "-9999.9"),
        (12345.0, "1.2e4"),
        (0.000999, "1.0e-3"),
        (1.2e-05, "1.2e-5"),
        (-1.2e-38, "-1e-38"),
        (-3.4e38, "-3.4e38"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_number_format(value: float, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(width=32), st.booleans())
def test_numbers_fit_and_keep_their_value(value: float, power: bool) -> None:
    shown = number(value, power=power)
    assert len(shown) <= NUMBER
    assert float(shown) == pytest.approx(value, rel=0.5, nan_ok=True)
    assert (shown == "0") == (value == 0)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=20))
def test_heat_strips_increase_with_the_values(values: list[float]) -> None:
    values.sort()
    for encoding in ("utf-8", "ascii"):
        glyphs = glyphs_for(encoding, color=False)
        levels = [glyphs.strip.index(glyph) for glyph in glyphs.heat(values, max(map(abs, values))).plain]
        assert levels == sorted(levels)
        assert all(
            (level > 3) - (level < 3) == (value > 0) - (value < 0) for level, value in zip(levels, values, strict=True)
        )


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("dog", 3, "dog"),
        (" dogs", 4, "␣do…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("a\x1b\u202e", 11, "a\\x1b\\u202e"),
        ("e\u0301", 1, "e\u0301"),
        ("\u0301e", 10, "\\u0301e"),
        ("👍🏽", 12, "👍\\U0001f3fd"),
        ("x", 0, ""),
        ("\xa0", 6, "\\u00a0"),  # not the byte \\xa0
    ],
)
def test_fold_escapes_and_truncates(text: str, columns: int, shown: str) -> None:
    assert glyphs_for("utf-8", color=False).truncate(text, columns) == shown
    assert glyphs_for("utf-8", color=False).truncate_bytes(text.encode().hex(), columns) == shown


@pytest.mark.parametrize("data", [b" \xe2\x80", b"\xff", "é".encode() + b"\x80 \n"])
def test_one_notation_of_bytes(data: bytes) -> None:
    """On the terminal, in JSON and on pages (tests/browser/test_map.py), from bytes and from labels."""
    glyphs = glyphs_for("utf-8", color=False)
    assert glyphs.truncate_bytes(data.hex(), 40) == glyphs.truncate(text_of_bytes(data), 40)
    assert glyphs.truncate_bytes(b" \xe2\x80".hex(), 7) == "␣\\xe2…"


def test_empty_text_and_one_pre_token() -> None:
    printed = rendered(sample("default").walk([""]), 80)
    assert printed.count("an empty text has no tokens, so the steps below are empty") == 1
    assert "an empty text" not in rendered(sample("default").walk(["", "a"]), 80)
    steps = printed.split("\n\n")[1:]
    assert [len(step.splitlines()) for step in steps] == [2, 2, 3, 3, 2, 3, 2, 2]  # no empty tables
    assert not any("one_hot" in step or "boundaries" in step for step in steps)
    assert "1 pre-token; no token crosses its boundaries" in rendered(sample("default").walk(["a"]), 80)
