"""Theory exercises of the lesson on padding, masks and pooling."""

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
        text=f"Four texts of {', '.join(map(str, lengths))} tokens become a batch. How many places of it are padding?",
        answer=4 * longest - real,
        explanation=f"The rectangle has 4 x {longest} = {4 * longest} places, and {real} tokens are real.",
        unit="places",
        common_mistakes={
            real: "So many are real. Padding is what the rectangle has beyond them.",
            4 * longest: "That is the whole rectangle.",
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
            f"Texts of {', '.join(map(str, lengths))} tokens are padded and looked up in a table of width {width:,}. "
            "Which shape have the hidden states?"
        ),
        answer=(4, longest, width),
        explanation="B texts, T places as the longest text has tokens, D channels. Padded places have vectors, too.",
        common_mistakes={
            (4, width, longest): "The channels come last: (B, T, D).",
            (sum(lengths), width): "That would be the tokens without padding, one after the other.",
            (4, min(lengths), width): "Nothing is cut off: the longest text decides.",
        },
    )


def mean_of_real_tokens(draw: random.Random) -> NumberQuestion:
    """the mean of a padded text"""
    values = draw.sample(range(1, 30), 4)
    mask = draw.choice([(1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0)])
    kept = [value for value, real in zip(values, mask, strict=True) if real]
    answer = sum(kept) / 2
    near = {
        float(sum(kept)): "That is the sum. A mean is also divided, by the number of real tokens.",
        sum(kept) / 4: "Divided by the number of places. Padding must not be counted either.",
        sum(values) / 4: "That is the mean over all places: the mask was not used.",
        sum(values[:2]) / 2: "Two tokens are real, but not the first two: the mask says where.",
    }
    return NumberQuestion(
        text=(
            f"One channel of a text's hidden states is {values}, its mask is {list(mask)}. "
            "What does mean pooling give in this channel?"
        ),
        answer=answer,
        explanation=f"The real tokens hold {kept[0]} and {kept[1]}: ({kept[0]} + {kept[1]}) / 2.",
        common_mistakes={wrong: why for wrong, why in near.items() if wrong != answer},
    )


def left_padded_position(draw: random.Random) -> NumberQuestion:
    """the position of a token after padding"""
    longest, length = draw.randint(30, 60), draw.randint(6, 20)
    token = draw.randint(2, length - 1)  # counted from 1: "the third token"
    place = longest - length + token - 1
    return NumberQuestion(
        text=(
            f"A text of {length} tokens is padded on the left to {longest} places. Its token number {token}, counted "
            "from 1, is looked up with learned positions, as if the text stood alone. Which position id does it "
            "need?"
        ),
        answer=token - 1,
        explanation=f"Positions count real tokens from 0. The {longest - length} places of padding are not counted.",
        common_mistakes={
            place: "That is its place in the rectangle. Beside a longer text it would be another one.",
            token: "Positions count from 0.",
            place + 1: "That is its place in the rectangle, counted from 1.",
        },
    )


def padding_vector(_: random.Random) -> ChoiceQuestion:
    """what stands in a padded place"""
    return ChoiceQuestion(
        text=(
            "The padding row of a table is zero. The layer adds learned positions. "
            "What does the hidden state of a padded place hold?"
        ),
        options=(
            Option(
                text="zeros",
                correct=False,
                reason="The row is zero, but the position is added to it like to any other.",
            ),
            Option(
                text="the row of its position",
                correct=True,
                reason="Zero plus the position's row. So only the mask can tell that the place is padding.",
            ),
            Option(
                text="nothing: padded places have no hidden state",
                correct=False,
                reason="A tensor has no holes: each of the B x T places holds D numbers.",
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
        "the attention": ("the mask: scores of padded places become −∞", "Softmax gives −∞ no share, and 0 its share."),
        "the loss": ("targets of −100 (ignore_index)", "The loss leaves such targets out, and counts the others."),
        "the gradient of an untied table": ("padding_idx", "A lookup with padding_idx sends no gradient to that row."),
    }
    asked = draw.choice(list(tools))
    return ChoiceQuestion(
        text=f"Padding must stay out of {asked}. What sees to that?",
        options=tuple(
            Option(
                text=tool,
                correct=where == asked,
                reason=reason if where == asked else f"That keeps padding out of {where}.",
            )
            for where, (tool, reason) in tools.items()
        ),
        explanation="Three jobs, three tools: none of them does another's work.",
    )


def why_a_mask(_: random.Random) -> FreeTextQuestion:
    """why there is a mask beside the ids"""
    return FreeTextQuestion(
        text=(
            "The padding id is known, so every function could compare the ids with it. Why does a batch carry a mask "
            "all the same?"
        ),
        model_answer=(
            "Because an id does not always tell. Many tokenizers have no padding token and borrow another one, "
            "mostly end-of-text, which then also occurs as a real token; with bytes every id from 0 to 255 is a real "
            "one. Further on there are no ids at all: attention and pooling see hidden states, and with "
            "inputs_embeds there never were any. And a padded place is not zero any more once positions are added. "
            "Whoever pads knows the lengths, so the mask is made there, once, and handed on."
        ),
        points=(
            "The padding id may also occur as a real token.",
            "Attention and pooling get hidden states, not ids; with inputs_embeds there are none.",
            "Zeros are no sign either: positions are added to padded places, too.",
            "The mask is made where the padding is done, from the lengths.",
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
