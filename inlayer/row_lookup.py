"""Lookups beyond one row per id: scaled rows, reverse lookup, rows merged with other vectors, rows per layer.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- rows are in the form that a model accepts as `inputs_embeds`: scaled and, for Inkling, normalized
- `ids_of` is the exact inverse: rows are found by a hash of their bytes, then compared (tables/row_index.py)
- see also: replacing and resizing the table (input_table.py), what is added to the rows (embeddings.py)
Tested in tests/test_row_lookup.py, and against transformers in tests/families/test_per_layer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inlayer.errors import DtypeError, InputError, ShapeError, type_name
from inlayer.input_table import InputTable
from inlayer.per_layer import PerLayerEmbedding
from inlayer.tables import StoredEmbedding, Table, check_id_range
from inlayer.tables.row_index import RowIndex
from inlayer.tensors import check_float, check_ids

BLOCK_VALUES = 1 << 22  # values of the table that are hashed at a time


class RowLookup(InputTable):
    """A token table with the scale and norm of its rows. `Embeddings` is one."""

    scale: float
    round_scale: bool
    norm: nn.Module | None
    norm_at: str
    per_layer_embedding: PerLayerEmbedding | None
    value_embedding: Table | StoredEmbedding | None
    value_layers: tuple[int, ...]
    _index: tuple[Any, RowIndex] | None = None

    def _rows(self, ids: Tensor | None) -> Tensor:
        """Return the unscaled rows of ids, after checking the ids."""
        ids = check_ids(ids)
        if not isinstance(self.token_embedding, (Table, StoredEmbedding)):
            check_id_range(ids, self.vocab_size)  # other modules do not check ids
        rows: Tensor = self.token_embedding(ids)
        return rows

    def _scaled(self, rows: Tensor) -> Tensor:
        rounded = torch.full((), self.scale, dtype=rows.dtype, device=rows.device)
        return rows * (rounded if self.round_scale else self.scale)

    def _look_up(self, ids: Tensor) -> Tensor:
        """Return the rows of ids in the form that the model accepts as inputs_embeds."""
        rows = self._rows(ids)
        rows = rows if self.scale == 1.0 else self._scaled(rows)
        if self.norm is not None and self.norm_at == "rows":
            rows = self.norm(rows)
        return rows

    def ids_of(self, vectors: Float[Tensor, "... D"]) -> Int[Tensor, "..."]:
        """Find the ids whose rows, scaled as in `forward`, are exactly these vectors: the inverse of the lookup.

        The first call reads the whole table once, in blocks.

        Args:
            vectors: (..., D), in the dtype of the table.

        Returns:
            Ids (...); the first one if several rows are equal.

        Raises:
            InputError: If a vector is not a row of the table; the message gives its index.
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
            where = index if len(index) > 1 else index[0]
            more = f" (and {missing.size - 1} more)" if missing.size > 1 else ""
            raise InputError(
                f"the vector at {where}{more} is not a row of the table, scaled by {self.scale:g}; pass input_ids as "
                "well if vectors were changed or come from elsewhere"
            )
        return torch.from_numpy(ids).reshape(vectors.shape[:-1]).to(vectors.device)

    def _row_index(self) -> RowIndex:
        table = self.token_embedding
        version = None if isinstance(table, StoredEmbedding) else table.weight._version
        norm = None if self.norm is None else tuple(parameter._version for parameter in self.norm.parameters())
        key = id(table), version, norm, self.dtype, self.scale, self.vocab_size
        if self._index is None or self._index[0] != key:

            def read(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
                device = table.device if isinstance(table, StoredEmbedding) else table.weight.device
                with torch.no_grad():
                    return _bytes(self._look_up(torch.from_numpy(ids).to(device)))

            self._index = key, RowIndex(self.vocab_size, read, max(1, BLOCK_VALUES // table.embedding_dim))
        return self._index[1]

    def merge(
        self, input_ids: Int[Tensor, "... T"], features: Tensor | Sequence[Tensor], placeholder_id: int
    ) -> Float[Tensor, "... T D"]:
        """Look up rows and replace placeholder tokens with image or audio vectors.

        Args:
            input_ids: (B, T) or (T,), with one placeholder per vector. The placeholder needs no row in the table.
            features: Vectors (N, D) in the order of the placeholders, or a list of such tensors, one per image. They
                are not scaled, as in transformers.
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
        if not isinstance(placeholder_id, (int, np.integer)) or isinstance(placeholder_id, bool):
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

    def per_layer(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Float[Tensor, "... T L P"]:
        """Compute the per-layer embeddings of a Gemma-3n, Gemma-4 or EmbeddingGemma-2: a vector per token and block.

        Args:
            input_ids: Token ids (B, T) or (T,). For image tokens, pass the padding id, as transformers does.
            inputs_embeds: Vectors (B, T, D) to project, if they differ from the rows of input_ids. Alone: Gemma-4
                finds their ids (`ids_of`), Gemma-3n returns the projection only.

        Returns:
            (B, T, L, P) for L blocks; (T, L, P) for one text.

        Raises:
            InputError: If the model has no per-layer embeddings, or a vector is not a row of the table.
            IdRangeError: If an id is not a row of the table.

        Example:
            >>> layer = inlayer.Embeddings.from_config(
            ...     {"model_type": "gemma4_text", "vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size": 32,
            ...      "num_hidden_layers": 3, "hidden_size_per_layer_input": 8}
            ... )
            >>> layer.per_layer(torch.tensor([[5, 6]])).shape
            torch.Size([1, 2, 3, 8])
        """
        if (extra := self.per_layer_embedding) is None:
            raise InputError("this layer has no per-layer embeddings; Gemma-3n, Gemma-4 and EmbeddingGemma-2 have them")
        if input_ids is None and inputs_embeds is None:
            raise InputError("neither input_ids nor inputs_embeds was given; pass ids, vectors or both")
        single, ids, embeds = self._with_batch_axis(input_ids, inputs_embeds)
        if embeds is None and ids is not None:
            embeds = self._look_up(ids)
        elif embeds is not None and ids is None and extra.finds_ids:
            ids = self.ids_of(embeds)
        assert embeds is not None
        if ids is not None and ids.shape != embeds.shape[:2]:
            shapes = f"input_ids has shape {tuple(ids.shape)}, but inputs_embeds has shape {tuple(embeds.shape)}"
            raise ShapeError(f"{shapes}; their batch and token axes must match")
        layers: Tensor = extra(ids, embeds)
        return layers[0] if single else layers

    @overload
    def value_embeddings(self, input_ids: Tensor) -> Float[Tensor, "... T W"]: ...

    @overload
    def value_embeddings(self, input_ids: Tensor, *, layer: int | None) -> Float[Tensor, "... T W"] | None: ...

    def value_embeddings(self, input_ids: Tensor, *, layer: int | None = None) -> Float[Tensor, "... T W"] | None:
        """Look up value embeddings (NeoMME): vectors that some blocks add to the values of their attention.

        Args:
            input_ids: Token ids (B, T) or (T,).
            layer: A block index.

        Returns:
            (B, T, W), where W is the number of key-value heads times their width. None for other blocks.

        Raises:
            InputError: If the model has no value embeddings.
            IdRangeError: If an id is not a row of the table.

        Example:
            >>> layer = inlayer.Embeddings.from_config({"model_type": "neomme", "vocab_size": 64})
            >>> layer.value_embeddings(torch.tensor([[5, 6]])).shape, layer.value_layers
            (torch.Size([1, 2, 256]), (5, 16))
            >>> layer.value_embeddings(torch.tensor([[5, 6]]), layer=0) is None
            True
        """
        if self.value_embedding is None:
            raise InputError("this layer has no value embeddings; NeoMME has them")
        if layer is not None and layer not in self.value_layers:
            return None
        vectors: Tensor = self.value_embedding(input_ids)
        return vectors

    def _other_tables(self) -> list[Table]:
        extra = self.per_layer_embedding
        tables = (self.value_embedding, None if extra is None else extra.table)
        return [table for table in tables if isinstance(table, Table)]

    def _with_batch_axis(self, ids: Tensor | None, embeds: Tensor | None) -> tuple[bool, Tensor | None, Tensor | None]:
        single = False
        if ids is not None:
            ids = check_ids(ids)
            if ids.dim() not in (1, 2):
                raise ShapeError(f"input_ids has shape {tuple(ids.shape)}; expected (batch, tokens), or (tokens,)")
            single, ids = ids.dim() == 1, ids[None] if ids.dim() == 1 else ids
        if embeds is not None:
            embeds = check_float(embeds, "inputs_embeds", width=self.token_embedding.embedding_dim)
            if embeds.dim() not in (2, 3):
                expected = "(batch, tokens, width), or (tokens, width)"
                raise ShapeError(f"inputs_embeds has shape {tuple(embeds.shape)}; expected {expected}")
            single, embeds = embeds.dim() == 2, embeds[None] if embeds.dim() == 2 else embeds
        return single, ids, embeds


def _bytes(rows: Tensor) -> npt.NDArray[np.uint8]:
    """Return the bytes of rows (N, D); 0.0 and -0.0 are equal, so they get the same bytes."""
    return (rows + 0.0).contiguous().cpu().view(torch.uint8).numpy()
