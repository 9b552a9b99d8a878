"""Classify texts with scikit-learn: inlayer's vectors as the first step of a pipeline.

The sample model is tiny; TextEncoder("wordllama") or your own model gives better vectors. Needs scikit-learn.
"""

from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from inlayer.integrations.sklearn import TextEncoder

ANIMALS = """
the dog sleeps on the grass|a cat is hiding under the table|wild horses run over the hill|birds sing in the trees
a fish swims in the river|the cow gives milk|sheep are white|my rabbit likes to jump|a bear lives in the forest
wolves hunt at night|the old lion is hungry|ducks swim across the pond|a snake has no legs|the pig is dirty
"""
NUMBERS = """
three and four make seven|half of ten is five|she counted to twenty|a dozen is twelve|two hundred years ago
nine times nine|he paid forty dollars|the third of May|one thousand miles|sixty minutes are an hour
fifteen percent of the total|the first and the second|divide it by six|a million people
"""
animals, numbers = (block.strip().replace("\n", "|").split("|") for block in (ANIMALS, NUMBERS))
texts, labels = animals + numbers, ["animal"] * len(animals) + ["number"] * len(numbers)

print(f"{len(texts)} short texts, mean accuracy of 7-fold cross-validation")
for name, model in (
    ("most frequent class", DummyClassifier()),
    ("words (TF-IDF)", make_pipeline(TfidfVectorizer(), LogisticRegression())),
    ("vectors of inlayer", make_pipeline(TextEncoder("default"), LogisticRegression())),
):
    print(f"{name:<20} {cross_val_score(model, texts, labels, cv=7).mean():.2f}")
pipeline = model.fit(texts, labels)
print("a goat eats my hat:", *pipeline.predict(["a goat eats my hat"]))
