"""inlayer: the embedding layer of language models.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits

Names are resolved on first use, so that `import inlayer` and `inlayer --help` stay light: torch is loaded only
when a tensor is needed. The rooms and the direction of their imports: docs/architecture.md.
"""
