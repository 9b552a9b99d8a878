"""The geometry of a table: neighbors, analogies, maps, comparisons, and scores. Numpy only.

table, tokenizer -> [geometry] -> what the rows mean
- nearest.py is the exact search that everything uses; vocabulary.py says what rows stand for
- neighbors.py, projection.py (PCA and t-SNE), compare.py, and evaluation.py are one task each
- called through `Model.neighbors`, `Model.analogy`, `Model.project`, and `inlayer.compare`
"""
