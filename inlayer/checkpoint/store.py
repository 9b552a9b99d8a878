"""Store: an opened checkpoint, whatever its format. Opening reads nothing but headers.

source -> [Store] -> Model -> tokenizer, table, embeddings, head
- one class per kind of source: a folder or file of safetensors (checkpoint/folder.py), a GGUF (checkpoint/gguf.py), old
  PyTorch files (checkpoint/pytorch.py), a remote repository (checkpoint/remote/)
- tensors have the names that the file gives them; families/weights.py decides which one is the table
- elsewhere: building the layer (checkpoint/model.py)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from inlayer.formats.safetensors import TensorInfo
from inlayer.tables import StoredTable
from inlayer.tokenizers import Tokenizer

__all__ = ["Store"]


class Store(ABC):
    """An opened checkpoint. The constructor of a subclass opens it, or raises an error that says why it cannot."""

    kind: str  # "folder", "safetensors", "gguf", "pytorch", "hub"
    where: str  # the source in messages and reports
    config: dict[str, Any] | None  # config.json, or another format's equivalent; None if there is none
    remote = False  # whether rows are downloaded when they are read
    tokenizer_file: Path | None = None  # if the tokenizer is not next to the weights
    note: str = ""  # shown with the source, for example that it is a sample

    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of all tensors, without reading more than an index."""

    def first_of(self, candidates: Sequence[str]) -> str | None:
        """The first of these names that is a tensor. A remote store reads as little of its index as possible."""
        names = self.names()
        return next((name for name in candidates if name in names), None)

    @abstractmethod
    def find(self, name: str) -> TensorInfo:
        """Dtype, shape and location of a tensor; reads the header of its file if necessary."""

    @abstractmethod
    def read(self, name: str) -> npt.NDArray[Any]:
        """A whole tensor as floating-point values: for norms, biases and position tables."""

    @abstractmethod
    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        """A tensor with two axes as a table; reads none of its rows."""

    @abstractmethod
    def open_tokenizer(self) -> Tokenizer | None:
        """The checkpoint's tokenizer, or None if it has none."""

    @abstractmethod
    def parameters(self) -> int | None:
        """The number of parameters of the whole model, if headers or an index tell it cheaply."""

    def explain_missing_table(self) -> str:
        """Why there may be no table, for an error message."""
        return "is a shard missing?"
