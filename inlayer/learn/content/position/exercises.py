"""Theory exercises of the lesson on positions."""

from __future__ import annotations

import math
import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]

SEEDS = {"why_kimi_adds_no_positions": "001 advanced"}


def sum_of_rows(draw: random.Random) -> NumberQuestion:
    """one channel of a hidden state"""
    token, place = (tuple(draw.randint(-99, 99) / 100 for _ in range(3)) for _ in range(2))
    first = tuple(draw.randint(-99, 99) / 100 for _ in range(3))
    channel = draw.randint(0, 2)
    answer = round(token[channel] + place[channel], 2)
    near = {
        round(token[channel] * place[channel], 4): "The two rows are added, not multiplied.",
        round(
            token[channel] + first[channel], 2
        ): "That is the row of position 0. The second token stands at position 1.",
        token[channel]: "That is the token's row alone; learned positions are added to it.",
    }
    return NumberQuestion(
        text=(
            f"A table of learned positions begins with row 0 = {first} and row 1 = {place}. The second token of a text "
            f"has the row {token} in the token table. What does its hidden state hold in channel {channel}?"
        ),
        answer=answer,
        explanation=f"{token[channel]} + {place[channel]} = {answer}: the row of the token plus the row of its "
        "place, 1.",
        common_mistakes={wrong: why for wrong, why in near.items() if wrong != answer},
    )


def learned_parameters(draw: random.Random) -> NumberQuestion:
    """numbers in a table of positions"""
    vocab_size, width = draw.choice([(30_522, 768), (50_257, 768), (50_257, 1_024), (50_257, 1_600)])
    block_size = draw.choice([512, 1_024, 2_048])
    return NumberQuestion(
        text=(
            f"A model has a vocabulary of {vocab_size:,}, rows of width {width:,} and learned positions for "
            f"{block_size:,} tokens. How many numbers does its table of positions hold?"
        ),
        answer=block_size * width,
        explanation=f"{block_size:,} rows of {width:,} numbers. The vocabulary plays no part: a place is not a token.",
        common_mistakes={
            vocab_size * width: "That is the token table. Rows of positions are counted by the places.",
            block_size * vocab_size * width: "There is one row for each place, not one for each token at each place.",
            (block_size + vocab_size) * width: "These are both tables together.",
        },
    )


def last_position(draw: random.Random) -> NumberQuestion:
    """the last position there is"""
    block_size = draw.choice([8, 512, 1_024, 2_048])
    return NumberQuestion(
        text=f"block_size is {block_size:,}. Which is the largest position id that has a row in the table?",
        answer=block_size - 1,
        explanation=f"The positions are 0 to {block_size - 1:,}: {block_size:,} of them, counted from 0.",
        common_mistakes={block_size: "Counted from 0, that would already be one row too many."},
    )


