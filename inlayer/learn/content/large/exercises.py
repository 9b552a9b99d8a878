"""Exercises for lesson 8: very large vocabularies."""

from __future__ import annotations

import random

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def rows_per_shard(draw: random.Random) -> NumberQuestion:
    """rows of the last process"""
    processes = draw.choice([7, 9, 11])
    rows = draw.choice([50_257, 128_256, 163_840])
    each = -(-rows // processes)
    last, rest = rows - (processes - 1) * each, rows - (processes - 1) * (rows // processes)
    return NumberQuestion(
        text=(
            f"A table of {rows:,} rows is sharded by rows over {processes} processes. Each holds the quotient "
            "rounded up, and the last one holds what is left. How many rows does the last one hold?"
        ),
        answer=last,
        explanation=(
            f"{rows:,} / {processes}, rounded up, is {each:,}. The first {processes - 1} hold "
            f"{(processes - 1) * each:,}, and {last:,} are left."
        ),
        common_mistakes={
            each: "That is what each of the others holds. Fewer are left for the last.",
            rows // processes: "That is the quotient rounded down. Round up, then see what is left.",
            rest: ("That gives the others the quotient rounded down and the last one the remainder. Round up instead."),
        },
    )


def shard_of_id(draw: random.Random) -> NumberQuestion:
    """which process holds a row"""
    processes, each = draw.choice([4, 8]), draw.choice([1_000, 2_500, 20_480])
    rank = draw.randint(1, processes - 2)
    row, after = rank * each + draw.choice([0, each - 1]), rank + 1
    return NumberQuestion(
        text=(
            f"{processes} processes, numbered from 0, hold {each:,} rows each, in order. Which process holds "
            f"row {row:,}?"
        ),
        answer=rank,
        explanation=f"{row:,} // {each:,} is {rank}: it holds the rows {rank * each:,} to {(rank + 1) * each - 1:,}.",
        common_mistakes={
            after: (
                "One too many: rows and processes both start at 0, and a process does not hold the first row "
                "of the next one."
            ),
            rank - 1: "One too few: a block ends one row before the next one starts.",
            row % processes: "That would be a round-robin assignment. The rows are held in blocks.",
        },
    )


def lookup_bytes(draw: random.Random) -> NumberQuestion:
    """bytes that a lookup reads"""
    batch, tokens, width = draw.choice([1, 4, 8]), draw.choice([512, 2_048]), draw.choice([4_096, 7_168])
    rows = draw.choice([128_256, 1_000_000])
    return NumberQuestion(
        text=(
            f"A batch of {batch} x {tokens:,} ids is looked up in a bfloat16 table of {rows:,} x {width:,}. "
            "How many bytes of rows are read, if none of them is cached?"
        ),
        answer=batch * tokens * width * 2,
        unit="bytes",
        tolerance=0.005,
        explanation=(
            f"{batch} x {tokens:,} rows with {width:,} values of 2 bytes. The number of rows in the table "
            "does not matter."
        ),
        common_mistakes={
            rows * width * 2: "That is the whole table. A lookup reads only the requested rows.",
            batch * tokens * width * 4: "A bfloat16 value takes 2 bytes.",
            batch * tokens * width: "That is the number of values, not of bytes.",
        },
    )


def logits_bytes(draw: random.Random) -> NumberQuestion:
    """bytes of all logits"""
    tokens, rows = draw.choice([2_048, 8_192]), draw.choice([163_840, 1_000_000])
    return NumberQuestion(
        text=(
            f"A training step has {tokens:,} tokens and a vocabulary of {rows:,}. How many bytes would all "
            "logits take in float32 if they were stored at once?"
        ),
        answer=tokens * rows * 4,
        unit="bytes",
        tolerance=0.005,
        explanation=f"{tokens:,} x {rows:,} x 4. That is why the loss is computed in chunks, or split over processes.",
        common_mistakes={
            tokens * rows: "That is the number of values, not of bytes.",
            rows * 4: "That is for one token.",
        },
    )


def same_rows(draw: random.Random) -> NumberQuestion:
    """words that share all rows"""
    words, rows, hashes = draw.choice([10_000, 50_000]), draw.choice([1_000, 4_000]), draw.choice([1, 2])
    pairs = words * (words - 1) / 2
    other = 3 - hashes
    return NumberQuestion(
        text=(
            f"{words:,} words are hashed into {rows:,} rows, with {hashes} hash{'es' if hashes > 1 else ''} "
            "each. How many pairs of words would you expect to share all of their rows?"
        ),
        answer=pairs / rows**hashes,
        tolerance=0.02,
        explanation=(
            f"There are {pairs:,.0f} pairs, and a pair shares all of its rows with probability 1 / "
            f"{rows**hashes:,}: 1 / {rows:,} for each hash."
        ),
        common_mistakes={
            pairs / rows**other: "Check the number of hashes: raise the probability for one hash to that power.",
            words / rows: "That is the number of words per row. Count pairs.",
            words**2 / rows**hashes: "You counted each pair twice.",
        },
    )


def salted_hash(draw: random.Random) -> ChoiceQuestion:
    """a hash for a table"""
    word = draw.choice(["dogs", "love", "queen"])
    return ChoiceQuestion(
        text=f'A table was trained with rows selected by Python\'s `hash("{word}") % rows`. What happens when the '
        "model is loaded the next day?",
        options=(
            Option(
                text="Nothing, because hash() is a function.",
                correct=False,
                reason="Within one process it is. For strings, it uses a new salt on every start.",
            ),
            Option(
                text="Words are mapped to other rows.",
                correct=True,
                reason=(
                    "Right: strings are hashed with a salt that is chosen on every start, unless PYTHONHASHSEED is set."
                ),
            ),
            Option(
                text="An IndexError, sometimes.",
                correct=False,
                reason="The modulus keeps every row number inside the table. Nothing tells you that it is wrong.",
            ),
        ),
        explanation=(
            "A checksum such as zlib.crc32, or any hash that is defined by the bytes alone, is the same everywhere."
        ),
    )


def million_rows(draw: random.Random) -> FreeTextQuestion:
    """a million rows and more"""
    rows = draw.choice(["one million", "five million", "twenty million"])
    return FreeTextQuestion(
        text=(
            "Why is an embedding lookup fast, even for large batches and long texts on a GPU? And if the "
            f"vocabulary has {rows} rows, what becomes difficult, and what can you do?"
        ),
        sample_answer=(
            "A lookup copies rows: it does no arithmetic and only moves B · T · D values, and each "
            "row is one contiguous block. V does not matter. On a GPU it is limited by bandwidth, and the "
            "result (B, T, D) is what grows with batch and length. With many rows the memory grows: the "
            "table, its dense gradient, the optimizer's moments, and, for a language model, the head and the "
            "logits. Rows can be sharded over processes, each looking up its own. The gradient of lookups "
            "can be sparse, with an optimizer that accepts it. The table can be made smaller by hashing with "
            "several hashes, with narrow rows and a projection, or with a different tokenizer. The table itself is "
            "not a sparse matrix."
        ),
        points=(
            "rows are copied; bandwidth is the limit, not arithmetic",
            "the cost grows with B, T, and D, not with V",
            "what grows with V: table, gradient, moments, logits",
            "sharding by rows",
            "sparse gradients: for lookups, not for a tied head",
            "hashing, its collisions, and why several hashes",
        ),
    )


EXERCISES = (rows_per_shard, shard_of_id, lookup_bytes, logits_bytes, same_rows, salted_hash, million_rows)
