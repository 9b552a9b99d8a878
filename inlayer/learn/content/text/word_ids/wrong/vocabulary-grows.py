def build_vocabulary(corpus):
    vocabulary = {"<unk>": 0}
    for word in corpus.split():
        vocabulary.setdefault(word, len(vocabulary))
    return vocabulary


def word_ids(text, vocabulary):
    ids = []
    for word in text.split():
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
        ids.append(vocabulary[word])
    return ids
