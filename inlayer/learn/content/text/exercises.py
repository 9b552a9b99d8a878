"""Exercises for lesson 1: bytes, words, subwords."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, Option

__all__ = ["EXERCISES"]


def bytes_in_text(draw: random.Random) -> NumberQuestion:
    """count the ids of a text in bytes"""
    text = draw.choice(("naïve", "Zoë 🙂", "10 €", "señor", "Müller", "déjà vu", "Ωmega", "été 🙂🙂", "日本", "a – b"))
    size = len(text.encode())
    wide = [f"{char} takes {len(char.encode())}" for char in dict.fromkeys(text) if len(char.encode()) > 1]
    return NumberQuestion(
        text=f'How many ids does the text "{text}" have under a byte-level tokenizer?',
        answer=size,
        unit="ids",
        explanation=f"UTF-8 encodes it in {size} bytes: {', '.join(wide)}, and every other character takes one.",
        common_mistakes={
            len(text): "That is the number of characters. Characters outside ASCII take two, three, or four bytes each."
        },
    )


def next_id(draw: random.Random) -> NumberQuestion:
    """the id of a merge"""
    merges = draw.randint(5, 900)
    return NumberQuestion(
        text=(
            "A byte-pair tokenizer starts with 256 byte ids, numbered from 0, and nothing else. It learns "
            f"{merges} merges. Which id does the last merge get?"
        ),
        answer=255 + merges,
        explanation=f"The bytes are 0 to 255, the first merge is 256, and merge number n is 255 + n: 255 + {merges}.",
        common_mistakes={
            256 + merges: "One too many: that is the size of the vocabulary, and ids start at 0.",
            merges: "The bytes come first and take the ids 0 to 255.",
        },
    )


def after_one_merge(draw: random.Random) -> NumberQuestion:
    """how much one merge shortens a text"""
    text = draw.choice(("banana", "abracadabra", "mississippi", "tomtomtom", "nanananana", "cocoa coco"))
    counts = Counter(pairwise(text))
    pair, times = counts.most_common(1)[0]
    left = len(text.replace("".join(pair), "_"))
    return NumberQuestion(
        text=f'"{text}" is {len(text)} bytes. One step merges its most frequent adjacent pair '
        "(the first one if there is a tie). How many ids are left?",
        answer=left,
        unit="ids",
        explanation=f'The pair is "{"".join(pair)}". Merging it from left to right leaves {left} ids.',
        common_mistakes={
            len(text) - 2 * times: "A merged pair does not disappear: two ids become one.",
            len(text) - 1: "All occurrences of the pair are merged, not only the first one.",
        },
    )


def printable_first(draw: random.Random) -> NumberQuestion:
    """byte ids in a different order"""
    letter = draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh")
    byte = ord(letter)
    return NumberQuestion(
        text=f'In ASCII the letter "{letter}" is byte {byte}. A GPT-2 style vocabulary numbers the printable '
        f'bytes from "!" (33) as 0, 1, 2, ... What is the id of "{letter}" there?',
        answer=byte - 33,
        explanation=(
            f"{byte} - 33. So byte ids are not necessarily byte values, and an id means nothing without its tokenizer."
        ),
        common_mistakes={
            byte: "That is the byte. This vocabulary does not number the bytes by their value.",
            byte - 32: '"!" itself has id 0, not 1.',
        },
    )


def unknown_word(draw: random.Random) -> ChoiceQuestion:
    """a word that is not in the vocabulary"""
    word = draw.choice(("hedgehog", "defenestrate", "Reykjavík", "zyzzyva"))
    return ChoiceQuestion(
        text=f'The word "{word}" never occurred in the training text of a byte-level BPE tokenizer. What are its ids?',
        options=(
            Option(
                text="The ids of shorter tokens, down to single bytes if necessary.",
                correct=True,
                reason="All 256 bytes are in the vocabulary, so every text has ids.",
            ),
            Option(
                text="The id of the unknown token.",
                correct=False,
                reason="That is what a word-level tokenizer does. With bytes in the vocabulary, nothing is unknown.",
            ),
            Option(
                text="A new id, added at the end of the vocabulary.",
                correct=False,
                reason="A vocabulary is fixed after training: the table has no row for a new id.",
            ),
            Option(
                text="The ids of the most similar known word.",
                correct=False,
                reason="A tokenizer knows nothing about similarity. It only splits bytes.",
            ),
        ),
    )


def why_subwords(draw: random.Random) -> FreeTextQuestion:
    """bytes, words, or subwords"""
    del draw  # the same question every time
    return FreeTextQuestion(
        text="Why do language models split text into subwords instead of bytes or words? Name the cost of each.",
        sample_answer=(
            "Bytes need a table of only 256 rows and cover every text, but they make sequences long, and a "
            "model's work grows with length. Words make short sequences, but the list of words never ends: the "
            "table would be huge, most rows would rarely be trained, and every new word would be unknown. "
            "Subwords are built from bytes, so nothing is unknown. Frequent words become one id, and rare "
            "words become several."
        ),
        points=(
            "a byte-level tokenizer covers every text but makes long sequences",
            "a word-level tokenizer has unknown words, or an unlimited table",
            "subwords: frequent strings are short, and rare ones are still possible",
            "the vocabulary size is the number of table rows",
        ),
    )


EXERCISES = (bytes_in_text, next_id, after_one_merge, printable_first, unknown_word, why_subwords)
