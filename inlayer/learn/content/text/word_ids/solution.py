"""Task word_ids: a tokenizer of whole words."""


def build_vocabulary(corpus: str) -> dict[str, int]:
    """From word to id: "<unk>" is 0, the words of the corpus follow in order of first appearance."""
    vocabulary = {"<unk>": 0}
    for word in corpus.split():
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
    return vocabulary


def word_ids(text: str, vocabulary: dict[str, int]) -> list[int]:
    """The id of every word of a text; a word that is not in the vocabulary has the id of "<unk>"."""
    return [vocabulary.get(word, vocabulary["<unk>"]) for word in text.split()]
