"""Exercises for lesson 7: weight tying."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]

MODELS = {
    "Kimi-K2": (163_840, 7_168),
    "DeepSeek-V3": (129_280, 7_168),
    "Llama-3.1-8B": (128_256, 4_096),
    "Llama-3.2-1B": (128_256, 2_048),
}


def parameters_saved(draw: random.Random) -> NumberQuestion:
    """what tying saves"""
    name = draw.choice(list(MODELS))
    rows, width = MODELS[name]
    return NumberQuestion(
        text=(
            f"A model has the sizes of {name}: {rows:,} tokens, width {width:,}. How many parameters does tying save?"
        ),
        answer=rows * width,
        explanation=f"The head's own matrix: {rows:,} x {width:,}. The input table stays.",
        common_mistakes={
            2 * rows * width: "That is both tables. One of them is still needed.",
            rows * width * 4: "That is the number of bytes in float32. The question asks for parameters.",
        },
    )


def training_memory(draw: random.Random) -> NumberQuestion:
    """what tying saves in training"""
    name = draw.choice(list(MODELS))
    rows, width = MODELS[name]
    size = rows * width
    return NumberQuestion(
        text=(
            "In float32 training with Adam in one process, how many bytes does tying save for a model with "
            f"{rows:,} tokens of width {width:,}? Count weights, gradients, and both moments."
        ),
        answer=size * 16,
        unit="bytes",
        tolerance=0.01,
        explanation=(
            f"{rows:,} x {width:,} parameters with four values of 4 bytes each: weight, gradient, first and "
            "second moment."
        ),
        common_mistakes={
            size * 4: "That is the weights alone. In training, each parameter also has a gradient and two moments.",
            size * 8: "That is weights and gradients. Adam's two moments are missing.",
            size * 12: "One of the four is missing: weight, gradient, first moment, second moment.",
            size * 32: "That is the table and the head together. The table stays.",
        },
    )


def rows_reached(draw: random.Random) -> NumberQuestion:
    """how many rows are trained by a batch"""
    rows, pad = draw.choice([100, 2_048, 6_144]), 0
    ids = draw.sample(range(1, 60), draw.randint(3, 6))
    return NumberQuestion(
        text=(
            f"A tied model in plain PyTorch has {rows:,} rows. Row {pad} is the padding row, set with "
            f"padding_idx. A batch looks up the ids {ids} and predicts one token after each. How many rows "
            "get a nonzero gradient?"
        ),
        answer=rows,
        explanation=(
            "All of them. The head multiplies by every row, and every probability is above zero. The padding "
            "row is reached too, because padding_idx only affects the lookup."
        ),
        common_mistakes={
            len(ids): "These are the rows that the lookup reaches. What does the head reach?",
            rows - 1: "The padding row is reached as well: padding_idx only blocks the lookup's gradient.",
            2 * len(ids): "The head does not only reach the targets: it pushes all other rows away.",
        },
    )


def logit_spread(draw: random.Random) -> NumberQuestion:
    """the standard deviation of logits"""
    root = draw.choice([8, 16, 32, 64])
    return NumberQuestion(
        text=(
            "The values of the hidden states are independent with mean 0 and variance 1, and so are those of "
            f"the rows of a tied table of width {root**2:,}. What is the standard deviation of the logits?"
        ),
        answer=root,
        tolerance=0.01,
        explanation=(
            f"A logit is a sum of {root**2:,} products of variance 1. Variances add up, so the standard "
            "deviation is the square root. Such a model is very confident, and wrong, before its first step."
        ),
        common_mistakes={
            root**2: "That is the variance. The standard deviation is its square root.",
            1: "Each product has standard deviation 1. A logit adds them all up.",
            root * 0.02: "That would be for rows drawn with std 0.02. These have 1.",
        },
    )


def broken_tie(draw: random.Random) -> ChoiceQuestion:
    """which operation breaks a tie"""
    grown = draw.choice([8, 64, 256])
    return ChoiceQuestion(
        text=(
            "`head.weight = table.weight` was executed once, when the model was created. Which of these "
            f"leaves the head with different values from the table? The vocabulary may grow by {grown} tokens."
        ),
        options=(
            Option(
                text="An optimizer step.",
                correct=False,
                reason="It changes the shared tensor in place, so both see it.",
            ),
            Option(
                text="Growing the table: `table.weight = nn.Parameter(larger)`.",
                correct=True,
                reason="Right: the table has a new tensor, and the head keeps the old one. No error tells you.",
            ),
            Option(
                text="`load_state_dict` with its defaults.",
                correct=False,
                reason="It copies into the existing tensor.",
            ),
            Option(
                text="`model.to(torch.bfloat16)`",
                correct=False,
                reason="It swaps the data inside the shared parameter, so both see it.",
            ),
        ),
        explanation="A head that holds the module and reads its weight on every call can never be out of sync.",
    )


def read_the_tie(draw: random.Random) -> ChoiceQuestion:
    """is it tied?"""
    name = draw.choice(["Kimi-K2", "DeepSeek-V3"])
    return ChoiceQuestion(
        text=(
            f"{name}'s class has `_tied_weights_keys`, which names `lm_head.weight`. Its config says "
            "`tie_word_embeddings: false`. Its files contain an `lm_head.weight`. Is the model tied?"
        ),
        options=(
            Option(
                text="Yes, because of the class.",
                correct=False,
                reason="The attribute names what would share one table if the config enabled it.",
            ),
            Option(text="No", correct=True, reason="Right: the config disables it, and the files have a second table."),
            Option(
                text="You cannot know without loading it.",
                correct=False,
                reason="The config and the list of tensors are enough.",
            ),
        ),
    )


def why_unstable(draw: random.Random) -> FreeTextQuestion:
    """why tied training became unstable"""
    width = draw.choice([768, 1_024])
    return FreeTextQuestion(
        text=f"A project with width {width:,} creates its table with `nn.Embedding(vocab_size, n_embd)`, ties the head "
        'to it, and finds that "training became unstable". What would you look at first, and what would you change?',
        sample_answer=(
            "The scale. nn.Embedding draws from N(0, 1). When the head reads such rows, the logits have a "
            "standard deviation of the square root of the width, and the first loss is far above ln V. Draw "
            "the rows with std 0.02 instead. Then they are too small at the input, so multiply them there by "
            "1 / 0.02, or normalize them. Use warm-up and clipping, apply no weight decay to the table, and "
            "compare with an untied run with the same settings before blaming the tie."
        ),
        points=(
            "nn.Embedding draws from N(0, 1); a Linear head is initialized much smaller",
            "the standard deviation of the logits, or the first loss compared with ln V",
            "the two ends need different scales: small for the head, std 1 for the blocks",
            "a factor (or a norm) at the input",
            "the optimizer: warm-up, clipping, no weight decay on the table",
        ),
    )


EXERCISES = (parameters_saved, training_memory, rows_reached, logit_spread, broken_tie, read_the_tie, why_unstable)
