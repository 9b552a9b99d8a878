"""The token table of an input layer: look up rows, find their ids, replace the table, tie heads to it.

text -> ids -> [rows] -> (+ positions) -> hidden states -> decoder -> head
- rows are returned as a model accepts them in `inputs_embeds`: scaled and, for Inkling, normalized
- `ids_of` is the exact inverse: rows are found by a hash of their bytes, then compared (tables/row_index.py)
- names follow transformers where it has them: get_input_embeddings, set_input_embeddings
- see also: a table itself and its check of ids (tables/), its head (tying.py), other tables (extra_tables.py)
Tested in tests/test_input_table.py, tests/test_embeddings.py, and tests/test_head.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inlayer.checks import is_integer
from inlayer.errors import DtypeError, InputError, ShapeError, type_name
from inlayer.families import describe
from inlayer.families.spec import NormAt
from inlayer.head import Head
from inlayer.shapes import Bytes, Ids
from inlayer.tables import StoredEmbedding, Table, check_id_range
from inlayer.tables.row_index import RowIndex
from inlayer.tensors import check_float, check_ids, multiply

BLOCK_VALUES = 1 << 22  # table values hashed at a time


class InputTable(nn.Module):
    """A token table, the scale of its rows, and the heads tied to it. A base class of `Embeddings`."""

    def __init__(self, table: Table, scale: float, round_scale: bool) -> None:
        super().__init__()
        self.token_embedding: nn.Embedding | StoredEmbedding = table
        self.scale, self.round_scale = scale, round_scale
        self.norm: nn.Module | None = None  # applied to the rows if norm_at is "rows" (Inkling)
        self.norm_at: NormAt = "sum"
        # A plain list, so heads are not registered as children: they belong to the model, not to its input layer.
        self._tied_heads: list[Head] = []
        self._index: tuple[Any, RowIndex] | None = None  # for ids_of; the key identifies the state of the rows

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

    def _rows(self, ids: Tensor | None) -> Tensor:
        """Return the unscaled rows of ids, after checking the ids."""
        ids = check_ids(ids)
        if not isinstance(self.token_embedding, (Table, StoredEmbedding)):
            check_id_range(ids, self.vocab_size)  # other modules do not check ids
        return self.token_embedding(ids)

    def _look_up(self, ids: Tensor) -> Tensor:
        """Return the rows of ids as the model accepts them in inputs_embeds."""
        rows = self._rows(ids)
        rows = rows if self.scale == 1.0 else multiply(rows, self.scale, self.round_scale)
        if self.norm is not None and self.norm_at == "rows":
            rows = self.norm(rows)
        return rows

    def ids_of(self, vectors: Float[Tensor, "... D"]) -> Int[Tensor, "..."]:
        """Find the ids whose rows, scaled as in `forward`, equal these vectors exactly: the inverse of the lookup.

        The first call reads the whole table once, in blocks.

        Args:
            vectors: (..., D), in the dtype of the table.

        Returns:
            Ids (...); the lowest one if several rows are equal.

        Raises:
            InputError: If a vector is not a row of the table; the message names its index.
            DtypeError: If the vectors have a different dtype than the table.

        Example:
            >>> layer = inlayer.Embeddings(vocab_size=256, n_embd=4, scale=2.0)
            >>> layer.ids_of(2.0 * layer.token_embedding.weight[[7, 250]])
            tensor([  7, 250])
        """
        width = self.token_embedding.embedding_dim
        vectors = check_float(vectors, "vectors", width=width).detach()
        if vectors.dtype != self.dtype:
            raise DtypeError(f"vectors have dtype {vectors.dtype}; rows of this table are {self.dtype}")
        query_bytes = _bytes(vectors.reshape(-1, width))
        ids = self._row_index().find(query_bytes)
        if (ids < 0).any():  # the index may be older than the rows
            self._index = None
            ids = self._row_index().find(query_bytes)
        if (missing := np.flatnonzero(ids < 0)).size:
            index = tuple(int(axis) for axis in np.unravel_index(missing[0], vectors.shape[:-1] or (1,)))
            position = index if len(index) > 1 else index[0]
            more = f" (and {missing.size - 1} more)" if missing.size > 1 else ""
            raise InputError(
                f"the vector at {position}{more} is not a row of the table, scaled by {self.scale:g}; pass input_ids "
                "as well if vectors were changed or come from elsewhere"
            )
        return torch.from_numpy(ids).reshape(vectors.shape[:-1]).to(vectors.device)

    def _row_index(self) -> RowIndex:
        table = self.token_embedding
        version = None if isinstance(table, StoredEmbedding) else table.weight._version
        norm = None if self.norm is None else tuple(parameter._version for parameter in self.norm.parameters())
        key = id(table), version, norm, self.dtype, self.scale, self.vocab_size
        if self._index is None or self._index[0] != key:
            block = max(1, BLOCK_VALUES // table.embedding_dim)
            self._index = key, RowIndex(self.vocab_size, self._row_bytes, block)
        return self._index[1]

    @torch.no_grad()
    def _row_bytes(self, ids: Ids) -> Bytes:
        table = self.token_embedding
        device = table.device if isinstance(table, StoredEmbedding) else table.weight.device
        return _bytes(self._look_up(torch.from_numpy(ids).to(device)))

    def merge(
        self, input_ids: Int[Tensor, "... T"], features: Tensor | Sequence[Tensor], placeholder_id: int
    ) -> Float[Tensor, "... T D"]:
        """Look up rows and replace placeholder tokens with image or audio vectors.

        Args:
            input_ids: (B, T) or (T,), with one placeholder per vector. Its id does not need a row in the table.
            features: Vectors (N, D) in the order of the placeholders, or a list of such tensors, one per image. As in
                transformers, features are not scaled.
            placeholder_id: The id of the placeholder.

        Returns:
            (B, T, D) or (T, D), for `forward(inputs_embeds=...)`.

        Raises:
            DtypeError: If the features are not tensors or the id is not an integer.
            InputError: If the numbers of placeholders and vectors differ; the message names the first unmatched one.

        Example:
            >>> layer = inlayer.Embeddings(vocab_size=256, n_embd=4)
            >>> layer.merge(torch.tensor([[7, 99, 99, 8]]), torch.ones(2, 4), placeholder_id=99)[0, 1].tolist()
            [1.0, 1.0, 1.0, 1.0]
        """
        ids, width = check_ids(input_ids), self.token_embedding.embedding_dim
        if not isinstance(features, (Tensor, list, tuple)):
            raise DtypeError(f"features is {type_name(features)}; it must be a tensor or a list of tensors")
        if not is_integer(placeholder_id):
            raise DtypeError(f"placeholder_id is {type_name(placeholder_id)}; it must be an integer")
        parts = [features] if isinstance(features, Tensor) else list(features)
        parts = [check_float(part, f"features[{n}]", width=width).reshape(-1, width) for n, part in enumerate(parts)]
        count, is_placeholder = sum(len(part) for part in parts), ids == placeholder_id
        positions = is_placeholder.nonzero()
        if len(positions) != count:
            unmatched = f"vector {len(positions)} has no placeholder"
            if len(positions) > count:
                position = positions[count].tolist()
                unmatched = f"the placeholder at {tuple(position) if len(position) > 1 else position[0]} has no vector"
            placeholders = f"{len(positions)} placeholders (id {placeholder_id})"
            raise InputError(f"input_ids has {placeholders}, but features has {count} vectors: {unmatched}")
        rows = self._look_up(ids.masked_fill(is_placeholder, self.padding_idx or 0))
        if not count:
            return rows
        return rows.masked_scatter(is_placeholder[..., None], torch.cat(parts).to(rows.device, rows.dtype))

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
        """Replace the token table. Heads tied to this layer use the new table.

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
        if not isinstance(table, StoredEmbedding):  # accessing its weight would read the whole table
            check_float(getattr(table, "weight", None), "the new table's weight", width=width, axes=("rows", "width"))
        elif table.embedding_dim != width:
            raise ShapeError(f"the new rows have width {table.embedding_dim}; this layer's rows have width {width}")
        self.token_embedding = table
        self._resize_biases(table.num_embeddings)

    def _resize_biases(self, rows: int) -> None:
        for head in self._tied_heads:
            if head.tied and head.table is self.token_embedding:  # skip heads tied to another layer since then
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
            sizes = f"{self.token_embedding.embedding_dim}, {self.vocab_size}"
            bias = ", bias=True" if getattr(head, "bias", None) is not None else ""
            replacement = f"replace it with inlayer.Head({sizes}{bias}).tie(layer)"
            raise InputError(f"{type_name(head)} cannot be tied to this layer; {replacement}")
        head.tie(self)

    def head_from_config(
        self, config: object, *, tied: bool | None = None, device: torch.device | str | None = None
    ) -> Head:
        """Build the head of the same config, tied to this layer's table if the config or `tied` says so.

        Args:
            config: Anything `inlayer.describe` accepts or returns.
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


def _bytes(rows: Tensor) -> Bytes:
    """Return the bytes of rows (N, D); 0.0 and -0.0 are equal, so they get the same bytes."""
    return (rows + 0.0).contiguous().cpu().view(torch.uint8).numpy()
