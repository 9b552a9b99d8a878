"""Checkpoints: find the embedding layer in a model's files, open it without loading or trusting the rest, diagnose it.

source -> store (checkpoint/open.py) -> Model (checkpoint/model.py) -> tokenizer, embeddings, head
- a store is a checkpoint that was opened, one class a format: checkpoint/folder.py, gguf.py, pytorch.py, hub.py
- checkpoint/doctor/ says whether the layer is healthy
"""

from inlayer.checkpoint.model import Model, load

__all__ = ["Model", "load"]
