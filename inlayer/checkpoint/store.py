"""A store: a checkpoint that was found and opened, whatever it is made of. Nothing is read but headers.

[checkpoint] -> Embeddings, Head, tokenizer
- one class a kind of source: a folder or file of safetensors (checkpoint/folder.py), a GGUF (checkpoint/gguf.py), old
  PyTorch files (checkpoint/pytorch.py), a hub repository (checkpoint/remote/)
- tensors have the names the file gives them; which of them is the table is decided in families/weights.py
- not here: putting a layer together (checkpoint/model.py)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from inlayer.formats.safetensors import TensorInfo
from inlayer.tables import StoredTable
from inlayer.tokenizers import Tokenizer

__all__ = ["Store"]


class Store(ABC):
    """An opened checkpoint. A subclass opens it in its constructor, or says in one line why it cannot."""

    kind: str  # "folder", "safetensors", "gguf", "pytorch", "hub"
    where: str  # the source as messages and reports show it
    config: dict[str, Any] | None  # config.json, or what another format says in its place; None where nothing is said
    remote = False  # what is read has to be fetched first
    note: str = ""  # shown with the source wherever it shows: that a model is a sample

    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of all tensors that are known without reading more than an index."""

    def first_of(self, candidates: Sequence[str]) -> str | None:
        """The first of these exact names that the checkpoint holds. A remote one reads as little of its index for it
        as it can.
        """
        names = self.names()
        return next((name for name in candidates if name in names), None)

    @abstractmethod
    def find(self, name: str) -> TensorInfo:
        """Where a tensor lies; reads the header of its file if that was not read yet."""

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """A whole tensor in memory, as floating point values: for norms, biases and position tables."""

    @abstractmethod
    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        """A tensor of two axes as a table, none of whose rows is read yet."""

    @abstractmethod
    def open_tokenizer(self) -> Tokenizer | None:
        """The checkpoint's own tokenizer, or None where it has none."""

    @abstractmethod
    def parameters(self) -> int | None:
        """How many parameters the whole model has, where headers or index tell it cheaply."""
