"""Exercises for lesson 10: n-gram memories."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def ngram_row(draw: random.Random) -> NumberQuestion:
    """the row of a 2-gram"""
    before, newest, modulus = draw.randint(11, 40), draw.randint(41, 90), draw.choice([29, 31, 37])
    mixed = (newest * 3) ^ (before * 5)
    near = {
        (newest * 3 + before * 5) % modulus: "You added the products. `^` is xor: a bit is set if exactly one has it.",
        ((before * 3) ^ (newest * 5)) % modulus: "The multipliers are swapped: the first one belongs to the newest id.",
        mixed: "That is the mixed product. Take it modulo the number of rows.",
    }
    return NumberQuestion(
        text=(
            f"A hash head with {modulus} rows hashes the ids {before}, {newest} (the newest last) as "
            "`(newest * 3) ^ (before * 5)` and takes the remainder. Which row does it select?"
        ),
        answer=mixed % modulus,
        explanation=f"{newest * 3} ^ {before * 5} = {mixed}, and {mixed} % {modulus} = {mixed % modulus}.",
        common_mistakes={value: why for value, why in near.items() if value != mixed % modulus},
    )


def rows_per_token(draw: random.Random) -> NumberQuestion:
    """rows that a token reads"""
    largest, heads, layers = draw.choice([3, 4, 5]), draw.choice([4, 8]), draw.choice([2, 3])
    answer = (largest - 1) * heads * layers
    return NumberQuestion(
        text=(
            f"A model has n-gram memories in {layers} layers, for n from 2 to {largest}, with {heads} hash heads per "
            "n. How many rows does each token read from them?"
        ),
        answer=answer,
        explanation=f"{largest - 1} orders · {heads} hash heads · {layers} layers = {answer}.",
        unit="rows",
        common_mistakes={
            largest * heads * layers: "n = 1 has no hash heads: that is what the token table is for.",
            (largest - 1) * heads: "That is one layer. Each has its own memory.",
        },
    )


def history_length(draw: random.Random) -> NumberQuestion:
    """ids in the history"""
    largest, per_order = draw.choice([3, 4, 5, 8]), draw.choice([2, 8, 16])
    return NumberQuestion(
        text=(
            f"A memory has {per_order} hash heads for each n from 2 to {largest}. How many earlier ids must be "
            "kept to continue a text by one token?"
        ),
        answer=largest - 1,
        explanation=f"The longest n-gram has {largest} ids, and the new token is one of them.",
        unit="ids",
        common_mistakes={
            largest: "One too many: the new token is part of the n-gram.",
            per_order * (largest - 1): "That is the number of rows. All hash heads hash the same ids.",
        },
    )


def same_rows_for(draw: random.Random) -> ChoiceQuestion:
    """texts that share all rows"""
    word = draw.choice(["the", "and", "with"])
    return ChoiceQuestion(
        text=(
            f'In DeepSeek-V4.1, " {word.title()} dog" and "{word} DOG" read the same rows of the n-gram memory at '
            "their last token. Why?"
        ),
        options=(
            Option(
                text="Both have the same token ids.",
                correct=False,
                reason="They do not: capitals and a leading space produce different tokens.",
            ),
            Option(
                text="Their tokens have the same normalized texts, and the ids of those texts are hashed.",
                correct=True,
                reason="Right: 129,280 tokens become 99,092 before hashing.",
            ),
            Option(
                text="Because of a hash collision.",
                correct=False,
                reason="A collision is possible in one hash head. In all 24 of them it is practically impossible.",
            ),
        ),
        explanation="Normalization folds case, accents, and whitespace. It is done once, as a table from id to id.",
    )


def why_memories(draw: random.Random) -> FreeTextQuestion:
    """what a memory is good for"""
    share = draw.choice(["a third", "half"])
    return FreeTextQuestion(
        text=(
            f"{share.capitalize()} of a model's parameters are in n-gram memories. What do they cost at inference, "
            "what do they save, and what has to be identical in every program that runs the model?"
        ),
        sample_answer=(
            "Each token reads one row per hash head, a few kilobytes, no matter how large the table is. This takes "
            "no arithmetic, and the tables can stay in main memory or on disk. They save work: without them, the "
            "blocks would have to recognize fixed phrases again and again. The ids, the compression of tokens, "
            "multipliers, moduli, the order of hash heads, and the rule for the start of a text must be the same "
            "everywhere, because a wrong row looks as valid as the right one, and nothing reports the mistake."
        ),
        points=(
            "rows read per token: the number of hash heads, not the size of the table",
            "the tables need not be in GPU memory",
            "local phrases are looked up instead of computed",
            "the hash must be exactly the same, and a wrong row is not noticed",
        ),
    )


EXERCISES = (ngram_row, rows_per_token, history_length, same_rows_for, why_memories)