def wavelength(draw: random.Random) -> NumberQuestion:
    """tokens until a wave comes round"""
    width = draw.choice([8, 16])
    pair = draw.randint(1, width // 2 - 1)
    slowness = 10_000 ** (2 * pair / width)
    return NumberQuestion(
        text=(
            f"Sinusoidal positions of width {width}: channels {2 * pair} and {2 * pair + 1} hold the sine and cosine "
            f"of p / 10000^({2 * pair} / {width}). After how many tokens does this pair come round? (To one per "
            "cent.)"
        ),
        answer=2 * math.pi * slowness,
        explanation=f"A turn is 2π radians, and a token adds 1 / {slowness:,.5g} of a radian: 2π · "
        f"{slowness:,.5g} tokens.",
        unit="tokens",
        tolerance=0.01,
        common_mistakes={
            slowness: "After so many tokens the angle is one radian. A whole turn is 2π of them.",
            2 * math.pi * 10_000 ** (pair / width): "The exponent is 2i / D, with i the number of the pair.",
            2 * math.pi: "That is the first pair, which turns by one radian a token.",
        },
    )


def pair_partner(draw: random.Random) -> NumberQuestion:
    """who is paired with whom"""
    width = draw.choice([32, 64, 128])
    channel = draw.randint(2, width // 2 - 2)
    return NumberQuestion(
        text=(
            f"Rotary positions with half-split pairs turn heads of {width} channels. "
            f"With which channel does channel {channel} form a pair?"
        ),
        answer=channel + width // 2,
        explanation=f"Channel i belongs with i + K/2, here {channel} + {width // 2}.",
        common_mistakes={
            channel ^ 1: "That is its neighbor: the interleaved pairing.",
            width - 1 - channel: "The second half is not turned round: 0 goes with K/2, not with the last one.",
        },
    )


def same_score(draw: random.Random) -> ChoiceQuestion:
    """which score stays the same"""
    query, distance, shift = draw.randint(20, 60), draw.randint(3, 9), draw.randint(70, 900)
    key = query - distance
    return ChoiceQuestion(
        text=(
            f"A query at position {query} and a key at position {key} are turned by rotary positions, and have a "
            "score. The same query and key vectors stand elsewhere. Where is the score the same?"
        ),
        options=(
            Option(
                text=f"query at {query + shift}, key at {key + shift}",
                correct=True,
                reason=f"Both moved by {shift}: the distance is still {distance}, and only that is in the product.",
            ),
            Option(
                text=f"query at {key}, key at {query}",
                correct=False,
                reason="The distance has the other sign: the angle between the two is turned the other way.",
            ),
            Option(
                text=f"query at {2 * query}, key at {2 * key}",
                correct=False,
                reason=f"Doubled, the distance is {2 * distance}: twice the angle in every pair.",
            ),
            Option(
                text="nowhere: each position has angles of its own",
                correct=False,
                reason="Each has, but the product of two turned vectors contains only the difference of their angles.",
            ),
        ),
    )


def bfloat16_positions(draw: random.Random) -> NumberQuestion:
    """a position in bfloat16"""
    place = 16 * draw.randint(130, 250) + draw.choice([3, 5, 11, 13])
    rounded = 16 * round(place / 16)
    return NumberQuestion(
        text=(
            "bfloat16 keeps 8 significant bits, so between 2,048 and 4,096 it holds only the multiples of 16. Someone "
            f"computes rotary angles in it. Position {place:,} is stored as its nearest neighbor; by how many radians "
            "is the angle of the fastest pair off (one radian a token)?"
        ),
        answer=abs(rounded - place),
        explanation=(
            f"{place:,} becomes {rounded:,}: {abs(rounded - place)} radians, where a whole turn is 6.28. "
            "Angles belong in float32; only cos and sin are cast."
        ),
        unit="radians",
        common_mistakes={
            0: "A whole number need not fit: 8 significant bits hold 256 different steps, whatever the size."
        },
    )


def where_order_enters(_: random.Random) -> ChoiceQuestion:
    """where Kimi-K2 learns about order"""
    return ChoiceQuestion(
        text="Kimi-K2's input layer hands on the rows as they are. Where does the order of the tokens enter?",
        options=(
            Option(
                text="in every attention block: parts of queries and keys are turned by position",
                correct=True,
                reason="Rotary positions act where tokens are compared, in each block anew.",
            ),
            Option(
                text="once, before the first block: waves are added to the hidden states",
                correct=False,
                reason="That is the Transformer of 2017. Here nothing is added to the hidden states, early or late.",
            ),
            Option(
                text="nowhere: the ids already stand in order",
                correct=False,
                reason="They do in the tensor, but a product of a query and a key does not see where its two "
                "vectors lay.",
            ),
            Option(
                text="in the values of the attention, which are turned",
                correct=False,
                reason="Values are not turned; only queries and keys are. The score is where position has its effect.",
            ),
        ),
    )


def why_kimi_adds_no_positions(_: random.Random) -> FreeTextQuestion:
    """why Kimi-K2 skips all this"""
    return FreeTextQuestion(
        text=(
            "You have written a wrapper that adds sine and cosine positions to the rows. BERT and GPT-2 add learned "
            "ones at the same place. Why does Kimi-K2 add nothing to its rows?"
        ),
        model_answer=(
            "Because order enters elsewhere: in every attention block, rotary positions turn 64 channels of each "
            "query and key by angles that grow with the position. The product of a turned query and a turned key "
            "contains only the difference of their positions, and the distance between two tokens is what attention "
            "needs; positions that are added are absolute, and the model would have to learn to subtract them. "
            "Nothing is added to the rows, so the hidden states that enter the first block carry the token alone, "
            "and no channel has to hold two kinds of things. A learned table also ends: 1,024 rows are 1,024 tokens. "
            "An angle exists for every position, and can be stretched afterwards (YaRN, for 131,072 tokens). To add "
            "waves on top would say the same again, less well."
        ),
        points=(
            "Order is not left out: rotary positions bring it in, in the attention.",
            "They turn queries and keys, not the rows and not the hidden states.",
            "A score then depends on the distance of two tokens, not on where both stand.",
            "The rows leave the layer unchanged: nothing but the token is in them.",
            "A learned table has a last row; angles go on and can be stretched.",
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
