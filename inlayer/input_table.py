"""The token table of an input layer, and the heads tied to it.

text -> ids -> [rows] -> (+ positions) -> hidden states -> decoder -> head
- names follow transformers where it has them: get_input_embeddings, set_input_embeddings
- heads tied to the layer follow when the table is replaced or resized
- see also: tables themselves (tables/), how a head follows its table (tying.py), the layer (embeddings.py)
Tested in tests/test_embeddings.py and tests/test_head.py.
"""

from __future__ import annotations

import torch
from torch import nn

from inlayer.errors import InputError, ShapeError, type_name
from inlayer.families import describe
from inlayer.head import Head
from inlayer.tables import StoredEmbedding, Table
from inlayer.tensors import check_float


class InputTable(nn.Module):
    """A module with a token table, which can be replaced, resized and tied. `Embeddings` is one."""

    token_embedding: nn.Embedding | StoredEmbedding

    def __init__(self) -> None:
        super().__init__()
        # A plain list, so heads are not registered as children: they belong to the model, not to its input layer.
        self._tied_heads: list[Head] = []

    @property
    def vocab_size(self) -> int:
        """Number of rows of the token table.

        Example:
            >>> inlayer.Embeddings(100, 4).vocab_size
            100
        """
        return self.token_embedding.num_embeddings

    @property
    def padding_idx(self) -> int | None:
        """The padding row, or None.

        Example:
            >>> inlayer.Embeddings(100, 4, padding_idx=-1).padding_idx
            99
        """
        return self.token_embedding.padding_idx

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows.

        Example:
            >>> inlayer.load("default").embeddings.dtype
            torch.bfloat16
        """
        table = self.token_embedding
        return table.dtype if isinstance(table, StoredEmbedding) else table.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding | StoredEmbedding:
        """Return the token table, under the name that transformers uses.

        Returns:
            The module `token_embedding`.

        Example:
            >>> inlayer.Embeddings(100, 4).get_input_embeddings()
            Table(100, 4)
        """
        return self.token_embedding

    def set_input_embeddings(self, table: nn.Embedding | StoredEmbedding) -> None:
        """Replace the token table; heads tied to this layer follow.

        Args:
            table: A module with rows of the same width.

        Raises:
            ShapeError: If its rows have a different width.

        Example:
            >>> layer = inlayer.Embeddings(100, 4)
            >>> layer.set_input_embeddings(inlayer.Table(120, 4))
            >>> layer.vocab_size
            120
        """
        width = self.token_embedding.embedding_dim
        if not isinstance(table, StoredEmbedding):  # whose weight would read the whole table
            check_float(getattr(table, "weight", None), "the new table's weight", width=width, rank=2)
        elif table.embedding_dim != width:
            raise ShapeError(f"the new rows have width {table.embedding_dim}; this layer's rows have width {width}")
        self.token_embedding = table
        self._resize_biases(table.num_embeddings)

    def resize(
        self, new_vocab_size: int, pad_to_multiple_of: int | None = None, init: str = "mean", *,
        allow_shrink: bool = False,
    ) -> int:  # fmt: skip
        """Resize the token table and the heads tied to it; existing rows are unchanged, bit for bit.

        The weight becomes a new parameter: create the optimizer after this call.

        Args:
            new_vocab_size: Number of rows.
            pad_to_multiple_of: Round the number of rows up to a multiple.
            init: New rows: "mean" of the existing ones, "zeros", or a rule of the constructor's `init`.
            allow_shrink: Allow fewer rows, which drops the last ones.

        Returns:
            The new number of rows.

        Raises:
            InputError: If rows would be dropped, or the rows are in a file (use `load(source, trainable=True)`).

        Example:
            >>> inlayer.Embeddings(vocab_size=100, n_embd=4).resize(101, pad_to_multiple_of=64)
            128
        """
        if not isinstance(self.token_embedding, Table):
            raise InputError(
                f"{type_name(self.token_embedding)} cannot be resized, only an inlayer.Table; load(source, "
                "trainable=True) reads a checkpoint's rows into one"
            )
        rows = self.token_embedding.resize(new_vocab_size, pad_to_multiple_of, init, allow_shrink=allow_shrink)
        self._resize_biases(rows)
        for table in self._other_tables():
            table.resize(rows, init=init, allow_shrink=True)
        return rows

    def _other_tables(self) -> list[Table]:
        """Tables with one row per token that follow when the token table is resized."""
        return []

    def _resize_biases(self, rows: int) -> None:
        for head in self._tied_heads:
            if head.tied and head.table is self.token_embedding:  # it may have been tied to another layer since
                head.resize_bias(rows)

    def tie(self, head: object) -> None:
        """Tie a head to this layer's table: one table, trained from both ends.

        Args:
            head: An `inlayer.Head` of the table's size.

        Raises:
            InputError: If it is not an `inlayer.Head`.
            ShapeError: If it has a different size.

        Example:
            >>> layer, head = inlayer.Embeddings(100, 4), inlayer.Head(4, 100)
            >>> layer.tie(head)
            >>> head.weight is layer.token_embedding.weight
            True
        """
        if not isinstance(head, Head):
            raise InputError(f"{type_name(head)} cannot be tied to this layer; use inlayer.Head")
        head.tie(self)
        if all(head is not known for known in self._tied_heads):
            self._tied_heads.append(head)

    def head_from_config(
        self, config: object, *, tied: bool | None = None, device: torch.device | str | None = None
    ) -> Head:
        """Build the head of the same config, tied to this layer's table if the config or `tied` requires it.

        Args:
            config: What `inlayer.describe` accepts or returns.
            tied: Overrides the config's tie flag.
            device: Where the head's own rows and bias are created, by default on the table's device.

        Returns:
            The head, randomly initialized.

        Raises:
            ConfigError: If the config is invalid, or its model type is not supported.

        Example:
            >>> config = {"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "tie_word_embeddings": True}
            >>> layer = inlayer.Embeddings.from_config(config)
            >>> layer.head_from_config(config).weight is layer.token_embedding.weight
            True
        """
        spec, table = describe(config), self.token_embedding
        tied = spec.head.tied if tied is None else tied
        if device is None:
            device = table.device if isinstance(table, StoredEmbedding) else table.weight.device
        sizes = ("tied", "n_embd", "vocab_size")
        settings = {name: value for name, value in vars(spec.head).items() if name not in sizes}
        width, rows = spec.head.n_embd or table.embedding_dim, spec.head.vocab_size or self.vocab_size
        # A tied head discards its own rows, so they are never filled.
        head = Head(
            width, rows, padding_idx=spec.padding_idx, init_std=spec.init_std,
            device="meta" if tied else device, dtype=self.dtype, **settings,
        )  # fmt: skip
        if tied:
            self.tie(head)
            if head.bias is not None:  # the bias is not shared
                head.bias = nn.Parameter(torch.zeros_like(head.bias, device=device))
        return head
