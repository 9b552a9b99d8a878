"""Checkpoints: open a model's embedding layer without loading or trusting the rest of the model.

source -> store (checkpoint/open.py) -> Model (checkpoint/model.py) -> tokenizer, table, embeddings, head
- a store is an opened checkpoint, one class per format: folder.py, gguf.py, pytorch.py, remote/
- only checkpoint/layer.py needs torch; it is imported for `Model.embeddings` and `Model.head`
- elsewhere: whether the layer is healthy (inspection/)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inlayer.checkpoint.open import load

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    if name != "Model":
        raise AttributeError(f"module 'inlayer.checkpoint' has no attribute {name!r}")
    from inlayer.checkpoint.model import Model

    return Model
