"""Exercises of lesson 3: shapes, costs, two doors. The theory of document 001 is among them."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def hidden_shape(draw: random.Random) -> NumberQuestion:
    """the shape of hidden states"""
    batch, length, width = draw.randint(2, 9), draw.randint(10, 60), draw.choice((768, 4_096, 7_168))
    return NumberQuestion(
        text=f"input_ids have shape ({batch}, {length}), the table has {draw.choice((32_000, 100_352)):,} rows of "
        f"width {width:,}. Which shape do the hidden states have?",
        answer=(batch, length, width),
        explanation="The axes of the ids, and the width of a row at the end: (B, T, D). V does not appear.",
        common_mistakes={
            (batch, width, length): "The numbers of a row are the last axis.",
            (length, batch, width): "The batch is the first axis, as it is in the ids.",
            (batch, length): "Every id becomes a row, so there is one axis more.",
        },
    )


def forward_lookup(draw: random.Random) -> FreeTextQuestion:
    """the lookup, as a formula"""
    one, other = draw.sample(range(1, 9), 2)
    return FreeTextQuestion(
        text=f"Write the forward pass of an embedding layer as a formula. What is hidden for input_ids = [[{one}, "
        f"{other}]], where the rows of E are e0, e1, e2, ...? Why are no positions added in Kimi-K2, other than in "
        "GPT-2 or BERT?",
        model_answer="hidden[b, t] = E[ids[b, t]], with ids (B, T), E (V, D) and hidden (B, T, D); equally "
        f"one_hot(ids) @ E. Here hidden = [[e{one}, e{other}]], of shape (1, 2, D). GPT-2 and BERT have a vector for "
        "each absolute position and add it to the row, so that the sum tells the order. Kimi-K2 tells it elsewhere: "
        "in every block, queries and keys are turned by an angle that grows with the position (RoPE), and the score "
        "of two tokens depends on their distance. Rows stay what they are: the token alone, equal wherever it stands.",
        points=(
            "the formula: hidden[b, t] = E[ids[b, t]]",
            f"the result: rows e{one} and e{other}, of shape (1, 2, D)",
            "absolute positions are added to the rows, before the first block",
            "RoPE turns queries and keys inside attention and adds nothing to the rows",
        ),
    )


def why_vectors(draw: random.Random) -> ChoiceQuestion:
    """when to give vectors"""
    right = draw.choice(
        (
            (
                "features of an image are to stand between the words of a text",
                "No id names them: they are no rows of the table.",
            ),
            (
                "a prompt of twenty vectors is learned while the model stays as it is",
                "The vectors are parameters of their own.",
            ),
            (
                "the vector of one word is to be moved a little, to see what changes",
                "An id can only name a row as it is.",
            ),
        )
    )
    return ChoiceQuestion(
        text="For which of these are inputs_embeds needed, in place of input_ids?",
        options=(
            Option(text=right[0], correct=True, reason=right[1]),
            Option(
                text="the table is to be frozen while the rest is fine-tuned",
                correct=False,
                reason="requires_grad_(False) on the table does that, with ids; vectors looked up in the table still "
                "carry gradients to it.",
            ),
            Option(
                text="the texts of a batch have different lengths",
                correct=False,
                reason="Padding and a mask see to that; vectors would have the same trouble.",
            ),
            Option(
                text="the lookup is too slow for a large vocabulary",
                correct=False,
                reason="A lookup costs the same at any V, and making the vectors elsewhere does not save it.",
            ),
        ),
    )


def vectors_or_ids(draw: random.Random) -> FreeTextQuestion:
    """ids or vectors"""
    del draw  # always the same question
    return FreeTextQuestion(
        text="When would you give a model inputs_embeds instead of input_ids? Give three cases, and one that is often "
        "named but is none.",
        model_answer="Vectors that no id names: features of images or sound from an encoder, placed between rows of "
        "text tokens; learned prompts, vectors that are trained while the model is frozen; experiments with the "
        "vectors themselves, such as mixing two rows or attributing an output to the input by gradients. Freezing the "
        "table is no reason: it is done with requires_grad_(False), and vectors that were looked up in the table "
        "still send their gradient into it.",
        points=(
            "multimodal input: image or audio features",
            "vectors that are learned themselves (prompts)",
            "experiments that change or differentiate the vectors",
            "freezing is done on the parameter, not by the kind of input",
        ),
    )


def bytes_per_lookup(draw: random.Random) -> NumberQuestion:
    """bytes that a lookup copies"""
    batch, length, width = draw.randint(2, 16), draw.choice((128, 512, 2_048)), draw.choice((4_096, 7_168))
    rows = draw.choice((129_280, 163_840))
    copied = batch * length * width * 2
    return NumberQuestion(
        text=f"A batch of {batch} texts with {length:,} tokens each is looked up in a table of {rows:,} x {width:,} in "
        "bfloat16. How many bytes of hidden states come out?",
        answer=copied,
        unit="bytes",
        tolerance=0.005,
        explanation=f"B · T · D · 2 = {batch} · {length:,} · {width:,} · 2 = {copied:,}. The number of rows of "
        "the table "
        "plays no part.",
        common_mistakes={
            rows * width * 2: "That is the whole table; a lookup reads the rows it is asked for.",
            copied // 2: "A number of bfloat16 takes two bytes.",
            copied * 2: "That would be float32; bfloat16 takes two bytes a number.",
            length * width * 2: "That is one text; the batch has several.",
        },
    )


def efficiency(draw: random.Random) -> FreeTextQuestion:
    """why a lookup is fast"""
    rows = draw.choice(("one million", "ten million"))
    return FreeTextQuestion(
        text="Why is a lookup fast? What limits it on a GPU when batch and length are large, and what changes with a "
        f"table of {rows} rows?",
        model_answer="Nothing is computed: for each token one row of D numbers is copied, whose place is known from "
        "the id. The cost is O(B · T · D) and does not depend on V. It is memory traffic: a GPU fetches many rows at "
        "once, and large batches use its bandwidth better, but the bytes grow with B · T, and rows lie scattered in "
        "memory. With more rows the lookup stays as fast; the table must fit, and in training its dense gradient and "
        "the optimizer's state too. Remedies: sharding the table over devices, sparse gradients that hold only the "
        "rows that occurred, hashing many ids onto fewer rows. The table itself is dense, not a sparse matrix.",
        points=(
            "a copy of rows at known places, no search, no arithmetic",
            "cost grows with B, T and D, not with V",
            "limited by memory bandwidth, not by computing",
            "large V costs memory: table, gradient, optimizer state; sharding, sparse gradients, hashing",
        ),
    )


def which_raises(draw: random.Random) -> ChoiceQuestion:
    """what is refused"""
    both = draw.choice((True, False))
    call = "forward(input_ids=ids, inputs_embeds=vectors)" if both else "forward(input_ids=None, inputs_embeds=None)"
    reason = (
        "The two could contradict each other, and one would have to win in silence."
        if both
        else "There is nothing to run on, and nothing to infer batch and length from."
    )
    return ChoiceQuestion(
        text=f"What does a model's {call} do?",
        options=(
            Option(text="it raises a ValueError", correct=True, reason=reason),
            Option(
                text="it uses inputs_embeds" if both else "it runs on an empty batch",
                correct=False,
                reason="Models could be written so; a caller's mistake would then stay hidden. They raise instead.",
            ),
            Option(
                text="it adds the two up" if both else "it returns None",
                correct=False,
                reason="Nothing in the forward pass does that. Exactly one input must be given.",
            ),
            Option(
                text="it warns and goes on with the ids" if both else "it uses the ids of the call before",
                correct=False,
                reason="A forward pass keeps no inputs and guesses none; it raises.",
            ),
        ),
    )


def sizes_inferred(draw: random.Random) -> NumberQuestion:
    """batch and length, inferred"""
    batch, length, width = draw.randint(2, 8), draw.randint(9, 40), draw.choice((512, 4_096))
    return NumberQuestion(
        text=f"inputs_embeds of shape ({batch}, {length}, {width:,}) are given. Which (batch_size, seq_length) does "
        "the model infer? Answer as a shape.",
        answer=(batch, length),
        explanation="The first two axes are (B, T) for ids and for vectors alike: shape[:2].",
        common_mistakes={
            (batch, width): "The last axis of vectors is D; the tokens are the second one.",
            (length, batch): "The batch comes first.",
            (length, width): "Those are the last two axes; batch and length are the first two.",
        },
    )


def error_handling(draw: random.Random) -> FreeTextQuestion:
    """why an error, and how sizes are inferred"""
    del draw  # always the same question
    return FreeTextQuestion(
        text="Why does a model raise a ValueError when both input_ids and inputs_embeds are given? How does it find "
        "batch_size and seq_length?",
        model_answer="The two say the same thing in two ways, and may disagree. If one won silently, a caller who "
        "passes both would get results for an input he may not have meant, and nothing would tell him. The rule is "
        "exactly one: both is an error, neither is an error. Batch size and length are read from the input that is "
        "there: input_ids.shape[:2] or inputs_embeds.shape[:2], since both begin with (B, T).",
        points=(
            "both could contradict each other; choosing silently hides a mistake",
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
