"""The geometry of a table: neighbors, analogies, maps, comparisons, and scores. Numpy only.

table, tokenizer -> [geometry] -> similarity, maps, comparison
- nearest.py is the exact search that everything uses; vocabulary.py knows the texts of the rows
- neighbors.py, projection.py (PCA and t-SNE), compare.py, and evaluation.py each handle one task
- called through `Model.neighbors`, `Model.analogy`, `Model.project`, and `inlayer.compare`
"""
