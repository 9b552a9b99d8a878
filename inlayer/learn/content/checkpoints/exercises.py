"""Theory of "Real checkpoints"."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def row_offset(draw: random.Random) -> NumberQuestion:
    """where a row lies"""
    length, begin = 8 * draw.randint(20, 2_000), draw.choice([0, 14_336, 917_504])
    width, row = draw.choice([384, 4_096, 7_168]), draw.randint(2, 5_000)
    at = 8 + length + begin + row * width * 2
    return NumberQuestion(
        text=f"A safetensors file has a header of {length:,} bytes. Its bfloat16 table is {width:,} wide and has "
        f"data_offsets that begin at {begin:,}. At which byte of the file does row {row:,} begin?",
        answer=at,
        explanation=f"8 bytes of length, {length:,} of header, {begin:,} before the table, then {row:,} rows of "
        f"{width:,} x 2 bytes.",
        common_mistakes={
            at - 8: "8 bytes too early: the length of the header takes room, too.",
            at - 8 - length: "That counts from the end of the header; the file begins earlier.",
            8 + length + begin + row * width: "A bfloat16 takes 2 bytes.",
            8 + length + begin + (row - 1) * width * 2: "One row too early: rows are counted from 0.",
        },
    )


def header_length(draw: random.Random) -> NumberQuestion:
    """the first eight bytes"""
    low, high = draw.randint(16, 255), draw.randint(1, 9)
    length = low + 256 * high
    data = length.to_bytes(8, "little")
    return NumberQuestion(
        text=f"A safetensors file begins with the bytes {data.hex(' ')}. How many bytes does its header have?",
        answer=length,
        explanation=f"The smallest byte comes first: {low} + 256 x {high}.",
        common_mistakes={
            int.from_bytes(data, "big"): "That is the largest byte first. safetensors is little-endian.",
            low: "That is the first byte alone; the second counts 256 times.",
            high + 256 * low: "The bytes are the other way round: the smallest comes first.",
        },
    )


def row_bytes(draw: random.Random) -> NumberQuestion:
    """bytes for a sentence"""
    name, width = draw.choice([("Kimi-K2", 7_168), ("Llama-3.1-8B", 4_096), ("Llama-3.2-1B", 2_048)])
    tokens = draw.randint(4, 20)
    return NumberQuestion(
        text=f"A sentence has {tokens} different tokens. How many bytes of {name}'s bfloat16 table, of width "
        f"{width:,}, does it need?",
        answer=tokens * width * 2,
        unit="bytes",
        explanation=f"{tokens} rows of {width:,} numbers of 2 bytes; a row is {width * 2:,} bytes.",
        common_mistakes={
            tokens * width: "These are numbers; each has 2 bytes.",
            tokens * width * 4: "A bfloat16 has 2 bytes, not 4.",
        },
    )


def what_is_tied(draw: random.Random) -> ChoiceQuestion:
    """a config without a word on the tie"""
    family, tied = draw.choice([("gpt2", True), ("llama", False), ("deepseek_v3", False), ("gemma3_text", True)])
    yes = "Right: " if tied else ""
    no = "" if tied else "Right: "
    custom = f"{family} models are {'tied' if tied else 'untied'} unless their config says otherwise."
    return ChoiceQuestion(
        text=f"A config has `model_type: {family}` and no field `tie_word_embeddings`. Is the head tied?",
        options=(
            Option(text="yes", correct=tied, reason=f"{yes}{custom}"),
            Option(text="no", correct=not tied, reason=f"{no}{custom}"),
            Option(
                text="the config is broken",
                correct=False,
                reason="Configs leave out what is usual in their family; the reader has to know it.",
            ),
        ),
    )


def where_positions(draw: random.Random) -> ChoiceQuestion:
    """what a longest text says"""
    longest = draw.choice([4_096, 131_072])
    return ChoiceQuestion(
        text=f"A config has `max_position_embeddings: {longest}`. What does the input layer do about positions?",
        options=(
            Option(
                text=f"it adds a row of a table of {longest:,}",
                correct=False,
                reason="So it is in GPT-2's family. Kimi-K2 has the same field and no such table.",
            ),
            Option(
                text="that depends on the family",
                correct=True,
                reason="Right: the field is the longest text. Rotary models turn queries and keys later and add "
                "nothing "
                "here.",
            ),
            Option(
                text="nothing, ever",
                correct=False,
                reason="GPT-2, BERT and others add a learned row to each token here.",
            ),
        ),
    )


def hostile_file(draw: random.Random) -> FreeTextQuestion:
    """a header that lies"""
    what = draw.choice(["a colleague", "a hub", "a forum"])
    return FreeTextQuestion(
        text=f"You get a safetensors file from {what} and want one row of its table. What can its header lie about, "
        "and what do you compare each lie with?",
        model_answer="Its own length: compare with the length of the file, and with a bound of your own, before "
        "reading or reserving. The JSON may be broken, no object, nested without end, or name a tensor twice. A "
        "dtype may be unknown. data_offsets may be negative, backwards or past the file: compare with what is left "
        "after the header. A shape may need more or fewer bytes than the span has: compare with dtype times shape. "
        "Spans may overlap. The config may name other sizes than the tensor has. And the id you look up may lie "
        "outside of the table.",
        points=(
            "the header's length against the file's",
            "offsets against the bytes that are there",
            "shape times dtype against the span",
            "JSON that is none, or no object",
            "sizes of the config against those of the tensor",
            "nothing is allocated or executed on the word of the file",
        ),
    )


EXERCISES = (row_offset, header_length, row_bytes, what_is_tied, where_positions, hostile_file)
