"""A table in memory: the learnable part of the input layer.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- a subclass of nn.Embedding, so that it works wherever one does, with its own initialization, checks and resize
- the padding row is zero after every initialization; lookups send it no gradient and neither does a tied head
  (head.py), so that it stays zero
- resize puts a new Parameter into the same module: ties by module survive, but optimizers must be created again
- not supported: max_norm, sparse gradients and other options of nn.Embedding
Tested against nn.Embedding in tests/tables/test_memory.py.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from inlayer.errors import DtypeError, InputError, ShapeError
from inlayer.initialization import INIT_RULES, RESIZE_RULES, check_rule, init_rows, mean_row
from inlayer.shapes import check_padding, check_seed, check_size, check_std
from inlayer.tables.lookup import look_up

__all__ = ["Table"]


class Table(nn.Embedding):
    """A trainable table of `vocab_size` rows of width `n_embd`.

    Args:
        vocab_size: Number of rows.
        n_embd: Width of a row.
        padding_idx: A row that is zero and gets no gradient; a negative one counts from the end.
        init: "normal" (N(0, init_std)), "embedding" (N(0, 1)) or "scaled" (N(0, 1 / sqrt(n_embd))).
        init_std: Standard deviation for "normal".
        seed: Always gives the same initial rows; without it, torch's global generator is used.
        device: As in torch.nn.Embedding.
        dtype: As in torch.nn.Embedding.

    Raises:
        InputError: If a size, rule, seed or padding row is invalid.
        DtypeError: If the dtype is not floating point.

    Example:
        >>> Table(256, 4)(torch.tensor([[72, 105]])).shape
        torch.Size([1, 2, 4])
    """

    def __init__(
        self,
        vocab_size: int,
        n_embd: int,
        *,
        padding_idx: int | None = None,
        init: str = "normal",
        init_std: float = 0.02,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_size(vocab_size, "vocab_size")
        check_size(n_embd, "n_embd")
        if dtype is not None and not dtype.is_floating_point:
            raise DtypeError(f"a table holds vectors, so its dtype must be floating point, not {dtype}")
        check_std(init_std)
        weight_VD = torch.empty(vocab_size, n_embd, device=device, dtype=dtype)
        # With a weight, nn.Embedding skips its own initialization, which would be discarded.
        super().__init__(vocab_size, n_embd, check_padding(padding_idx, vocab_size), _weight=weight_VD)
        self.init = check_rule(init, INIT_RULES)
        self.init_std = init_std
        self.seed = None if seed is None else check_seed(seed)
        self.reset_parameters()

    @classmethod
    def from_weight(cls, weight: Tensor, padding_idx: int | None = None) -> Table:
        """A table of existing rows, without a copy or any change, even to the padding row."""
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            kind = f"of dtype {weight.dtype}" if isinstance(weight, Tensor) else f"a {type(weight).__name__}"
            raise DtypeError(f"the rows are {kind}; a table needs a floating-point tensor")
        if weight.dim() != 2 or 0 in weight.shape:
            raise ShapeError(f"the rows have shape {tuple(weight.shape)}; a table is (V, D), neither of them 0")
        vocab_size, n_embd = weight.shape
        table = cls(vocab_size, n_embd, padding_idx=padding_idx, device="meta")
        table.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
        return table

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Table:
        """As `from_weight`, with the name and the default of nn.Embedding: the rows are frozen."""
        table = cls.from_weight(embeddings, padding_idx)
        table.weight.requires_grad_(not freeze)
        return table

    def reset_parameters(self) -> None:
        """Initialize all rows again, and the padding row with zeros."""
        init_rows(self.weight, self.init, self.init_std, self.seed, self.padding_idx)

    def forward(self, ids: Any) -> Shaped[Tensor, "... D"]:
        """Rows for ids of any shape, checked: `ids.shape + (D,)`."""
        return look_up(ids, self.weight, self.padding_idx)

    def resize(
        self,
        new_vocab_size: int,
        pad_to_multiple_of: int | None = None,
        init: str = "mean",
        *,
        allow_shrink: bool = False,
    ) -> int:
        """Change the number of rows in place; existing rows keep every bit.

        The weight becomes a new Parameter: create the optimizer after this call.

        Args:
            new_vocab_size: Number of rows.
            pad_to_multiple_of: Round the number of rows up to a multiple.
            init: New rows: the "mean" of the existing ones except the padding row, "zeros", or a rule of `Table`.
            allow_shrink: Allow fewer rows, which drops the last ones.

        Returns:
            The new number of rows.

        Raises:
            InputError: If rows would be dropped without `allow_shrink`, or the padding row would be.
        """
        check_size(new_vocab_size, "new_vocab_size")
        check_rule(init, RESIZE_RULES)
        if pad_to_multiple_of is not None:
            check_size(pad_to_multiple_of, "pad_to_multiple_of")
            new_vocab_size = -(-new_vocab_size // pad_to_multiple_of) * pad_to_multiple_of
        old_rows = self.num_embeddings
        if new_vocab_size < old_rows and not allow_shrink:
            raise InputError(
                f"resizing from {old_rows} to {new_vocab_size} rows would drop {old_rows - new_vocab_size} of them; "
                "pass allow_shrink=True to allow it"
            )
        if self.padding_idx is not None and self.padding_idx >= new_vocab_size:
            raise InputError(f"resizing to {new_vocab_size} rows would drop the padding row {self.padding_idx}")
        if new_vocab_size == old_rows:
            return old_rows

        old_VD = self.weight.detach()
        new_VD = old_VD.new_empty(new_vocab_size, self.embedding_dim)
        new_VD[:old_rows] = old_VD[:new_vocab_size]
        added = new_VD[old_rows:]
        if init == "mean":
            added[:] = mean_row(old_VD, self.padding_idx)
        else:
            # Not the initial seed, which would repeat the first rows of the table.
            init_rows(added, init, self.init_std, None if self.seed is None else self.seed + old_rows)
        self.weight = nn.Parameter(new_VD, requires_grad=self.weight.requires_grad)
        self.num_embeddings = new_vocab_size
        return new_vocab_size
