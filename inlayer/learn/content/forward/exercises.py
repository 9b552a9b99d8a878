"""Exercises for lesson 3: shapes, costs, ids, and vectors."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def hidden_shape(draw: random.Random) -> NumberQuestion:
    """the shape of hidden states"""
    batch, length, width = draw.randint(2, 9), draw.randint(10, 60), draw.choice((768, 4_096, 7_168))
    return NumberQuestion(
        text=(
            f"input_ids have shape ({batch}, {length}), and the table has {draw.choice((32_000, 100_352)):,} "
            f"rows of width {width:,}. What is the shape of the hidden states?"
        ),
        answer=(batch, length, width),
        explanation="The axes of the ids, and the width of a row at the end: (B, T, D). V does not appear.",
        common_mistakes={
            (batch, width, length): "The values of a row are the last axis.",
            (length, batch, width): "The batch is the first axis, as in the ids.",
            (batch, length): "Every id becomes a row, so there is one more axis.",
        },
    )


def forward_lookup(draw: random.Random) -> FreeTextQuestion:
    """the lookup as a formula"""
    first, second = draw.sample(range(1, 9), 2)
    return FreeTextQuestion(
        text=(
            "Write the forward pass of an embedding layer as a formula. What are the hidden states for "
            f"input_ids = [[{first}, {second}]] if the rows of E are e0, e1, e2, ...? Why does Kimi-K2 add no "
            "positions, unlike GPT-2 or BERT?"
        ),
        sample_answer=(
            "hidden[b, t] = E[ids[b, t]], with ids (B, T), E (V, D), and hidden (B, T, D), or equivalently "
            f"one_hot(ids) @ E. Here hidden = [[e{first}, e{second}]], with shape (1, 2, D). GPT-2 and BERT have "
            "a vector for each absolute position and add it to the row, so the sum encodes the order. "
            "Kimi-K2 encodes it elsewhere: in every block, queries and keys are rotated by an angle that "
            "grows with the position (RoPE), and the score between two tokens depends on their distance. The rows "
            "represent the token alone and are the same at every position."
        ),
        points=(
            "the formula: hidden[b, t] = E[ids[b, t]]",
            f"the result: rows e{first} and e{second}, with shape (1, 2, D)",
            "absolute positions are added to the rows, before the first block",
            "RoPE rotates queries and keys inside attention and adds nothing to the rows",
        ),
    )


def why_vectors(draw: random.Random) -> ChoiceQuestion:
    """when to pass vectors"""
    right = draw.choice(
        (
            (
                "Image features are inserted between the words of a text.",
                "They have no ids: they are not rows of the table.",
            ),
            (
                "A prompt of twenty vectors is trained while the model is frozen.",
                "The vectors are parameters of their own.",
            ),
            (
                "The vector of one word is shifted slightly, to see what changes.",
                "An id can only select an existing row.",
            ),
        )
    )
    return ChoiceQuestion(
        text="Which of these requires inputs_embeds instead of input_ids?",
        options=(
            Option(text=right[0], correct=True, reason=right[1]),
            Option(
                text="The table is frozen while the rest is fine-tuned.",
                correct=False,
                reason=(
                    "requires_grad_(False) on the table does that, with ids. Vectors that were looked up in "
                    "the table still send gradients to it."
                ),
            ),
            Option(
                text="The texts of a batch have different lengths.",
                correct=False,
                reason="Padding and a mask handle that. Vectors have the same problem.",
            ),
            Option(
                text="The lookup is too slow for a large vocabulary.",
                correct=False,
                reason="A lookup costs the same at any V, and computing the vectors elsewhere saves nothing.",
            ),
        ),
    )


def vectors_or_ids(draw: random.Random) -> FreeTextQuestion:
    """ids or vectors"""
    del draw  # the same question every time
    return FreeTextQuestion(
        text=(
            "When would you pass a model inputs_embeds instead of input_ids? Name three cases, and one that "
            "is often named but is not a reason."
        ),
        sample_answer=(
            "Vectors that have no id: image or audio features from an encoder, inserted between rows of text "
            "tokens; trained prompts, which are optimized while the model is frozen; experiments with the "
            "vectors themselves, such as mixing two rows or attributing an output to the input with "
            "gradients. Freezing the table is not a reason: use requires_grad_(False) for that, and vectors "
            "that were looked up in the table still send their gradient into it."
        ),
        points=(
            "multimodal input: image or audio features",
            "vectors that are themselves trained (soft prompts)",
            "experiments that change or differentiate the vectors",
            "freezing is done on the parameter, not by the choice of input",
        ),
    )


def bytes_per_lookup(draw: random.Random) -> NumberQuestion:
    """bytes that a lookup copies"""
    batch, length, width = draw.randint(2, 16), draw.choice((128, 512, 2_048)), draw.choice((4_096, 7_168))
    rows = draw.choice((129_280, 163_840))
    copied = batch * length * width * 2
    return NumberQuestion(
        text=(
            f"A batch of {batch} texts with {length:,} tokens each is looked up in a table of {rows:,} x "
            f"{width:,} in bfloat16. How many bytes do the hidden states take?"
        ),
        answer=copied,
        unit="bytes",
        tolerance=0.005,
        explanation=(
            f"B · T · D · 2 = {batch} · {length:,} · {width:,} · 2 = {copied:,}. The number of rows of the "
            "table does not matter."
        ),
        common_mistakes={
            rows * width * 2: "That is the whole table. A lookup reads only the requested rows.",
            copied // 2: "A bfloat16 value takes two bytes.",
            copied * 2: "That would be float32. bfloat16 takes two bytes per value.",
            length * width * 2: "That is one text. The batch has several.",
        },
    )


def efficiency(draw: random.Random) -> FreeTextQuestion:
    """why a lookup is fast"""
    rows = draw.choice(("one million", "ten million"))
    return FreeTextQuestion(
        text=(
            "Why is a lookup fast? What limits it on a GPU when batch and length are large, and what changes "
            f"with a table of {rows} rows?"
        ),
        sample_answer=(
            "Nothing is computed: for each token, one row of D values is copied, and the id determines its "
            "address. The cost is O(B · T · D) and does not depend on V. Memory traffic is the limit: a GPU "
            "fetches many rows at once, and large batches use its bandwidth better, but the bytes grow with "
            "B · T, and rows are scattered in memory. With more rows the lookup is as fast as before. But "
            "the table must fit in memory, and during training so must its dense gradient and the optimizer "
            "state. Remedies: sharding the table over devices, sparse gradients that contain only the rows "
            "that occurred, and hashing many ids onto fewer rows. The table itself is dense, not a sparse "
            "matrix."
        ),
        points=(
            "rows are copied from known addresses, without search or arithmetic",
            "the cost grows with B, T, and D, not with V",
            "memory bandwidth is the limit, not compute",
            "large V costs memory: table, gradient, optimizer state; sharding, sparse gradients, hashing",
        ),
    )


def which_raises(draw: random.Random) -> ChoiceQuestion:
    """what is rejected"""
    both = draw.choice((True, False))
    call = "forward(input_ids=ids, inputs_embeds=vectors)" if both else "forward(input_ids=None, inputs_embeds=None)"
    reason = (
        "The two could contradict each other, and one would have to win silently."
        if both
        else "There is nothing to work with, and no shape to infer batch size and length from."
    )
    return ChoiceQuestion(
        text=f"What does {call} do in a typical model?",
        options=(
            Option(text="It raises a ValueError.", correct=True, reason=reason),
            Option(
                text="It uses inputs_embeds." if both else "It runs on an empty batch.",
                correct=False,
                reason=(
                    "A model could be written that way, but it would hide the caller's mistake. Models raise "
                    "an error instead."
                ),
            ),
            Option(
                text="It adds the two." if both else "It returns None.",
                correct=False,
                reason="Nothing in the forward pass does that. Exactly one input must be given.",
            ),
            Option(
                text="It warns and continues with the ids." if both else "It uses the ids of the previous call.",
                correct=False,
                reason="A forward pass stores no inputs and does not guess. It raises an error.",
            ),
        ),
    )


def sizes_inferred(draw: random.Random) -> NumberQuestion:
    """inferring batch size and length"""
    batch, length, width = draw.randint(2, 8), draw.randint(9, 40), draw.choice((512, 4_096))
    return NumberQuestion(
        text=(
            f"inputs_embeds of shape ({batch}, {length}, {width:,}) are given. Which (batch_size, seq_length) "
            "does the model infer? Answer as a shape."
        ),
        answer=(batch, length),
        explanation="The first two axes are (B, T) for both ids and vectors: shape[:2].",
        common_mistakes={
            (batch, width): "The last axis of vectors is D. The tokens are the second axis.",
            (length, batch): "The batch comes first.",
            (length, width): "Those are the last two axes. Batch and length are the first two.",
        },
    )


def error_handling(draw: random.Random) -> FreeTextQuestion:
    """why an error, and how sizes are inferred"""
    del draw  # the same question every time
    return FreeTextQuestion(
        text=(
            "Why does a model raise a ValueError when both input_ids and inputs_embeds are given? How does "
            "it determine batch_size and seq_length?"
        ),
        sample_answer=(
            "Both describe the same thing in two ways, and they may disagree. If one were silently ignored, a caller "
            "who passes both would get results for an input they may not have meant, without any warning. "
            "The rule is exactly one: both is an error, and neither is an error. Batch size and length are "
            "read from whichever input is given: input_ids.shape[:2] or inputs_embeds.shape[:2], because "
            "both start with (B, T)."
        ),
        points=(
            "the two could contradict each other; choosing silently hides a mistake",
            "exactly one: neither is an error as well",
            "the first two axes of whichever input is given",
            "not the last axis: it is T for ids and D for vectors",
        ),
    )


EXERCISES = (
    hidden_shape,
    forward_lookup,
    why_vectors,
    vectors_or_ids,
    bytes_per_lookup,
    efficiency,
    which_raises,
    sizes_inferred,
    error_handling,
)
