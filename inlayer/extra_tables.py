"""An input layer's other tables: n-gram memories, per-layer embeddings, and value embeddings.

text -> ids -> [rows] -> (+ positions) -> hidden states -> decoder -> head
- most models read n-gram memories inside a decoder layer; in LongCat-Flash and BLT their rows are part of the hidden
  states. The rows are never loaded into memory: n-gram memories are a model's largest tables
- per-layer and value embeddings have one row per token, so `resize` resizes them with the token table
- see also: the token table (input_table.py), hashing of n-grams (tables/ngram_hash.py), the computation of per-layer
  embeddings (per_layer.py), the tensors of a checkpoint (checkpoint/find_tables.py)
Tested against transformers and sglang in tests/checkpoint/test_ngram_tables.py, tests/families/test_per_layer.py, and
tests/families/test_value.py.
"""

from __future__ import annotations

from typing import overload

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inlayer.errors import InputError, ShapeError, type_name
from inlayer.initialization import ResizeRule
from inlayer.input_table import InputTable
from inlayer.per_layer import PerLayerEmbedding
from inlayer.tables import StoredEmbedding, Table
from inlayer.tables.ngram_hash import NgramMemory, NgramSpec, ngram_ids
from inlayer.tensors import check_dense, check_ids, to_tensor, with_batch_axis


