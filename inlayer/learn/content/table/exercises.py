"""Exercises of lesson 2: sizes, bytes, births."""

from __future__ import annotations

import math
import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]

TABLES = {
    "Kimi-K2": (163_840, 7_168),
    "DeepSeek-V3": (129_280, 7_168),
    "Llama 3.1 8B": (128_256, 4_096),
    "GPT-2": (50_257, 768),
    "the exercise": (100_352, 4_096),
}
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


def parameters(draw: random.Random) -> NumberQuestion:
    """numbers in a table"""
    name, (rows, width) = draw.choice(list(TABLES.items()))
    return NumberQuestion(
        text=f"The table of {name} has {rows:,} rows of width {width:,}. How many parameters is that?",
        answer=rows * width,
        tolerance=0.005,
        explanation=f"V · D = {rows:,} · {width:,} = {rows * width:,}.",
        common_mistakes={
            rows + width: "The sizes are multiplied: every row has all the columns.",
            2 * rows * width: "That would be the head too; the question is about the table.",
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
        explanation=f"{rows:,} · {width:,} numbers of {each} bytes: {rows * width * each:,} bytes, "
        f"{rows * width * each / 1e9:.2f} GB.",
        common_mistakes={
            rows * width * other: f"That would be {other} bytes a number; {dtype} has {each}."
            for other in (1, 2, 4, 8)
            if other != each
        },
    )


def both_ends(draw: random.Random) -> NumberQuestion:
    """bytes at both ends"""
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
            once: "That is one of the two; tie_word_embeddings is false, so the head has rows of its own.",
            4 * once: "bfloat16 takes 2 bytes a number, not 4.",
        },
    )


def row_start(draw: random.Random) -> NumberQuestion:
    """where a row begins"""
    width, token_id = draw.choice((128, 768, 4_096)), draw.randint(50, 5_000)
    start = 8 * draw.randint(10, 90)
    return NumberQuestion(
        text=f"In a file, a table in bfloat16 begins at byte {start}, and its rows are {width:,} wide. At which byte "
        f"does the row of id {token_id:,} begin?",
        answer=start + token_id * width * 2,
        unit="bytes",
        explanation=f"Row i begins i rows after the first: {start} + {token_id:,} · {width:,} · 2. Nothing is searched "
        "for.",
        common_mistakes={
            start + token_id * width: "A number of bfloat16 takes two bytes.",
            start + (token_id - 1) * width * 2: "Ids count from 0: before the row of id i lie i rows.",
            token_id * width * 2: "The table does not begin at byte 0 of the file.",
        },
    )


def row_norm(draw: random.Random) -> NumberQuestion:
    """how long a new row is"""
    width, std = draw.choice((1_024, 4_096, 16_384)), draw.choice((1.0, 0.02, 0.05))
    length = std * math.sqrt(width)
    return NumberQuestion(
        text=f"Rows of width {width:,} are drawn from N(0, {std:g}). About how long (Euclidean norm) is a row?",
        answer=length,
        tolerance=0.03,
        explanation=f"std · √D = {std:g} · {math.sqrt(width):g} = {length:g}.",
        common_mistakes={
            std * width: "Squares are added under the root, so the length grows with √D, not with D.",
            std: "That is the size of one number; a row has many.",
        },
    )


def after_init(draw: random.Random) -> ChoiceQuestion:
    """three steps of a birth"""
    rows, padding, std = draw.randint(50, 900), draw.randint(0, 9), draw.choice((0.02, 0.01, 0.05))
    return ChoiceQuestion(
        text=f"table = nn.Embedding({rows}, 64, padding_idx={padding}), then nn.init.normal_(table.weight, "
        f"std={std:g}). What is there now?",
        options=(
            Option(
                text=f"all rows from N(0, {std:g}), row {padding} too",
                correct=True,
                reason="Drawing fills the whole table; the padding row must be zeroed again.",
            ),
            Option(
                text=f"all rows from N(0, {std:g}), row {padding} zero",
                correct=False,
                reason="It was zero after the first line. nn.init knows nothing about padding_idx and fills the row.",
            ),
            Option(
                text=f"all rows from N(0, 1), row {padding} zero",
                correct=False,
                reason="That is the state after the first line; the second one draws again.",
            ),
            Option(
                text=f"numbers of both draws added, row {padding} zero",
                correct=False,
                reason="normal_ replaces what was there; it adds nothing.",
            ),
        ),
    )


def what_rows_mean(draw: random.Random) -> FreeTextQuestion:
    """what a row means"""
    del draw  # always the same question
    return FreeTextQuestion(
        text='Somebody says: "embeddings know that king - man + woman = queen, and every dimension stands for a '
        'property". What would you answer, and what would you try out?',
        model_answer="In a new table rows are random and mean nothing. After training, rows of tokens used alike are "
        "near each other, and some differences point in similar directions. But the row nearest to the sum is usually "
        "king itself; the result appears when the three words of the question are left out, and queen is a neighbor "
        "of king anyway. A rotation of all rows keeps every cosine and mixes all columns, so likeness names no single "
        "dimension. I would list the nearest rows to the sum, with the inputs left in.",
        points=(
            "meaning comes from training; at birth there is none",
            "the nearest row to the sum is usually one of the inputs",
            "queen is near king without any arithmetic",
            "directions may mean something; a single column need not",
        ),
    )


EXERCISES = (parameters, table_memory, both_ends, row_start, row_norm, after_init, what_rows_mean)
