"""Exercises for lesson 6: how embeddings are trained."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def rows_changed(draw: random.Random) -> NumberQuestion:
    """how many rows a step changes"""
    rows, pad = draw.choice([50, 1_000, 32_000]), 0
    different = draw.sample(range(1, min(rows, 50)), draw.randint(3, 5))
    ids = different + draw.choices(different, k=draw.randint(2, 4))
    draw.shuffle(ids)
    ids += [pad] * draw.randint(1, 3)
    return NumberQuestion(
        text=(
            f"A table has {rows:,} rows and padding_idx 0. A batch looks up the ids {ids}. The head is not "
            "tied. How many rows does one step of plain SGD without weight decay change, assuming no "
            "gradient happens to be zero?"
        ),
        answer=len(different),
        explanation=(
            f"The distinct ids other than padding: {sorted(different)}. An id that occurs twice is one row, "
            "the padding row gets no gradient, and all other rows are unchanged, bit for bit."
        ),
        common_mistakes={
            len(different) + 1: "That includes the padding row. Lookups send it no gradient.",
            len(ids): "That is the number of positions. Positions with the same id share a row.",
            rows: "Plain SGD moves a row by its gradient, and most rows have none.",
        },
    )


def repeated_sum(draw: random.Random) -> NumberQuestion:
    """the gradient of a repeated id"""
    row, other = draw.sample(range(1, 10), 2)
    parts = [draw.choice([2, 4, 6, 8]), draw.choice([10, 20, 30]), draw.choice([100, 200, 300])]
    ids, upstream = [row, row, other, row], [parts[0], parts[1], draw.choice([50, 70, 90]), parts[2]]
    total = sum(parts)
    return NumberQuestion(
        text=(
            f"The ids are {ids}, and the gradients of the first channel of their hidden states are "
            f"{upstream}. What is the gradient of the first channel of row {row}?"
        ),
        answer=total,
        explanation=(
            f"Row {row} was copied to three positions, so it receives all three gradients: {parts[0]} + "
            f"{parts[1]} + {parts[2]}."
        ),
        common_mistakes={
            parts[2]: "That is the gradient of the last position. Gradients add up over all three.",
            parts[0]: "That is the gradient of the first position. Gradients add up over all three.",
            total / 3: "That is the mean of the three. A copy passes on its whole gradient.",
            sum(upstream): f"That is the sum over all positions, but one of them belongs to row {other}.",
        },
    )


def dense_gradient(draw: random.Random) -> NumberQuestion:
    """bytes of a dense gradient"""
    rows, width = draw.choice([(163_840, 7_168), (129_280, 7_168), (128_256, 4_096), (50_257, 768)])
    tokens = draw.choice([512, 1_024, 2_048])
    batch = tokens * width * 4
    return NumberQuestion(
        text=(
            f"A batch of {tokens:,} tokens is looked up in a table of {rows:,} x {width:,} in float32. How "
            "many bytes does the dense gradient of the table take?"
        ),
        answer=rows * width * 4,
        unit="bytes",
        tolerance=0.005,
        explanation=f"The same as the table: {rows:,} x {width:,} x 4. At most {tokens:,} of its rows are nonzero.",
        common_mistakes={
            batch: "That is what the rows of the batch need. A dense gradient has a row for every row of the table.",
            rows * width: "That is the number of values. A float32 takes 4 bytes.",
        },
    )


def decayed_row(draw: random.Random) -> NumberQuestion:
    """a row that is never looked up"""
    steps, rate, decay = draw.choice([1_000, 5_000, 10_000]), draw.choice([0.001, 0.003]), draw.choice([0.01, 0.1])
    left = (1 - rate * decay) ** steps
    return NumberQuestion(
        text=(
            f"AdamW with learning rate {rate} and weight decay {decay} trains a table for {steps:,} steps. "
            "One token never occurs. Its row starts with norm 1. What is its norm at the end?"
        ),
        answer=left,
        tolerance=0.002,
        explanation=(
            f"Its gradient is always zero, and so are its moments. Only the decay acts: (1 - {rate} x "
            f"{decay}) to the power of {steps:,}."
        ),
        common_mistakes={
            1.0: (
                "Without a gradient, Adam's part of the step is zero, but AdamW still applies the decay in every step."
            ),
            (1 - decay) ** steps: "The decay is multiplied by the learning rate before it shrinks a value.",
        },
    )


def which_row_moves(draw: random.Random) -> ChoiceQuestion:
    """a row that was looked up once"""
    steps = draw.choice([10, 20, 50])
    return ChoiceQuestion(
        text=(
            f"A row is looked up in step 1 and then not again for {steps} steps. Which of these optimizers moves it "
            "in step 2? Weight decay is off."
        ),
        options=(
            Option(
                text="Adam",
                correct=True,
                reason=(
                    "Right: its first moment, a running mean of past gradients, is not zero yet, and Adam "
                    "steps along it."
                ),
            ),
            Option(
                text="Plain SGD.",
                correct=False,
                reason="Its step is the learning rate times the gradient, and the gradient is zero.",
            ),
            Option(
                text="SparseAdam with sparse gradients.",
                correct=False,
                reason="It updates moments and rows only for the ids of the batch. That is how it differs from Adam.",
            ),
            Option(
                text="None of them.",
                correct=False,
                reason="A zero gradient does not always mean a zero step: one of them remembers past gradients.",
            ),
        ),
        explanation="After many steps the moment has faded, and the row hardly moves.",
    )


def analogy(draw: random.Random) -> FreeTextQuestion:
    """what an analogy shows"""
    a, b, c, d = draw.choice([("king", "man", "woman", "queen"), ("Paris", "France", "Italy", "Rome")])
    return FreeTextQuestion(
        text=f'"In a trained table, {a} - {b} + {c} ≈ {d}." What does this claim, how would you test it '
        "honestly, and what would a success not show?",
        sample_answer=(
            f"It claims that {d} has the row closest to the sum of three rows. An honest test fixes "
            "the measure (cosine similarity, for example), excludes no words, uses many analogies that were "
            f"not chosen because they work, and compares with the plain neighbors of {a}, which often "
            f"include {d} already. A success shows that some differences between rows are roughly parallel "
            "in this table. It does not show that training requires it, that single channels have a meaning, "
            "or that other tables behave the same way."
        ),
        points=(
            "closest by a stated measure, among all rows",
            "the input words are not excluded, or the exclusion is stated",
            "a baseline without arithmetic: the neighbors of the first word",
            "many analogies, not one",
            "it is a property of some trained tables, not of embeddings in general",
        ),
    )


EXERCISES = (rows_changed, repeated_sum, dense_gradient, decayed_row, which_row_moves, analogy)
