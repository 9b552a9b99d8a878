"""Checkpoints: open a model's embedding layer without loading or trusting the rest of the model.

source -> store (checkpoint/open.py) -> Model (checkpoint/model.py) -> tokenizer, table, embeddings, head
- a store is an opened checkpoint, one class per format: store.py, gguf_store.py
- its files are local or remote: folder.py, remote/
- only checkpoint/layer.py needs torch; it is imported for `Model.embeddings` and `Model.head`
- see also: whether the layer is healthy (inspection/)
"""

from inlayer.checkpoint.open import load

__all__ = ["load"]
