"""Task word_ids: a word-level tokenizer."""


def build_vocabulary(corpus: str) -> dict[str, int]:
    """Return a dict from word to id: "<unk>" is 0, and the words of the corpus follow in order of first appearance."""
    vocabulary = {"<unk>": 0}
    for word in corpus.split():
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
    return vocabulary


def word_ids(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Return the id of every word of a text; words that are not in the vocabulary get the id of "<unk>"."""
    return [vocabulary.get(word, vocabulary["<unk>"]) for word in text.split()]