class ExtraTables(InputTable):
    """A token table and, optionally, other tables next to it. The base class of `Embeddings`."""

    def __init__(self, table: Table, scale: float, round_scale: bool) -> None:
        super().__init__(table, scale, round_scale)
        self.ngrams: tuple[NgramSpec, ...] = ()
        self.ngram_memories: tuple[NgramMemory, ...] = ()  # memories with the rows of a checkpoint
        self.ngram_projection: nn.Parameter | None = None  # (heads, D of a row, D), for a "projected_mean"
        self.per_layer_embedding: PerLayerEmbedding | None = None
        self.value_embedding: Table | StoredEmbedding | None = None
        self.value_tables: nn.ModuleDict | None = None  # for blocks that have their own tables
        self.value_layers: tuple[int, ...] = ()  # the blocks that read them

    def ngram_ids(
        self,
        input_ids: Tensor,
        history: Tensor | None = None,
        *,
        layer: int | None = None,
        attention_mask: Tensor | None = None,
    ) -> Int[Tensor, "B T H"]:
        """Compute the indices of the n-gram memory rows that each token reads.

        Args:
            input_ids: Token ids (B, T).
            history: The ids (B, S) before them. With a history, a text processed in chunks
                reads the same rows as in one pass.
            layer: The decoder layer, if several have a memory.
            attention_mask: (B, S + T), 0 for padding, which n-grams do not cross.

        Returns:
            One row index per hash head (B, T, heads).

        Raises:
            InputError: If the layer has no n-gram memory, or `layer` does not choose one.
            IdRangeError: If an id is outside the vocabulary.

        Example:
            >>> qwen = {"model_type": "qwen4_exp_text", "vocab_size": 100, "ple_layer_ids": [1], "eos_token_id": 0}
            >>> layer = inlayer.Embeddings.from_config(qwen)
            >>> layer.ngram_ids(torch.tensor([[7, 8, 9]])).shape
            torch.Size([1, 3, 16])
        """
        spec, memory = self._choose_memory(layer)
        ids = check_ids(input_ids).cpu().numpy()
        before = None if history is None else check_ids(history, "history").cpu().numpy()
        mask = None if attention_mask is None else check_dense(attention_mask, "attention_mask").long().cpu().numpy()
        row_ids = ngram_ids(spec, ids, before, mask=mask, token_map=memory.token_map if memory else None)
        return torch.from_numpy(row_ids).to(input_ids.device)

    def ngram(
        self,
        input_ids: Tensor,
        history: Tensor | None = None,
        *,
        layer: int | None = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "B T H D"]:
        """Look up the rows of an n-gram memory.

        Args:
            input_ids: Token ids (B, T).
            history: The ids (B, S) before them.
            layer: The decoder layer, if several have a memory.
            attention_mask: (B, S + T), 0 for padding.

        Returns:
            The rows of all hash heads (B, T, heads, D), in the table's dtype. The model projects their `.flatten(-2)`.

        Raises:
            InputError: If the layer has no such memory, or its rows were not loaded (`inlayer.load` loads them).

        Example:
            >>> qwen = {"model_type": "qwen4_exp_text", "vocab_size": 100, "ple_layer_ids": [1], "eos_token_id": 0}
            >>> layer = inlayer.Embeddings.from_config(qwen | {"ngram_vocab_size_base": 11, "ple_embed_dim": 64})
            >>> spec = layer.ngrams[0]  # a checkpoint has its rows: inlayer.load(source).embeddings
            >>> rows = inlayer.tables.StoredTable.from_array(torch.ones(spec.rows, spec.width).numpy())
            >>> layer.ngram_memories = (inlayer.tables.ngram_hash.NgramMemory(spec, rows),)
            >>> layer.ngram(torch.tensor([[7, 8, 9]])).shape
            torch.Size([1, 3, 16, 4])
        """
        spec, memory = self._choose_memory(layer)
        if memory is None:
            raise InputError(
                f"the rows of the n-gram memory {spec.tensor_suffix} were not loaded; use "
                "inlayer.load(source).embeddings, which reads them from a checkpoint"
            )
        rows = self.ngram_ids(input_ids, history, layer=layer, attention_mask=attention_mask)
        return to_tensor(memory.table.rows(rows.cpu().numpy())).to(input_ids.device, self.dtype)

    def _choose_memory(self, layer: int | None) -> tuple[NgramSpec, NgramMemory | None]:
        """Return the memory of a layer or, if `layer` is None, the only memory."""
        specs = [spec for spec in self.ngrams if layer is None or spec.layer == layer]
        if len(specs) != 1:
            if not self.ngrams:
                raise InputError("this model has no n-gram memory")
            problem = (
                "this model has several n-gram memories" if layer is None else f"layer {layer} has no n-gram memory"
            )
            layers = [str(spec.layer) for spec in self.ngrams if spec.layer is not None]
            advice = f"pass layer={' or layer='.join(layers)}" if layers else "the only one is at the input: omit layer"
            raise InputError(f"{problem}; {advice}")
        return specs[0], next((memory for memory in self.ngram_memories if memory.spec is specs[0]), None)

    @property
    def adds_ngrams(self) -> bool:
        """True if rows of an n-gram memory are part of the hidden states.

        Example:
            >>> inlayer.load("default").embeddings.adds_ngrams
            False
        """
        return any(spec.added != "no" for spec in self.ngrams)

    def add_ngrams(
        self, rows: Tensor, input_ids: Tensor, history: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "B T D"]:
        """Add the rows of an n-gram memory to token rows, in the order of the original models.

        Args:
            rows: The rows of the tokens (B, T, D), scaled.
            input_ids: Their ids (B, T).
            history: The ids (B, S) before them.
            attention_mask: (B, S + T), 0 for padding.

        Returns:
            Vectors (B, T, D), the input of the next stage of `forward`.

        Raises:
            InputError: If the layer has no such memory, or its rows were not loaded.

        Example:
            >>> layer = inlayer.load("default").embeddings
            >>> ids = torch.tensor([[7, 8]])
            >>> layer.add_ngrams(layer(ids), ids)
            Traceback (most recent call last):
            inlayer.errors.InputError: this model has no n-gram memory
        """
        spec, _ = self._choose_memory(None)
        ngram_rows = self.ngram(input_ids, history, attention_mask=attention_mask).to(rows.dtype)
        if spec.added == "sum":
            for head in range(spec.n_hash_heads):
                rows = rows + ngram_rows[..., head, :]
            return rows
        if self.ngram_projection is None:
            raise InputError(
                f"decoder layer {spec.layer} reads the n-gram memory {spec.tensor_suffix}, so its rows are not added "
                "to the token rows; call ngram() to look them up"
            )
        projected = torch.bmm(ngram_rows.permute(2, 0, 1, 3).flatten(1, 2), self.ngram_projection.to(rows.dtype))
        return torch.cat([rows[None], projected.view(-1, *rows.shape)]).mean(0)

    def per_layer(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Float[Tensor, "... T L P"]:
        """Compute the per-layer embeddings of Gemma-3n, Gemma-4, or EmbeddingGemma-2: a vector per token and block.

        Args:
            input_ids: Token ids (B, T) or (T,). For image tokens, pass the padding id, as transformers does.
            inputs_embeds: Vectors (B, T, D) to project, if they differ from the rows of input_ids. Without input_ids,
                Gemma-4 looks up their ids (`ids_of`), and Gemma-3n returns only the projection.

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
            raise InputError(
                "this layer has no per-layer embeddings; Gemma-3n, Gemma-4, and EmbeddingGemma-2 have them"
            )
        if input_ids is None and inputs_embeds is None:
            raise InputError("neither input_ids nor inputs_embeds was given; pass ids, vectors, or both")
        single, ids, embeds = with_batch_axis(input_ids, inputs_embeds, self.token_embedding.embedding_dim)
        if embeds is None and ids is not None:
            embeds = self._look_up(ids)
        elif embeds is not None and ids is None and extra.recover_ids:
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
        """Look up value embeddings: vectors that some blocks add to the values of their attention.

        The blocks of NeoMME share a table. In the nanochat project, some blocks have their own table and
        multiply its rows by a gate, which is not part of the result.

        Args:
            input_ids: Token ids (B, T) or (T,).
            layer: A block index. Required if blocks have their own tables.

        Returns:
            (B, T, W), where W is the number of key-value heads times their width. None if the block
                `layer` does not add them.

        Raises:
            InputError: If the model has no value embeddings, or `layer` is missing.
            IdRangeError: If an id is not a row of the table.

        Example:
            >>> layer = inlayer.Embeddings.from_config({"model_type": "neomme", "vocab_size": 64})
            >>> layer.value_embeddings(torch.tensor([[5, 6]])).shape, layer.value_layers
            (torch.Size([1, 2, 256]), (5, 16))
            >>> layer.value_embeddings(torch.tensor([[5, 6]]), layer=0) is None
            True
        """
        if self.value_embedding is None and self.value_tables is None:
            raise InputError("this layer has no value embeddings; NeoMME has them")
        if layer is not None and layer not in self.value_layers:
            return None
        table: nn.Module | None = self.value_embedding
        if self.value_tables is not None:
            if layer is None:
                layers = ", ".join(map(str, self.value_layers))
                raise InputError(f"these value embeddings differ by block; pass layer= with one of: {layers}")
            table = self.value_tables[str(layer)]
        assert table is not None
        vectors: Tensor = table(input_ids)
        return vectors

    def resize(
        self, new_vocab_size: int, pad_to_multiple_of: int | None = None, init: ResizeRule = "mean", *,
        allow_shrink: bool = False,
    ) -> int:  # fmt: skip
        """Resize the token table and the heads tied to it; existing rows are unchanged, bit for bit.

        The weight becomes a new parameter: create the optimizer after this call.

        Args:
            new_vocab_size: Number of rows.
            pad_to_multiple_of: Round the number of rows up to a multiple.
            init: Values of new rows: the "mean" of the others, "zeros", or any rule for the constructor's `init`.
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
                f"{type_name(self.token_embedding)} cannot be resized; only an inlayer.Table can: load(source, "
                "trainable=True) reads a checkpoint's rows into one"
            )
        rows = self.token_embedding.resize(new_vocab_size, pad_to_multiple_of, init, allow_shrink=allow_shrink)
        self._resize_biases(rows)
        by_block = () if self.value_tables is None else self.value_tables.values()
        for table in (self.value_embedding, *by_block, self.per_layer_embedding and self.per_layer_embedding.table):
            if isinstance(table, Table):
                table.resize(rows, init=init, allow_shrink=True)
        return rows
