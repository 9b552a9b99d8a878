"""inlayer: the embedding layer of language models.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits

Names are resolved on first use, so that `import inlayer` and `inlayer --help` stay light: torch is loaded only
when a tensor is needed. The rooms and the direction of their imports: docs/architecture.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees; the table below is what Python uses, and a test compares the two
    from inlayer.checkpoint import Model as Model
    from inlayer.checkpoint import load as load
    from inlayer.errors import InlayerError as InlayerError
    from inlayer.families import describe as describe
    from inlayer.head import Head as Head
    from inlayer.ids import Ragged as Ragged
    from inlayer.layer import Embeddings as Embeddings
    from inlayer.pooling import first_token_pool as first_token_pool
    from inlayer.pooling import last_token_pool as last_token_pool
    from inlayer.pooling import mean_pool as mean_pool
    from inlayer.positions import apply_rotary as apply_rotary
    from inlayer.rows import MappedTable as MappedTable
    from inlayer.rows import Table as Table
    from inlayer.text import ByteTokenizer as ByteTokenizer
    from inlayer.text import WordTokenizer as WordTokenizer
    from inlayer.text import open_tokenizer as open_tokenizer
    from inlayer.text import train_bpe as train_bpe
    from inlayer.trace import Trace as Trace
    from inlayer.trace import walk as walk
    from inlayer.train.attach import attach as attach

__version__ = "0.1.0"

_HOME = {
    "ByteTokenizer": "inlayer.text",
    "Embeddings": "inlayer.layer",
    "Head": "inlayer.head",
    "InlayerError": "inlayer.errors",
    "MappedTable": "inlayer.rows",
    "Model": "inlayer.checkpoint",
    "Ragged": "inlayer.ids",
    "Table": "inlayer.rows",
    "Trace": "inlayer.trace",
    "WordTokenizer": "inlayer.text",
    "apply_rotary": "inlayer.positions",
    "attach": "inlayer.train.attach",
    "describe": "inlayer.families",
    "first_token_pool": "inlayer.pooling",
    "last_token_pool": "inlayer.pooling",
    "load": "inlayer.checkpoint",
    "mean_pool": "inlayer.pooling",
    "open_tokenizer": "inlayer.text",
    "train_bpe": "inlayer.text",
    "walk": "inlayer.trace",
}

__all__ = [  # noqa: PLE0604  # the public names, frozen by tests/test_public.py
    "__version__",
    *_HOME,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'inlayer' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # the next access is a plain one
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
