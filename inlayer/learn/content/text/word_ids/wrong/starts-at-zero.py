def build_vocabulary(corpus):
    vocabulary = {}
    for word in corpus.split():
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
    vocabulary["<unk>"] = len(vocabulary)
    return vocabulary


def word_ids(text, vocabulary):
    return [vocabulary.get(word, vocabulary["<unk>"]) for word in text.split()]
