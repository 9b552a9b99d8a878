def build_vocabulary(corpus):
    words = ["<unk>", *corpus.split()]
    return {word: place for place, word in enumerate(words)}


def word_ids(text, vocabulary):
    return [vocabulary.get(word, vocabulary["<unk>"]) for word in text.split()]
