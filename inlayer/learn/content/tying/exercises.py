"""Theory of "Tying"."""

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
        text=f"A model has the sizes of {name}: {rows:,} tokens, width {width:,}. How many numbers less does it have "
        "tied than untied?",
        answer=rows * width,
        explanation=f"The head's own table: {rows:,} x {width:,}. The table of the input stays.",
        common_mistakes={
            2 * rows * width: "That is both tables. One of them is still needed.",
            rows * width * 4: "These are bytes in float32; numbers are asked for.",
        },
    )


def training_memory(draw: random.Random) -> NumberQuestion:
    """what tying saves in training"""
    name = draw.choice(list(MODELS))
    rows, width = MODELS[name]
    size = rows * width
    return NumberQuestion(
        text=f"In float32 training with Adam, how many bytes does tying save for a model with {rows:,} tokens of "
        f"width {width:,}, one process, between steps? Count weights, gradients and both moments.",
        answer=size * 16,
        unit="bytes",
        tolerance=0.01,
        explanation=f"{rows:,} x {width:,} numbers, four times 4 bytes each: weight, gradient, first and second "
        "moment.",
        common_mistakes={
            size * 4: "That is the weights alone. A number in training also has a gradient and two moments.",
            size * 8: "Weights and gradients; Adam's two moments are missing.",
            size * 12: "One of the four is missing: weight, gradient, first moment, second moment.",
            size * 32: "That is table and head together; the table stays.",
        },
    )


def rows_reached(draw: random.Random) -> NumberQuestion:
    """how many rows learn from a batch"""
    rows, pad = draw.choice([100, 2_048, 6_144]), 0
    ids = draw.sample(range(1, 60), draw.randint(3, 6))
    return NumberQuestion(
        text=f"A tied model without care for padding has {rows:,} rows; row {pad} is padding, by padding_idx. A "
        f"batch looks up the ids {ids} and predicts one token after each. How many rows get a gradient that is not "
        "zero?",
        answer=rows,
        explanation="All of them. The head multiplies with every row, and every probability is above zero; the padding "
        "row is reached too, since padding_idx only speaks to the lookup.",
        common_mistakes={
            len(ids): "These are the rows that the lookup reaches. What does the head reach?",
            rows - 1: "The padding row is reached as well: padding_idx keeps only the lookup's gradient off it.",
            2 * len(ids): "The head does not only reach the targets: it pushes all other rows away.",
        },
    )


def logit_spread(draw: random.Random) -> NumberQuestion:
    """how far logits spread"""
    root = draw.choice([8, 16, 32, 64])
    return NumberQuestion(
        text="Hidden states have independent numbers of mean 0 and variance 1, and so have the rows of a tied table "
        f"of width {root**2:,}. What is the standard deviation of the logits?",
        answer=root,
        tolerance=0.01,
        explanation=f"A logit is a sum of {root**2:,} products of variance 1. Variances add up, so the spread is the "
        "square root. Such a model is very sure, and wrong, before its first step.",
        common_mistakes={
            root**2: "That is the variance. The standard deviation is its square root.",
            1: "Each of the products has spread 1; a logit adds them all up.",
            root * 0.02: "That would be for rows drawn with 0.02; these have 1.",
        },
    )


def broken_tie(draw: random.Random) -> ChoiceQuestion:
    """which tie breaks"""
    grown = draw.choice([8, 64, 256])
    return ChoiceQuestion(
        text="`head.weight = table.weight` was said once, when the model was made. Which of these leaves the head "
        f"with other numbers than the table? The vocabulary may grow by {grown} tokens.",
        options=(
            Option(text="an optimizer step", correct=False, reason="It changes the one tensor in place; both see it."),
            Option(
                text="growing the table: `table.weight = nn.Parameter(larger)`",
                correct=True,
                reason="Right: the table has a new tensor, the head keeps the old one. No error says so.",
            ),
            Option(
                text="`load_state_dict`, as it is by default",
                correct=False,
                reason="It copies into the tensor that is there.",
            ),
            Option(
                text="`model.to(torch.bfloat16)`",
                correct=False,
                reason="It swaps the data inside the one parameter; both see it.",
            ),
        ),
        explanation="A head that holds the module and asks it for its weight cannot get out of step.",
    )


def read_the_tie(draw: random.Random) -> ChoiceQuestion:
    """is it tied?"""
    name = draw.choice(["Kimi-K2", "DeepSeek-V3"])
    return ChoiceQuestion(
        text=f"{name}'s class has `_tied_weights_keys` naming `lm_head.weight`; its config has `tie_word_embeddings: "
        "false`; its files hold a `lm_head.weight`. Is the model tied?",
        options=(
            Option(
                text="yes, by the class",
                correct=False,
                reason="The attribute names what would share one table if the config asked for it.",
            ),
            Option(text="no", correct=True, reason="Right: the config says so, and the files hold a second table."),
            Option(
                text="it cannot be known without loading it",
                correct=False,
                reason="The config and the list of tensors are enough.",
            ),
        ),
    )


def why_unstable(draw: random.Random) -> FreeTextQuestion:
    """why tying became unstable"""
    width = draw.choice([768, 1_024])
    return FreeTextQuestion(
        text=f"A project with width {width:,} makes its table by `nn.Embedding(vocab_size, n_embd)`, ties the head "
        'to it, and finds that "training became unstable". '
        "What would you look at first, and what would you change?",
        model_answer="At the scale. nn.Embedding draws N(0, 1); read by the head such rows give logits with a spread "
        "of the square root of the width, and a first loss far above ln V. Draw the rows with 0.02 instead. Then "
        "they are too small on the way in, so multiply them there, by 1 / 0.02, or normalize them. Use warm-up and "
        "clipping, do not decay the table, and compare with an untied run of the same care, before blaming the tie.",
        points=(
            "nn.Embedding draws N(0, 1), a Linear head is born much smaller",
            "the spread of the logits, or the first loss against ln V",
            "the two ends want different scales: small for the head, size 1 for the blocks",
            "a factor (or a norm) on the way in",
            "what the optimizer does: warm-up, clipping, no decay of the table",
        ),
    )


EXERCISES = (parameters_saved, training_memory, rows_reached, logit_spread, broken_tie, read_the_tie, why_unstable)
