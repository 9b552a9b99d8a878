def build_vocabulary(corpus):
    vocabulary = {"<unk>": 0}
    for word in corpus.split():
        vocabulary.setdefault(word, len(vocabulary))
    return vocabulary


def word_ids(text, vocabulary):
    return [vocabulary.get(word, 0) for word in text.split()]
