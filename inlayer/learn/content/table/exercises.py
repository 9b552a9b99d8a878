"""Exercises for lesson 2: sizes, bytes, initialization."""

from __future__ import annotations

import math
import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option, Value
from inlayer.render.numbers import pluralize

__all__ = ["EXERCISES"]

TABLES = {
    "Kimi-K2": (163_840, 7_168),
    "DeepSeek-V3": (129_280, 7_168),
    "Llama-3.1-8B": (128_256, 4_096),
    "GPT-2": (50_257, 768),
    "OLMo-2-7B": (100_352, 4_096),
}
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


def parameters(draw: random.Random) -> NumberQuestion:
    """parameters of a table"""
    name, (rows, width) = draw.choice(list(TABLES.items()))
    return NumberQuestion(
        text=f"The table of {name} has {rows:,} rows of width {width:,}. How many parameters is that?",
        answer=rows * width,
        tolerance=0.005,
        explanation=f"V · D = {rows:,} · {width:,} = {rows * width:,}.",
        common_mistakes={
            rows + width: "Multiply the sizes: every row has all columns.",
            2 * rows * width: "That would include the head. The question is about the table.",
        },
    )


def table_memory(draw: random.Random) -> NumberQuestion:
    """bytes of a table"""
    name, (rows, width) = draw.choice(list(TABLES.items()))
    dtype, each = draw.choice(list(DTYPES.items()))
    return NumberQuestion(
        text=f"How many bytes does a table of {rows:,} x {width:,} ({name}) take in {dtype}?",
        answer=rows * width * each,
        unit="bytes",
        tolerance=0.005,
        explanation=(
            f"{rows:,} · {width:,} values of {pluralize(each, 'byte')}: {rows * width * each:,} bytes, "
            f"{rows * width * each / 1e9:.2f} GB."
        ),
        common_mistakes={
            rows * width * other: f"That would be {pluralize(other, 'byte')} per value; {dtype} has {each}."
            for other in (1, 2, 4, 8)
            if other != each
        },
    )


def both_ends(draw: random.Random) -> NumberQuestion:
    """bytes of table and head"""
    name, (rows, width) = draw.choice([("Kimi-K2", TABLES["Kimi-K2"]), ("DeepSeek-V3", TABLES["DeepSeek-V3"])])
    once = rows * width * 2
    return NumberQuestion(
        text=f"{name}'s config says vocab_size {rows:,}, hidden_size {width:,}, bfloat16, tie_word_embeddings false. "
        "How many bytes do its token table and its head take together?",
        answer=2 * once,
        unit="bytes",
        tolerance=0.005,
        explanation=f"Not tied, so there are two: 2 · {once / 1e9:.2f} GB = {2 * once / 1e9:.2f} GB.",
        common_mistakes={
            once: "That is one of the two. tie_word_embeddings is false, so the head is a separate matrix.",
            4 * once: "bfloat16 takes 2 bytes per value, not 4.",
        },
    )


def row_start(draw: random.Random) -> NumberQuestion:
    """the offset of a row"""
    width, token_id = draw.choice((128, 768, 4_096)), draw.randint(50, 5_000)
    start = 8 * draw.randint(10, 90)
    return NumberQuestion(
        text=(
            f"In a file, a bfloat16 table starts at byte {start}, and its rows are {width:,} wide. At which "
            f"byte does the row of id {token_id:,} start?"
        ),
        answer=start + token_id * width * 2,
        unit="bytes",
        explanation=f"Row i starts i rows after the first: {start} + {token_id:,} · {width:,} · 2, without a search.",
        common_mistakes={
            start + token_id * width: "A bfloat16 value takes two bytes.",
            start + (token_id - 1) * width * 2: "Ids start at 0: there are i rows before the row of id i.",
            token_id * width * 2: "The table does not start at byte 0 of the file.",
        },
    )


def row_norm(draw: random.Random) -> NumberQuestion:
    """the norm of a new row"""
    width, std = draw.choice((1_024, 4_096, 16_384)), draw.choice((1.0, 0.02, 0.05))
    length = std * math.sqrt(width)
    mistakes: dict[Value, str] = {
        std * width: "Squares are added under the root, so the norm grows with √D, not with D.",
        std: "That is the typical size of one value. A row has many.",
    }
    if std != 1:  # otherwise the variance is equal
        mistakes[math.sqrt(std * width)] = f"{std:g} is the standard deviation; the variance is its square."
    return NumberQuestion(
        text=(
            f"Rows of width {width:,} are drawn from a normal distribution with mean 0 and standard deviation {std:g}. "
            "What is the approximate (Euclidean) norm of a row?"
        ),
        answer=length,
        tolerance=0.03,
        explanation=f"std · √D = {std:g} · {math.sqrt(width):g} = {length:g}.",
        common_mistakes=mistakes,
    )


def after_init(draw: random.Random) -> ChoiceQuestion:
    """initialization, step by step"""
    rows, padding, std = draw.randint(50, 900), draw.randint(0, 9), draw.choice((0.02, 0.01, 0.05))
    return ChoiceQuestion(
        text=(
            f"table = nn.Embedding({rows}, 64, padding_idx={padding}), then nn.init.normal_(table.weight, "
            f"std={std:g}). What does the table contain now?"
        ),
        options=(
            Option(
                text=f"All rows from N(0, {std:g}), including row {padding}.",
                correct=True,
                reason="Drawing fills the whole table. The padding row must be zeroed again.",
            ),
            Option(
                text=f"All rows from N(0, {std:g}), row {padding} zero.",
                correct=False,
                reason="It was zero after the first line. nn.init does not know about padding_idx and fills the row.",
            ),
            Option(
                text=f"All rows from N(0, 1), row {padding} zero.",
                correct=False,
                reason="That is the state after the first line. The second line draws again.",
            ),
            Option(
                text=f"The sum of both draws, row {padding} zero.",
                correct=False,
                reason="normal_ replaces the old values. It does not add to them.",
            ),
        ),
    )


def what_rows_mean(draw: random.Random) -> FreeTextQuestion:
    """what a row means"""
    del draw  # the same question every time
    return FreeTextQuestion(
        text='Someone says: "Embeddings know that king - man + woman = queen, and every dimension stands for a '
        'property." What would you answer, and what would you try?',
        sample_answer=(
            "In a new table, rows are random and mean nothing. After training, rows of tokens used in "
            "similar ways are close together, and some differences point in similar directions. But the row "
            "closest to the sum is usually king itself. The famous result appears when the three input words "
            "are excluded, and queen is a neighbor of king anyway. A rotation of all rows keeps every cosine "
            "similarity and mixes all columns, so similarity does not single out any dimension. I would list "
            "the rows closest to the sum, including the inputs."
        ),
        points=(
            "meaning comes from training; a new table has none",
            "the row closest to the sum is usually one of the inputs",
            "queen is close to king without any arithmetic",
            "directions may have meaning; a single column need not",
        ),
    )


EXERCISES = (parameters, table_memory, both_ends, row_start, row_norm, after_init, what_rows_mean)
