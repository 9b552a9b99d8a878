"""Checks for the task "Words as ids"."""

from __future__ import annotations

from inlayer.errors import type_name
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "word_ids"
PARAMETERS = ("text", "vocabulary")

WORDS = ("I", "love", "dogs", "dogs,", "cats", "and", "Zoo", "zoo", "me", "été", "42", "apple", "你好", "i")
UNKNOWN_WORDS = ("hedgehog", "Love", "DOGS", "ende", "zwölf")
UNKNOWN = "<unk>"


def vocabulary_built(session: GradingSession) -> None:
    """build_vocabulary assigns ids in order of first appearance, after <unk>"""
    words = corpus_words(session)
    got = session.call_other("build_vocabulary", " ".join(words))
    if not isinstance(got, dict):
        raise CheckFailed("not-a-dict", f"build_vocabulary returned {type_name(got)}; return a dict from word to id")
    want = number(words)
    if got == want:
        return
    without_unknown = {word: index for index, word in enumerate(dict.fromkeys(words))}
    by_index = {UNKNOWN: 0} | {word: index for index, word in enumerate(words, start=1)}
    ordered = {UNKNOWN: 0} | {word: index for index, word in enumerate(sorted(set(words)), start=1)}
    folded = number([word.lower() for word in words])
    if got == without_unknown or got == without_unknown | {UNKNOWN: len(without_unknown)}:
        raise CheckFailed("starts-at-zero", f"id 0 belongs to {UNKNOWN}, but the first word of the corpus got it")
    if got == by_index:
        raise CheckFailed(
            "repeats-counted", "a repeated word got a new id; that leaves gaps and changes the ids of words"
        )
    if got == ordered:
        raise CheckFailed("sorted", "the ids follow sorted order; assign them in order of first appearance")
    if got == folded:
        raise CheckFailed("lower-cased", "you lowercased the words: two words of the corpus became one")
    if UNKNOWN not in got:
        raise CheckFailed("no-unknown", f"the vocabulary has no {UNKNOWN}, so unknown words would have no id")
    if set(got) == set(want):
        if sorted(got.values()) != list(range(len(want))):
            raise CheckFailed("not-dense", "the ids are not 0, 1, 2, ... without gaps; each one is a row number")
        raise CheckFailed("order", "the words are correct, but their ids are not in order of first appearance")
    raise CheckFailed("words", "the vocabulary must contain every word of the corpus exactly once")


def known_words(session: GradingSession) -> None:
    """word_ids returns the id of every word, in order"""
    vocabulary = shuffled_vocabulary(session)
    words = draw_words(session, 9)
    got = session.call(" ".join(words), vocabulary)
    judge_kind(got)
    want = [vocabulary[word] for word in words]
    if got == want:
        return
    if got == list(dict.fromkeys(want)) or got == sorted(set(want)):
        raise CheckFailed("repeats-dropped", "a word that occurs twice must appear twice in the result")
    if got == [list(vocabulary).index(word) for word in words]:
        raise CheckFailed(
            "counts-dict-order", "these are positions in the dict; the id of a word is the value stored for it"
        )
    if got == [list(dict.fromkeys(words)).index(word) + 1 for word in words]:
        raise CheckFailed(
            "own-numbering", "you numbered the words of this text from scratch; take the ids from the given vocabulary"
        )
    raise CheckFailed("values", "the ids do not match the ids of these words in the vocabulary")


def white_space(session: GradingSession) -> None:
    """splits at any whitespace, and an empty text has no ids"""
    vocabulary = shuffled_vocabulary(session)
    first, second, third = draw_words(session, 3)
    got = session.call(f"  {first}  {second}\n\t{third} ", vocabulary)
    if got != [vocabulary[first], vocabulary[second], vocabulary[third]]:
        raise CheckFailed(
            "one-space",
            "your code fails on double spaces, tabs, or newlines; split at any whitespace",
        )
    if session.call(" \n ", vocabulary) != []:
        raise CheckFailed("empty-text", "a text of whitespace has no words, so it has no ids")


def unknown_words(session: GradingSession) -> None:
    """an unknown word gets the id of <unk>, and the vocabulary does not change"""
    vocabulary = shuffled_vocabulary(session)
    missing, other = UNKNOWN_WORDS[session.random_int(0, 1)], UNKNOWN_WORDS[session.random_int(2, 4)]
    first, second = draw_words(session, 2)
    answer = session.try_call(f"{missing} {first} {other} {second} {missing}", vocabulary)
    if answer.raised is not None:
        raise CheckFailed(
            "unknown-raises", f"an unknown word raised {answer.raised.type}; return the id of {UNKNOWN} instead"
        )
    unknown = vocabulary[UNKNOWN]
    got = answer.value
    if got == [unknown, vocabulary[first], unknown, vocabulary[second], unknown]:
        return
    if got == [vocabulary[first], vocabulary[second]]:
        raise CheckFailed("unknown-dropped", "you skipped unknown words; the text has five words, so return five ids")
    if got == [0, vocabulary[first], 0, vocabulary[second], 0]:
        raise CheckFailed(
            "unknown-is-zero", f"you used 0 for unknown words; in this vocabulary {UNKNOWN} has a different id"
        )
    if isinstance(got, list) and any(isinstance(value, int) and value >= len(vocabulary) for value in got):
        raise CheckFailed(
            "vocabulary-grows", "an unknown word got a new id; the vocabulary is fixed, and that id has no row"
        )
    if isinstance(got, list) and None in got:
        raise CheckFailed("unknown-is-none", "an unknown word got None as its id; every id is a row number")
    raise CheckFailed("unknown", f"an unknown word must get the id of {UNKNOWN} in the vocabulary")


CHECKS = (vocabulary_built, known_words, white_space, unknown_words)


def draw_words(session: GradingSession, count: int) -> list[str]:
    return [WORDS[session.random_int(0, len(WORDS) - 1)] for _ in range(count)]


def corpus_words(session: GradingSession) -> list[str]:
    """Return random words out of order: one repeated at the end, two that differ only in capitalization."""
    start = session.random_int(0, len(WORDS) - 1)
    reordered = [WORDS[(start + 5 * index) % len(WORDS)] for index in range(len(WORDS))]
    return [*reordered, *draw_words(session, 3), reordered[2]]


def number(words: list[str]) -> dict[str, int]:
    return {word: index for index, word in enumerate(dict.fromkeys([UNKNOWN, *words]))}


def shuffled_vocabulary(session: GradingSession) -> dict[str, int]:
    """Return a vocabulary whose ids do not follow dict order and where the unknown word is not 0."""
    size, shift = len(WORDS) + 1, session.random_int(5, 9)
    return {word: (index * 4 + shift) % size for index, word in enumerate((*WORDS, UNKNOWN))}


def judge_kind(got: object) -> None:
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"your function returned {type_name(got)}; return a list of ids")
    if any(not isinstance(value, int) or isinstance(value, bool) for value in got):
        raise CheckFailed("not-numbers", "the list contains something other than integers; an id is an int")
