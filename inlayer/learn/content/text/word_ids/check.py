"""Checks of "Words as ids"."""

from __future__ import annotations

from inlayer.learn.session import CheckFailed, GradingSession

NAME = "word_ids"
PARAMETERS = ("text", "vocabulary")

WORDS = ("I", "love", "dogs", "dogs,", "cats", "and", "Zoo", "zoo", "me", "été", "42", "apple", "你好", "i")
STRANGERS = ("hedgehog", "Love", "DOGS", "ende", "zwölf")
UNKNOWN = "<unk>"


def vocabulary_built(session: GradingSession) -> None:
    """build_vocabulary numbers the words by first appearance, after <unk>"""
    words = corpus_words(session)
    got = session.call_other("build_vocabulary", " ".join(words))
    if not isinstance(got, dict):
        raise CheckFailed(
            "not-a-dict", f"build_vocabulary gave a {type(got).__name__}; it must be a dict from word to id"
        )
    want = number(words)
    if got == want:
        return
    no_room = {word: place for place, word in enumerate(dict.fromkeys(words))}
    by_place = {UNKNOWN: 0} | {word: place for place, word in enumerate(words, start=1)}
    ordered = {UNKNOWN: 0} | {word: place for place, word in enumerate(sorted(set(words)), start=1)}
    folded = number([word.lower() for word in words])
    if got == no_room or got == no_room | {UNKNOWN: len(no_room)}:
        raise CheckFailed("starts-at-zero", f"id 0 belongs to {UNKNOWN}; the first word of the corpus took it")
    if got == by_place:
        raise CheckFailed(
            "repeats-counted", "a word that occurs again took a new number; ids then have gaps and words move"
        )
    if got == ordered:
        raise CheckFailed(
            "sorted", "the words are numbered in sorted order; the task asks for the order of first appearance"
        )
    if got == folded:
        raise CheckFailed("lower-cased", "words were changed to lower case: two words of the corpus became one")
    if UNKNOWN not in got:
        raise CheckFailed("no-unknown", f"the vocabulary has no {UNKNOWN}; a word it does not know would have no id")
    if set(got) == set(want):
        if sorted(got.values()) != list(range(len(want))):
            raise CheckFailed("not-dense", "the ids are not 0, 1, 2, ... without a gap; each is the number of a row")
        raise CheckFailed("order", "the words are there, but not numbered in the order of their first appearance")
    raise CheckFailed("words", "the words of the vocabulary are not the words of the corpus, each once")


def known_words(session: GradingSession) -> None:
    """word_ids gives the id of every word, in the order of the text"""
    vocabulary = shuffled_vocabulary(session)
    words = draw_words(session, 9)
    got = session.call(" ".join(words), vocabulary)
    judge_kind(got)
    want = [vocabulary[word] for word in words]
    if got == want:
        return
    if got == list(dict.fromkeys(want)) or got == sorted(set(want)):
        raise CheckFailed("repeats-dropped", "a word that occurs twice in the text has its id twice")
    if got == [list(vocabulary).index(word) for word in words]:
        raise CheckFailed(
            "counts-places", "these are places in the dict; the id of a word is the number the dict holds for it"
        )
    if got == [list(dict.fromkeys(words)).index(word) + 1 for word in words]:
        raise CheckFailed(
            "own-numbering", "the text was numbered by itself; its ids must come from the given vocabulary"
        )
    raise CheckFailed("values", "the ids are not those that the vocabulary gives to the words of the text")


def white_space(session: GradingSession) -> None:
    """any white space parts words, and an empty text has none"""
    vocabulary = shuffled_vocabulary(session)
    one, two, three = draw_words(session, 3)
    got = session.call(f"  {one}  {two}\n\t{three} ", vocabulary)
    if got != [vocabulary[one], vocabulary[two], vocabulary[three]]:
        raise CheckFailed(
            "one-space",
            "two spaces, a tab or a line end confuse the cutting; words stand between white space of any kind",
        )
    if session.call(" \n ", vocabulary) != []:
        raise CheckFailed("empty-text", "a text of white space holds no words, so it has no ids")


def unknown_words(session: GradingSession) -> None:
    """an unknown word has the id of <unk>, and the vocabulary stays as it is"""
    vocabulary = shuffled_vocabulary(session)
    stranger, other = STRANGERS[session.random_int(0, 1)], STRANGERS[session.random_int(2, 4)]
    one, two = draw_words(session, 2)
    answer = session.try_call(f"{stranger} {one} {other} {two} {stranger}", vocabulary)
    if answer.raised is not None:
        raise CheckFailed(
            "unknown-raises", f"an unknown word raised {answer.raised.type}; it has an id, the one of {UNKNOWN}"
        )
    unknown = vocabulary[UNKNOWN]
    got = answer.value
    if got == [unknown, vocabulary[one], unknown, vocabulary[two], unknown]:
        return
    if got == [vocabulary[one], vocabulary[two]]:
        raise CheckFailed("unknown-dropped", "unknown words were left out; the text has five words, so it has five ids")
    if got == [0, vocabulary[one], 0, vocabulary[two], 0]:
        raise CheckFailed(
            "unknown-is-zero", f"0 was written for unknown words; in this vocabulary {UNKNOWN} has another id"
        )
    if isinstance(got, list) and any(isinstance(value, int) and value >= len(vocabulary) for value in got):
        raise CheckFailed(
            "vocabulary-grows", "an unknown word got a new id; there is no row for it, the vocabulary is fixed"
        )
    if isinstance(got, list) and None in got:
        raise CheckFailed("unknown-is-none", "an unknown word has None for an id; every id is a number of a row")
    raise CheckFailed("unknown", f"an unknown word must have the id that the vocabulary holds for {UNKNOWN}")


CHECKS = (vocabulary_built, known_words, white_space, unknown_words)


def draw_words(session: GradingSession, count: int) -> list[str]:
    return [WORDS[session.random_int(0, len(WORDS) - 1)] for _ in range(count)]


def corpus_words(session: GradingSession) -> list[str]:
    """Drawn words, out of order, one of them again at the end, two that differ by their capital alone."""
    start = session.random_int(0, len(WORDS) - 1)
    turned = [WORDS[(start + 5 * place) % len(WORDS)] for place in range(len(WORDS))]
    return [*turned, *draw_words(session, 3), turned[2]]


def number(words: list[str]) -> dict[str, int]:
    return {word: place for place, word in enumerate(dict.fromkeys([UNKNOWN, *words]))}


def shuffled_vocabulary(session: GradingSession) -> dict[str, int]:
    """A vocabulary whose ids are neither in the order of the dict nor 0 for the unknown word."""
    size, shift = len(WORDS) + 1, session.random_int(5, 9)
    return {word: (place * 4 + shift) % size for place, word in enumerate((*WORDS, UNKNOWN))}


def judge_kind(got: object) -> None:
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"the answer is a {type(got).__name__}; it must be a list of ids")
    if any(not isinstance(value, int) or isinstance(value, bool) for value in got):
        raise CheckFailed("not-numbers", "the list holds something other than whole numbers; an id is an int")
