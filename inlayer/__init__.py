"""inlayer: the embedding layer of language models.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits

Names are resolved on first use: `import inlayer` and `inlayer --help` stay light, and `load`, `describe`, and the
tokenizers work without torch. docs/architecture.md describes the packages and the direction of their imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inlayer.errors import needs_torch

if TYPE_CHECKING:  # for type checkers; Python uses the table below, and a test compares the two
    from inlayer.checkpoint import load as load
    from inlayer.checkpoint.model import Model as Model
    from inlayer.embeddings import Embeddings as Embeddings
    from inlayer.encoding.weighting import Weighting as Weighting
    from inlayer.errors import InlayerError as InlayerError
    from inlayer.families import describe as describe
    from inlayer.geometry.compare import compare as compare
    from inlayer.head import Head as Head
    from inlayer.inspection import Report as Report
    from inlayer.inspection.inspect import inspect as inspect
    from inlayer.integrations.transformers import attach as attach
    from inlayer.pooling import first_token_pool as first_token_pool
    from inlayer.pooling import last_token_pool as last_token_pool
    from inlayer.pooling import mean_pool as mean_pool
    from inlayer.positions import apply_rotary as apply_rotary
    from inlayer.positions import position_ids_from_mask as position_ids_from_mask
    from inlayer.ragged import Ragged as Ragged
    from inlayer.tables import MappedEmbedding as MappedEmbedding
    from inlayer.tables import Table as Table
    from inlayer.tokenizers import ByteTokenizer as ByteTokenizer
    from inlayer.tokenizers import WordTokenizer as WordTokenizer
    from inlayer.tokenizers import open_tokenizer as open_tokenizer
    from inlayer.tokenizers import train_bpe as train_bpe
    from inlayer.trace import Trace as Trace
    from inlayer.trace import walk as walk
    from inlayer.training.config import TrainConfig as TrainConfig
    from inlayer.training.train import train as train

__version__ = "0.2.0.dev0"

_NAMES = {  # by module
    "checkpoint": ("load",),
    "checkpoint.model": ("Model",),
    "embeddings": ("Embeddings",),
    "encoding.weighting": ("Weighting",),
    "errors": ("InlayerError",),
    "families": ("describe",),
    "geometry.compare": ("compare",),
    "head": ("Head",),
    "inspection": ("Report",),
    "inspection.inspect": ("inspect",),
    "integrations.transformers": ("attach",),
    "pooling": ("first_token_pool", "last_token_pool", "mean_pool"),
    "positions": ("apply_rotary", "position_ids_from_mask"),
    "ragged": ("Ragged",),
    "tables": ("MappedEmbedding", "Table"),
    "tokenizers": ("ByteTokenizer", "WordTokenizer", "open_tokenizer", "train_bpe"),
    "trace": ("Trace", "walk"),
    "training.config": ("TrainConfig",),
    "training.train": ("train",),
}
_METHODS = ("analogy", "encode", "encode_iter", "neighbors", "project")  # methods of Model
_MODULES = {name: f"inlayer.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [  # noqa: PLE0604  # the public names, frozen by tests/test_public.py
    "__version__",
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        hint = f"; use inlayer.load(...).{name}" if name in _METHODS else ""
        raise AttributeError(f"module 'inlayer' has no attribute {name!r}{hint}")
    with needs_torch(f"inlayer.{name}"):
        value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # found directly next time
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
