def build_vocabulary(corpus):
    vocabulary = {"<unk>": 0}
    for word in corpus.lower().split():
        vocabulary.setdefault(word, len(vocabulary))
    return vocabulary


def word_ids(text, vocabulary):
    return [vocabulary.get(word, vocabulary["<unk>"]) for word in text.split()]
