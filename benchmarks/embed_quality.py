"""Quality of pooled rows: STS-B, word similarity and two classification sets, plain and fitted, next to a peer.

    python -m benchmarks.embed_quality --data FOLDER

FOLDER has stsb/stsb-en-dev.csv, stsb/stsb-en-test.csv (sentence, sentence, score) and wordsim/*.txt. The classification
sets are made from what is installed: which documentation topic of Python a paragraph is from ("topics"), and with which
of ten verbs a docstring of the standard library started, which was removed ("verbs"). Weightings are fitted without
labels: on the sentences of the dev set for STS-B and words, and on every second text of a classification set. The peer
is model2vec with the same table and tokenizer.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from model2vec import StaticModel
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer

import inlayer
from benchmarks.corpus import docstrings, standard_library
from inlayer.geometry.evaluation import spearman
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

MODELS = ("wordllama", "minilm", "smollm2", "default")
FITTED: dict[str, dict[str, Any]] = {
    "SIF": {"remove_components": 0}, "SIF, 1 component": {}, "SIF, whitened": {"remove_components": 0, "whiten": True},
}  # fmt: skip


def sentence_pairs(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Two lists of sentences, and the human scores."""
    with path.open(encoding="utf-8", newline="") as file:
        first, second, scores = zip(*csv.reader(file), strict=True)
    return list(first), list(second), np.array(scores, float)


def word_pairs(folder: Path) -> list[tuple[list[str], list[str], np.ndarray]]:
    """The same for lists of word pairs."""
    lists = []
    for path in sorted(folder.glob("*.txt")):
        rows = [
            line.replace(",", "\t").split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
        lists.append(([row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])))
    return lists


def similarity(encode: Any, pairs: tuple[list[str], list[str], np.ndarray]) -> float:
    """Spearman's correlation of cosines with human scores, times 100."""
    first, second = (np.asarray(encode(texts), np.float64) for texts in pairs[:2])
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / np.where(norms > 0, norms, 1)
    return 100 * (spearman(cosines, pairs[2]) or 0.0)


def topic_texts() -> tuple[list[str], list[int]]:
    """Paragraphs of the 20 longest documentation topics."""
    longest = sorted(topics, key=lambda name: -len(topics[name]))[:20]
    pairs = [(p, n) for n, name in enumerate(longest) for p in topics[name].split("\n\n") if len(p) > 80]
    return [text for text, _ in pairs], [label for _, label in pairs]


def verb_texts() -> tuple[list[str], list[int]]:
    """Docstrings that start with one of the ten most common verbs, without that verb: which one was it?"""
    found = [text.split(None, 1) for text in docstrings(standard_library()) if len(text.split(None, 1)) == 2]
    common = [verb for verb, _ in Counter(verb for verb, _ in found if verb.isalpha()).most_common(10)]
    kept = [(rest, common.index(verb)) for verb, rest in found if verb in common]
    return [text for text, _ in kept], [label for _, label in kept]


def accuracy(encode: Any, texts: list[str], labels: list[int]) -> float:
    """Share of correct answers of a logistic regression on the second half of a fixed shuffle, times 100."""
    order = np.random.default_rng(0).permutation(len(texts))
    vectors, targets = np.asarray(encode(texts), np.float64)[order], np.array(labels)[order]
    vectors /= vectors.std() or 1.0
    half = len(texts) // 2
    model = LogisticRegression(max_iter=1000).fit(vectors[:half], targets[:half])
    return 100 * float(model.score(vectors[half:], targets[half:]))


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed_quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    data = arguments.data
    dev, test = (sentence_pairs(data / "stsb" / f"stsb-en-{part}.csv") for part in ("dev", "test"))
    words, sets = word_pairs(data / "wordsim"), (topic_texts(), verb_texts())
    print("| model | method | STS-B dev | STS-B test | words | topics | verbs |\n|---|---|---|---|---|---|---|")
    for source in arguments.models:
        model = inlayer.load(source)
        methods: dict[str, list[Any]] = {"plain": [model.encode] * 3}
        tokenizer = model.tokenizer
        rows = np.asarray(model.table.weight).astype(np.float32)
        if isinstance(tokenizer, HuggingFaceTokenizer) and tokenizer.get_vocab_size() == len(rows):
            methods["model2vec, same table"] = [
                StaticModel(rows, Tokenizer.from_str(tokenizer.data.decode())).encode
            ] * 3
        for name, options in FITTED.items():
            samples = [dev[0] + dev[1], *(sorted(texts)[::2] for texts, _ in sets)]
            fitted = [inlayer.Weighting.fit(model, sample, **options) for sample in samples]
            methods[name] = [lambda texts, w=one: model.encode(texts, weights=w) for one in fitted]  # noqa: B023
        for name, (sentences, *others) in methods.items():
            scores = [similarity(sentences, dev), similarity(sentences, test)]
            scores.append(float(np.mean([similarity(sentences, pairs) for pairs in words])))
            scores += [accuracy(encode, *one) for encode, one in zip(others, sets, strict=True)]
            print(f"| {source} | {name} | {' | '.join(f'{score:.1f}' for score in scores)} |", flush=True)


if __name__ == "__main__":
    main()
