"""Exercises for lesson 5: padding, masks, and pooling."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def padding_count(draw: random.Random) -> NumberQuestion:
    """how much of a batch is padding"""
    longest = draw.randint(80, 120)
    lengths = [draw.randint(3, 30) for _ in range(3)]
    lengths.insert(draw.randint(0, 3), longest)
    real = sum(lengths)
    return NumberQuestion(
        text=(
            f"Four texts with {', '.join(map(str, lengths))} tokens become one batch. How many positions in "
            "it are padding?"
        ),
        answer=4 * longest - real,
        explanation=f"The batch has 4 x {longest} = {4 * longest} positions, and {real} tokens are real.",
        unit="positions",
        common_mistakes={
            real: "That is the number of real tokens. Padding is the rest of the batch.",
            4 * longest: "That is the whole batch.",
            longest - min(lengths): "That is the padding of the shortest text alone.",
        },
    )


def hidden_shape(draw: random.Random) -> NumberQuestion:
    """the shape of a padded batch"""
    lengths = draw.sample(range(2, 40), 4)
    width = draw.choice([768, 4_096, 7_168])
    longest = max(lengths)
    return NumberQuestion(
        text=(
            f"Texts with {', '.join(map(str, lengths))} tokens are padded and looked up in a table of "
            f"width {width:,}. What is the shape of the hidden states?"
        ),
        answer=(4, longest, width),
        explanation=(
            "B texts, T positions (the length of the longest text), D channels. Padded positions also have vectors."
        ),
        common_mistakes={
            (4, width, longest): "The channels come last: (B, T, D).",
            (sum(lengths), width): "That would be all tokens in one sequence, without padding.",
            (4, min(lengths), width): "Nothing is truncated: the longest text determines T.",
        },
    )


def mean_of_real_tokens(draw: random.Random) -> NumberQuestion:
    """the mean of a padded text"""
    values = draw.sample(range(1, 30), 4)
    mask = draw.choice([(1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0)])
    kept = [value for value, real in zip(values, mask, strict=True) if real]
    answer = sum(kept) / 2
    near = {
        float(sum(kept)): "That is the sum. For a mean, divide by the number of real tokens.",
        sum(kept) / 4: "You divided by the number of positions. Padding must not be counted either.",
        sum(values) / 4: "That is the mean over all positions: the mask was not used.",
        sum(values[:2]) / 2: "Two tokens are real, but not the first two: the mask shows where they are.",
    }
    return NumberQuestion(
        text=(
            f"One channel of a text's hidden states is {values}, and its mask is {list(mask)}. What does "
            "mean pooling give for this channel?"
        ),
        answer=answer,
        explanation=f"The values of the real tokens are {kept[0]} and {kept[1]}: ({kept[0]} + {kept[1]}) / 2.",
        common_mistakes={wrong: why for wrong, why in near.items() if wrong != answer},
    )


def left_padded_position(draw: random.Random) -> NumberQuestion:
    """the position of a token after padding"""
    longest, length = draw.randint(30, 60), draw.randint(6, 20)
    token = draw.randint(2, length - 1)  # counted from 1: "the third token"
    index = longest - length + token - 1
    return NumberQuestion(
        text=(
            f"A text of {length} tokens is padded on the left to length {longest}. Its token number "
            f"{token}, counted from 1, is looked up with learned positions and should get the same vector "
            "as without padding. Which position id does it need?"
        ),
        answer=token - 1,
        explanation=f"Positions count real tokens from 0. The {longest - length} padding tokens are not counted.",
        common_mistakes={
            index: "That is its index in the padded batch. In a batch with a longer text it would be different.",
            token: "Positions start at 0.",
            index + 1: "That is its index in the padded batch, counted from 1.",
        },
    )


def padding_vector(_: random.Random) -> ChoiceQuestion:
    """the vector at a padded position"""
    return ChoiceQuestion(
        text=(
            "The padding row of a table is zero. The layer adds learned positions. What is the hidden "
            "state at a padded position?"
        ),
        options=(
            Option(
                text="Zeros",
                correct=False,
                reason="The row is zero, but the position vector is added to it, as to any other row.",
            ),
            Option(
                text="The row of its position.",
                correct=True,
                reason="Zero plus the position's row. So only the mask can tell you that the position is padding.",
            ),
            Option(
                text="Nothing: padded positions have no hidden state.",
                correct=False,
                reason="A tensor has no holes: each of the B x T positions has D values.",
            ),
            Option(
                text="NaN",
                correct=False,
                reason="Nothing is divided here. NaN comes from a mean over no tokens at all.",
            ),
        ),
    )


def which_tool(draw: random.Random) -> ChoiceQuestion:
    """which tool keeps padding out"""
    tools = {
        "attention": (
            "The mask: scores of padded positions become −∞.",
            "Softmax gives a score of −∞ no weight; a score of 0 would still get some.",
        ),
        "the loss": ("Targets of −100 (`ignore_index`).", "The loss skips such targets and averages over the others."),
        "the gradient of an untied table": (
            "`padding_idx`",
            "A lookup with padding_idx sends no gradient to that row.",
        ),
    }
    asked = draw.choice(list(tools))
    return ChoiceQuestion(
        text=f"Padding must stay out of {asked}. Which tool does that?",
        options=tuple(
            Option(
                text=tool,
                correct=place == asked,
                reason=reason if place == asked else f"That keeps padding out of {place}.",
            )
            for place, (tool, reason) in tools.items()
        ),
        explanation="Three jobs, three tools: each does only its own job.",
    )


def why_a_mask(_: random.Random) -> FreeTextQuestion:
    """why a batch needs a mask in addition to the ids"""
    return FreeTextQuestion(
        text=(
            "The padding id is known, so every function could compare the ids with it. Why does a batch "
            "have a mask anyway?"
        ),
        sample_answer=(
            "Because the id is not always enough. Many tokenizers have no padding token and reuse "
            "another token, usually end-of-text, which then also occurs as a real token. With bytes, every "
            "id from 0 to 255 is real. Later in the model the ids are gone: attention and pooling "
            "see hidden states, and with inputs_embeds there never were any ids. And padded positions "
            "are no longer zero once positions are added. The code that pads knows the lengths, so it "
            "creates the mask once and passes it on."
        ),
        points=(
            "The padding id may also occur as a real token.",
            "Attention and pooling get hidden states, not ids; with inputs_embeds there are none.",
            "Zeros are not a reliable sign either: position vectors are also added to padding.",
            "The mask is created where the padding is done, from the lengths.",
        ),
    )


EXERCISES = (
    padding_count,
    hidden_shape,
    mean_of_real_tokens,
    left_padded_position,
    padding_vector,
    which_tool,
    why_a_mask,
)
