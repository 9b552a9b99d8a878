"""N-gram memories of an input layer: token ids -> rows of hashed tables.

text -> ids -> [rows] -> (+ positions) -> hidden states -> decoder -> head
- most models read them inside a decoder layer; in LongCat-Flash and BLT they are part of the hidden states
- rows are never loaded into memory: these are the largest tables of a model
- see also: hashing (tables/ngram_hash.py), the tensors of a checkpoint (checkpoint/find_tables.py)
Tested against transformers and sglang in tests/checkpoint/test_ngram_tables.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from inlayer.errors import InputError
from inlayer.row_lookup import RowLookup
from inlayer.tables.ngram_hash import NgramMemory, NgramSpec, ngram_ids
from inlayer.tensors import check_ids, to_tensor


class NgramLookup(RowLookup):
    """A module with n-gram memories. `Embeddings` is one."""

    def __init__(self) -> None:
        super().__init__()
        self.ngrams: tuple[NgramSpec, ...] = ()
        self.memories: tuple[NgramMemory, ...] = ()  # memories with the rows of a checkpoint
        self.ngram_projection: nn.Parameter | None = None  # (heads, D of a row, D), for a "projected mean"

    def ngram_ids(
        self,
        input_ids: Tensor,
        history: Tensor | None = None,
        *,
        layer: int | None = None,
        attention_mask: Tensor | None = None,
    ) -> Int[Tensor, "B T H"]:
        """Compute the rows of an n-gram memory that each token reads.

        Args:
            input_ids: Token ids (B, T).
            history: The ids (B, S) before them. With it, a text passed in pieces reads the same rows as the whole text.
            layer: The decoder layer, if several have a memory.
            attention_mask: (B, S + T), 0 for padding, which n-grams do not cross.

        Returns:
            One row per hash head (B, T, heads).

        Raises:
            InputError: If the layer has no n-gram memory, or `layer` does not choose one.
            IdRangeError: If an id is outside the vocabulary.

        Example:
            >>> qwen = {"model_type": "qwen4_exp_text", "vocab_size": 100, "ple_layer_ids": [1], "eos_token_id": 0}
            >>> layer = inlayer.Embeddings.from_config(qwen)
            >>> layer.ngram_ids(torch.tensor([[7, 8, 9]])).shape
            torch.Size([1, 3, 16])
        """
        spec, memory = self._choose(layer)
        ids, before = (None if x is None else check_ids(x).cpu().numpy() for x in (input_ids, history))
        mask = None if attention_mask is None else attention_mask.long().cpu().numpy()
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
            InputError: If the layer has no rows: only `inlayer.load` reads them.

        Example:
            >>> qwen = {"model_type": "qwen4_exp_text", "vocab_size": 100, "ple_layer_ids": [1], "eos_token_id": 0}
            >>> layer = inlayer.Embeddings.from_config(qwen | {"ngram_vocab_size_base": 11, "ple_embed_dim": 64})
            >>> spec = layer.ngrams[0]  # a checkpoint has its rows: inlayer.load(source).embeddings
            >>> rows = inlayer.tables.StoredTable.from_array(torch.ones(spec.rows, spec.width).numpy())
            >>> layer.memories = (inlayer.tables.ngram_hash.NgramMemory(spec, rows),)
            >>> layer.ngram(torch.tensor([[7, 8, 9]])).shape
            torch.Size([1, 3, 16, 4])
        """
        spec, memory = self._choose(layer)
        if memory is None:
            raise InputError(f"the n-gram memory {spec.tensor} has no rows; inlayer.load(...).embeddings reads them")
        rows = self.ngram_ids(input_ids, history, layer=layer, attention_mask=attention_mask)
        return to_tensor(memory.table.rows(rows.cpu().numpy())).to(input_ids.device, self.dtype)

    def _choose(self, layer: int | None) -> tuple[NgramSpec, NgramMemory | None]:
        """Return the memory of a layer; without one, the only memory."""
        specs = [spec for spec in self.ngrams if layer is None or spec.layer == layer]
        if len(specs) != 1:
            layers = ", ".join("the input" if spec.layer is None else str(spec.layer) for spec in self.ngrams) or "none"
            problem = "has no n-gram memory" if not specs else "has several n-gram memories; choose one with layer="
            raise InputError(f"this model{'' if layer is None else f' in layer {layer}'} {problem}. Layers: {layers}")
        return specs[0], next((memory for memory in self.memories if memory.spec is specs[0]), None)

    @property
    def adds_ngrams(self) -> bool:
        """Whether rows of an n-gram memory are part of the hidden states.

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
            inlayer.errors.InputError: this model has no n-gram memory. Layers: none
        """
        spec, _ = self._choose(None)
        ngram_rows = self.ngram(input_ids, history, attention_mask=attention_mask).to(rows.dtype)
        if spec.added == "sum":
            for head in range(spec.heads):
                rows = rows + ngram_rows[..., head, :]
            return rows
        if self.ngram_projection is None:
            raise InputError(f"the n-gram memory {spec.tensor} is read by layer {spec.layer}; it is not added to rows")
        projected = torch.bmm(ngram_rows.permute(2, 0, 1, 3).flatten(1, 2), self.ngram_projection.to(rows.dtype))
        return torch.cat([rows[None], projected.view(-1, *rows.shape)]).mean(0)
