"""Exercises for lesson 4: positions."""

from __future__ import annotations

import math
import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def sum_of_rows(draw: random.Random) -> NumberQuestion:
    """one channel of a hidden state"""
    token, position = (tuple(draw.randint(-99, 99) / 100 for _ in range(3)) for _ in range(2))
    first = tuple(draw.randint(-99, 99) / 100 for _ in range(3))
    channel = draw.randint(0, 2)
    answer = round(token[channel] + position[channel], 2)
    near = {
        round(token[channel] * position[channel], 4): "The two rows are added, not multiplied.",
        round(token[channel] + first[channel], 2): "That is the row of position 0. The second token is at position 1.",
        token[channel]: "That is the token's row alone. Learned positions are added to it.",
    }
    return NumberQuestion(
        text=(
            f"A learned position table starts with row 0 = {first} and row 1 = {position}. The second token "
            f"of a text has the row {token} in the token table. What is the value of channel {channel} of "
            "its hidden state?"
        ),
        answer=answer,
        explanation=f"{token[channel]} + {position[channel]} = {answer}: token row plus the row of position 1.",
        common_mistakes={wrong: why for wrong, why in near.items() if wrong != answer},
    )


def learned_parameters(draw: random.Random) -> NumberQuestion:
    """parameters of a position table"""
    vocab_size, width = draw.choice([(30_522, 768), (50_257, 768), (50_257, 1_024), (50_257, 1_600)])
    block_size = draw.choice([512, 1_024, 2_048])
    return NumberQuestion(
        text=(
            f"A model has a vocabulary of {vocab_size:,}, rows of width {width:,}, and learned positions "
            f"for {block_size:,} tokens. How many parameters does its position table have?"
        ),
        answer=block_size * width,
        explanation=f"{block_size:,} rows of {width:,} values. The vocabulary does not matter here.",
        common_mistakes={
            vocab_size * width: "That is the token table. The position table has one row per position.",
            block_size
            * vocab_size
            * width: "There is one row per position, not one for every token at every position.",
            (block_size + vocab_size) * width: "That is both tables together.",
        },
    )


def last_position(draw: random.Random) -> NumberQuestion:
    """the last position"""
    block_size = draw.choice([8, 512, 1_024, 2_048])
    return NumberQuestion(
        text=f"block_size is {block_size:,}. What is the largest position id that has a row in the table?",
        answer=block_size - 1,
        explanation=f"The positions are 0 to {block_size - 1:,}: {block_size:,} of them, starting at 0.",
        common_mistakes={block_size: "Positions start at 0, so that would be one row too many."},
    )


