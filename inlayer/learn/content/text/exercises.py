"""Exercises of lesson 1: bytes, words, pieces."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def bytes_in_text(draw: random.Random) -> NumberQuestion:
    """ids of a text, byte by byte"""
    text = draw.choice(("naïve", "Zoë 🙂", "10 €", "señor", "Müller", "déjà vu", "Ωmega", "été 🙂🙂", "日本", "a – b"))
    size = len(text.encode())
    wide = [f"{one} takes {len(one.encode())}" for one in dict.fromkeys(text) if len(one.encode()) > 1]
    return NumberQuestion(
        text=f'How many ids does the text "{text}" have under a tokenizer of bytes?',
        answer=size,
        unit="ids",
        explanation=f"UTF-8 writes it in {size} bytes: {', '.join(wide)}, every other character one.",
        common_mistakes={
            len(text): "That is the number of characters; those beyond ASCII take two, three or four bytes each."
        },
    )


def next_id(draw: random.Random) -> NumberQuestion:
    """the id of a merge"""
    merges = draw.randint(5, 900)
    return NumberQuestion(
        text=f"A byte-pair tokenizer has 256 ids for the bytes and nothing else, numbered from 0. It learns {merges} "
        "merges. Which id does the last merge get?",
        answer=255 + merges,
        explanation=f"The bytes are 0 to 255, the first merge is 256, and merge number n is 255 + n: 255 + {merges}.",
        common_mistakes={
            256 + merges: "One too many: that is the size of the vocabulary, and ids count from 0.",
            merges: "The bytes come first and take the ids 0 to 255.",
        },
    )


def after_one_merge(draw: random.Random) -> NumberQuestion:
    """how short one merge makes a text"""
    text = draw.choice(("banana", "abracadabra", "mississippi", "tomtomtom", "nanananana", "cocoa coco"))
    counts = Counter(pairwise(text))
    pair, times = counts.most_common(1)[0]
    left = len(text.replace("".join(pair), "_"))
    return NumberQuestion(
        text=f'"{text}" is {len(text)} bytes. One merge joins its most frequent pair of neighbors, the first of them '
        "where several are equally frequent. How many ids are left?",
        answer=left,
        unit="ids",
        explanation=f'The pair is "{"".join(pair)}"; joined from left to right it leaves {left} ids.',
        common_mistakes={
            len(text) - 2 * times: "A joined pair does not vanish: two ids become one.",
            len(text) - 1: "All occurrences of the pair are joined, not the first one alone.",
        },
    )


def printable_first(draw: random.Random) -> NumberQuestion:
    """bytes numbered in another order"""
    letter = draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh")
    byte = ord(letter)
    return NumberQuestion(
        text=f'In ASCII the letter "{letter}" is byte {byte}. A vocabulary of the GPT-2 kind numbers the printable '
        f'bytes from "!" (33) on as 0, 1, 2, ... Which id has "{letter}" there?',
        answer=byte - 33,
        explanation=f"{byte} - 33. So ids of bytes are not the bytes, and ids of one tokenizer say nothing to another.",
        common_mistakes={
            byte: "That is the byte; this vocabulary does not number the bytes by their value.",
            byte - 32: '"!" itself has the id 0, not 1.',
        },
    )


def unknown_word(draw: random.Random) -> ChoiceQuestion:
    """a word that the vocabulary does not hold"""
    word = draw.choice(("hedgehog", "defenestrate", "Reykjavík", "zyzzyva"))
    return ChoiceQuestion(
        text=f'The word "{word}" never occurred in the text that a byte-level byte-pair tokenizer was trained on. What '
        "are its ids?",
        options=(
            Option(
                text="those of shorter pieces, single bytes if need be",
                correct=True,
                reason="All 256 bytes are in the vocabulary, so every text has ids.",
            ),
            Option(
                text="the one id of the unknown token",
                correct=False,
                reason="That is what a word-level tokenizer does; one with bytes has nothing unknown.",
            ),
            Option(
                text="a new id, added at the end of the vocabulary",
                correct=False,
                reason="A vocabulary is fixed when it is trained: the table has no row for a new id.",
            ),
            Option(
                text="the ids of the most similar known word",
                correct=False,
                reason="A tokenizer knows nothing about likeness. It cuts bytes.",
            ),
        ),
    )


def why_pieces(draw: random.Random) -> FreeTextQuestion:
    """bytes, words or pieces"""
    del draw  # always the same question
    return FreeTextQuestion(
        text="Why do language models cut texts into pieces, and neither into bytes nor into words? Name what each "
        "costs.",
        model_answer="Bytes need a table of 256 rows and know every text, but make sequences long, and a model's work "
        "grows with their length. Words make short sequences, but there is no end of them: the table would be huge, "
        "most rows hardly ever trained, and every new word unknown. Pieces are built from bytes, so nothing is "
        "unknown; frequent words become one id, rare ones several.",
        points=(
            "a tokenizer of bytes knows every text and makes long sequences",
            "a tokenizer of words has unknown words, or a table without end",
            "pieces: frequent strings are short, rare ones are still possible",
            "the size of the vocabulary is the number of rows of the table",
        ),
    )


EXERCISES = (bytes_in_text, next_id, after_one_merge, printable_first, unknown_word, why_pieces)
