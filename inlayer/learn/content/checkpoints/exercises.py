"""Exercises for lesson 9: real checkpoints."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def row_offset(draw: random.Random) -> NumberQuestion:
    """the offset of a row"""
    length, begin = 8 * draw.randint(20, 2_000), draw.choice([0, 14_336, 917_504])
    width, row = draw.choice([384, 4_096, 7_168]), draw.randint(2, 5_000)
    at = 8 + length + begin + row * width * 2
    return NumberQuestion(
        text=(
            f"A safetensors file has a header of {length:,} bytes. Its bfloat16 table is {width:,} wide, and "
            f"its data_offsets start at {begin:,}. At which byte of the file does row {row:,} start?"
        ),
        answer=at,
        explanation=(
            f"8 bytes for the length, {length:,} for the header, {begin:,} before the table, then {row:,} "
            f"rows of {width:,} x 2 bytes."
        ),
        common_mistakes={
            at - 8: "8 bytes too few: the length field also takes space.",
            at - 8 - length: "That counts from the end of the header. The file starts earlier.",
            8 + length + begin + row * width: "A bfloat16 value takes 2 bytes.",
            8 + length + begin + (row - 1) * width * 2: "One row too early: rows start at 0.",
        },
    )


def header_length(draw: random.Random) -> NumberQuestion:
    """the first eight bytes"""
    low, high = draw.randint(16, 255), draw.randint(1, 9)
    length = low + 256 * high
    data = length.to_bytes(8, "little")
    return NumberQuestion(
        text=f"A safetensors file starts with the bytes {data.hex(' ')}. How many bytes does its header have?",
        answer=length,
        explanation=f"The least significant byte comes first: {low} + 256 x {high}.",
        common_mistakes={
            int.from_bytes(data, "big"): "That is big-endian. safetensors is little-endian.",
            low: "That is the first byte alone. The second one counts 256 times as much.",
            high + 256 * low: "The bytes are the other way around: the least significant one comes first.",
        },
    )


def row_bytes(draw: random.Random) -> NumberQuestion:
    """bytes for a sentence"""
    name, width = draw.choice([("Kimi-K2", 7_168), ("Llama-3.1-8B", 4_096), ("Llama-3.2-1B", 2_048)])
    tokens = draw.randint(4, 20)
    return NumberQuestion(
        text=(
            f"A sentence has {tokens} distinct tokens. How many bytes of {name}'s bfloat16 table, which is "
            f"{width:,} wide, does it need?"
        ),
        answer=tokens * width * 2,
        unit="bytes",
        explanation=f"{tokens} rows with {width:,} values of 2 bytes; a row takes {width * 2:,} bytes.",
        common_mistakes={
            tokens * width: "That is the number of values. Each takes 2 bytes.",
            tokens * width * 4: "A bfloat16 value takes 2 bytes, not 4.",
        },
    )


def what_is_tied(draw: random.Random) -> ChoiceQuestion:
    """a config without tie_word_embeddings"""
    family, tied = draw.choice([("gpt2", True), ("llama", False), ("deepseek_v3", False), ("gemma3_text", True)])
    yes = "Right: " if tied else ""
    no = "" if tied else "Right: "
    custom = f"{family} models are {'tied' if tied else 'untied'} unless their config says otherwise."
    return ChoiceQuestion(
        text=f"A config has `model_type: {family}` and no field `tie_word_embeddings`. Is the head tied?",
        options=(
            Option(text="Yes", correct=tied, reason=f"{yes}{custom}"),
            Option(text="No", correct=not tied, reason=f"{no}{custom}"),
            Option(
                text="The config is broken.",
                correct=False,
                reason="Configs leave out their family's defaults. The reader has to know them.",
            ),
        ),
    )


def where_positions(draw: random.Random) -> ChoiceQuestion:
    """what a maximum length tells you"""
    longest = draw.choice([4_096, 131_072])
    return ChoiceQuestion(
        text=f"A config has `max_position_embeddings: {longest}`. What does the input layer do about positions?",
        options=(
            Option(
                text=f"It adds a row from a table of {longest:,}.",
                correct=False,
                reason="That is true for GPT-2's family. Kimi-K2 has the same field and no such table.",
            ),
            Option(
                text="That depends on the family.",
                correct=True,
                reason=(
                    "Right: the field is the maximum length. Rotary models rotate queries and keys later and "
                    "add nothing here."
                ),
            ),
            Option(
                text="Nothing, in any model.",
                correct=False,
                reason="GPT-2, BERT, and others add a learned row to each token here.",
            ),
        ),
    )


def hostile_file(draw: random.Random) -> FreeTextQuestion:
    """a malicious header"""
    source = draw.choice(["a colleague", "a hub", "a forum"])
    return FreeTextQuestion(
        text=(
            f"You get a safetensors file from {source} and want one row of its table. Which false claims can "
            "its header make, and what do you check each of them against?"
        ),
        sample_answer=(
            "Its own length: compare it with the length of the file, and with a limit that you set, before "
            "you read or allocate anything. The JSON may be invalid, not an object, nested too deeply, or "
            "list a tensor twice. A dtype may be unknown. data_offsets may be negative, reversed, or past the "
            "end of the file: compare them with what is left after the header. A shape may need more or "
            "fewer bytes than the span has: compare it with dtype times shape. Spans may overlap. The config "
            "may give different sizes than the tensor has. And the id you look up may be outside the table."
        ),
        points=(
            "the header's length against the file's",
            "offsets against the available bytes",
            "shape times dtype against the span",
            "invalid JSON, or JSON that is not an object",
            "sizes in the config against those of the tensor",
            "nothing is allocated or executed because the file requests it",
        ),
    )


EXERCISES = (row_offset, header_length, row_bytes, what_is_tied, where_positions, hostile_file)