def wavelength(draw: random.Random) -> NumberQuestion:
    """the wavelength of a pair"""
    width = draw.choice([8, 16])
    pair = draw.randint(1, width // 2 - 1)
    slowness = 10_000 ** (2 * pair / width)
    return NumberQuestion(
        text=(
            f"In a sinusoidal encoding of width {width}, channels {2 * pair} and {2 * pair + 1} are the "
            f"sine and cosine of p / 10000^({2 * pair} / {width}). After how many tokens does this pair "
            "repeat? (Within one percent.)"
        ),
        answer=2 * math.pi * slowness,
        explanation=(
            f"A full rotation is 2π radians, and each token adds 1 / {slowness:,.5g} radian: 2π · "
            f"{slowness:,.5g} tokens."
        ),
        unit="tokens",
        tolerance=0.01,
        common_mistakes={
            slowness: "After that many tokens the angle is one radian. A full rotation is 2π radians.",
            2 * math.pi * 10_000 ** (pair / width): "The exponent is 2i / D, where i is the index of the pair.",
            2 * math.pi: "That is the first pair, which rotates by one radian per token.",
        },
    )


def pair_partner(draw: random.Random) -> NumberQuestion:
    """which channels form a pair"""
    width = draw.choice([32, 64, 128])
    channel = draw.randint(2, width // 2 - 2)
    return NumberQuestion(
        text=(
            f"Rotary positions with half-split pairs rotate heads of {width} channels. Which channel is "
            f"paired with channel {channel}?"
        ),
        answer=channel + width // 2,
        explanation=f"Channel i is paired with i + K/2, here {channel} + {width // 2}.",
        common_mistakes={
            channel ^ 1: "That is its neighbor: the interleaved pairing.",
            width - 1 - channel: "The second half is not reversed: 0 is paired with K/2, not with the last channel.",
        },
    )


def same_score(draw: random.Random) -> ChoiceQuestion:
    """which score stays the same"""
    query, distance, shift = draw.randint(20, 60), draw.randint(3, 9), draw.randint(70, 900)
    key = query - distance
    return ChoiceQuestion(
        text=(
            f"A query at position {query} and a key at position {key} are rotated by rotary positions and "
            "have a certain score. For which other positions of the same two vectors is the score the "
            "same?"
        ),
        options=(
            Option(
                text=f"Query at {query + shift}, key at {key + shift}.",
                correct=True,
                reason=(
                    f"Both shifted by {shift}: the distance is still {distance}, and the product depends on "
                    "nothing else."
                ),
            ),
            Option(
                text=f"Query at {key}, key at {query}.",
                correct=False,
                reason="The distance has the opposite sign, so the angle between the two does, too.",
            ),
            Option(
                text=f"Query at {2 * query}, key at {2 * key}.",
                correct=False,
                reason=f"Doubled, the distance is {2 * distance}: twice the angle in every pair.",
            ),
            Option(
                text="None: each position has its own angles.",
                correct=False,
                reason=(
                    "It does, but the product of two rotated vectors depends only on the difference of their angles."
                ),
            ),
        ),
    )


def bfloat16_positions(draw: random.Random) -> NumberQuestion:
    """a position in bfloat16"""
    position = 16 * draw.randint(130, 250) + draw.choice([3, 5, 11, 13])
    rounded = 16 * round(position / 16)
    return NumberQuestion(
        text=(
            "bfloat16 has 8 significant bits, so between 2,048 and 4,096 it can represent only multiples "
            f"of 16. Someone computes rotary angles in it, and position {position:,} is rounded to the "
            "nearest one. By how many radians is the angle of the fastest pair off (one radian per "
            "token)?"
        ),
        answer=abs(rounded - position),
        explanation=(
            f"{position:,} becomes {rounded:,}: {abs(rounded - position)} radians off, and a full rotation is "
            "6.28. Compute angles in float32 and cast only cos and sin."
        ),
        unit="radians",
        common_mistakes={
            0: "Not every integer can be represented: 8 significant bits give 256 steps, whatever the magnitude."
        },
    )


def where_order_enters(_: random.Random) -> ChoiceQuestion:
    """where Kimi-K2 gets its order from"""
    return ChoiceQuestion(
        text="Kimi-K2's input layer passes the rows on unchanged. Where does the order of the tokens come in?",
        options=(
            Option(
                text="In every attention block: parts of queries and keys are rotated by position.",
                correct=True,
                reason="Rotary positions act where tokens are compared, separately in each block.",
            ),
            Option(
                text="Once, before the first block: a sinusoidal encoding is added to the hidden states.",
                correct=False,
                reason="That is the Transformer of 2017. Here no positions are ever added.",
            ),
            Option(
                text="Nowhere: the ids are already in order.",
                correct=False,
                reason=(
                    "They are in the tensor, but the product of a query and a key does not depend on where "
                    "the two vectors are stored."
                ),
            ),
            Option(
                text="In the values of the attention, which are rotated.",
                correct=False,
                reason="Only queries and keys are rotated, not values. Positions take effect in the score.",
            ),
        ),
    )


def why_kimi_adds_no_positions(_: random.Random) -> FreeTextQuestion:
    """why Kimi-K2 adds no positions"""
    return FreeTextQuestion(
        text=(
            "You have written a wrapper that adds a sinusoidal encoding to the rows. BERT and GPT-2 add "
            "learned positions at the same point. Why does Kimi-K2 add nothing to its rows?"
        ),
        sample_answer=(
            "Because order comes in elsewhere: in every attention block, rotary positions rotate 64 "
            "channels of each query and key by angles that grow with the position. The product of a "
            "rotated query and a rotated key depends only on the difference of their positions, and "
            "attention needs the distance between two tokens. Added positions are absolute, and the "
            "model would have to learn to subtract them. Nothing is added to the rows, so the hidden "
            "states that enter the first block represent the token alone, and no channel has to encode "
            "two kinds of information. A learned table also has an end: 1,024 rows allow 1,024 tokens. "
            "An angle exists for every position and can be rescaled later (YaRN, for 131,072 tokens). "
            "Adding a sinusoidal encoding on top would provide the same information again, in a worse "
            "form."
        ),
        points=(
            "Order is not ignored: rotary positions provide it, in attention.",
            "They rotate queries and keys, not the rows and not the hidden states.",
            "A score then depends on the distance between two tokens, not on their absolute positions.",
            "The rows leave the layer unchanged: they represent the token and nothing else.",
            "A learned table has a last row; angles exist for every position and can be rescaled.",
        ),
    )


EXERCISES = (
    sum_of_rows,
    learned_parameters,
    last_position,
    wavelength,
    pair_partner,
    same_score,
    bfloat16_positions,
    where_order_enters,
    why_kimi_adds_no_positions,
)
