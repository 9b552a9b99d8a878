"""Exercises for lesson 11: per-layer embeddings."""

from __future__ import annotations

import random

from inlayer.learn.questions import FreeTextQuestion, NumberQuestion

__all__ = ["EXERCISES"]


def second_row_bytes(draw: random.Random) -> NumberQuestion:
    """bytes of a per-layer row"""
    layers, width = draw.choice([26, 30, 35]), draw.choice([128, 256, 512])
    tokens = draw.randint(3, 9)
    return NumberQuestion(
        text=(
            f"A model has {layers} blocks and per-layer vectors of width {width}, in bfloat16. How many bytes of the "
            f"second table do {tokens} distinct tokens read?"
        ),
        answer=tokens * layers * width * 2,
        unit="bytes",
        explanation=f"{tokens} rows of {layers} x {width} values with 2 bytes each.",
        common_mistakes={
            tokens * width * 2: "That is the vector of one block. A row has one for every block.",
            tokens * layers * width: "That is the number of values, not of bytes.",
            tokens * layers * width * 4: "A bfloat16 value takes 2 bytes.",
        },
    )


def channel_of_block(draw: random.Random) -> NumberQuestion:
    """where a block's vector starts"""
    layers, width = draw.choice([26, 30, 35]), draw.choice([128, 256, 512])
    block = draw.randint(3, layers - 3)
    return NumberQuestion(
        text=(
            f"A row of the second table has the vectors of {layers} blocks, each of width {width}, one after the "
            f"other. At which channel of the row does the vector of block {block} start? Both are numbered from 0."
        ),
        answer=block * width,
        explanation=f"{block} vectors of {width} channels come before it.",
        common_mistakes={
            (block - 1) * width: "One vector too early: blocks are numbered from 0.",
            (block + 1) * width: "That is where the next block's vector starts.",
            block * layers: "The vectors are stored back to back: multiply by the width, not by the number of blocks.",
            block: "That would be right for an interleaved layout. Here each block's vector is contiguous.",
        },
    )


def second_table(draw: random.Random) -> FreeTextQuestion:
    """why a second table"""
    model = draw.choice(["Gemma-3n", "Gemma-4"])
    return FreeTextQuestion(
        text=(
            f"{model} has a second table that is larger than its first. What is in a row of it, how is a block's "
            "vector computed, and why does such a large table cost so little time?"
        ),
        sample_answer=(
            "A row has one vector of width P for each of L blocks. It is scaled by the square root of P and split. "
            "The vector that enters the model is projected to L x P values, normalized for each block, and added; "
            "the sum is divided by the square root of 2. A lookup reads one row per token and multiplies nothing, "
            "so the table can stay in slow memory. A weight matrix of that size would be read in full for every token."
        ),
        points=(
            "one vector per block in a row: L x P",
            "token part and context part are added",
            "scale √P, norm per block, division by √2",
            "a lookup reads one row; its cost does not grow with the table",
        ),
    )


EXERCISES = (second_row_bytes, channel_of_block, second_table)
