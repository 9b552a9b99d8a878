"""A dense table of rows, one per token: the learnable part of the input layer.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- an nn.Embedding, so that everything that takes one takes it; init, checks, lookup and resize are ours
- the padding row is zero at birth and after every re-init; lookups send it no gradient, and a tied head keeps
  its own gradient off it (head.py), so it stays zero
- resize puts a new Parameter into the same module: ties by module hold, an optimizer must be made anew
- not here: max_norm, sparse gradients and the other options of nn.Embedding; tables in files (tables/mapped.py)
Checked against nn.Embedding in tests/tables/test_memory.py.
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
    """`vocab_size` rows of width `n_embd`.

    A negative `padding_idx` counts from the end, as in nn.Embedding. With a `seed`, birth and re-init always
    draw the same rows; without one they draw from torch's global generator.
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
        # Given a weight, nn.Embedding draws nothing: its N(0, 1) would only be thrown away.
        super().__init__(vocab_size, n_embd, check_padding(padding_idx, vocab_size), _weight=weight_VD)
        self.init = check_rule(init, INIT_RULES)
        self.init_std = init_std
        self.seed = None if seed is None else check_seed(seed)
        self.reset_parameters()

    @classmethod
    def from_weight(cls, weight: Tensor, padding_idx: int | None = None) -> Table:
        """A table around existing rows, bit for bit and without a copy, a non-zero padding row included."""
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            raise DtypeError(f"the rows are {describe(weight)}; a table is made from a floating-point tensor")
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
        """nn.Embedding's name for `from_weight`, with its default: the rows are frozen."""
        table = cls.from_weight(embeddings, padding_idx)
        table.weight.requires_grad_(not freeze)
        return table

    def reset_parameters(self) -> None:
        """Draw all rows anew and zero the padding row again."""
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
        """Change the number of rows in place and return it. Rows that stay are kept bit for bit.

        New rows are the mean of the old ones without the padding row ("mean"), "zeros", or drawn by a birth
        rule. The weight is a new Parameter: make the optimizer after the call.
        """
        check_size(new_vocab_size, "new_vocab_size")
        check_rule(init, RESIZE_RULES)
        if pad_to_multiple_of is not None:
            check_size(pad_to_multiple_of, "pad_to_multiple_of")
            new_vocab_size = -(-new_vocab_size // pad_to_multiple_of) * pad_to_multiple_of
        old_rows = self.num_embeddings
        if new_vocab_size < old_rows and not allow_shrink:
            raise InputError(
                f"resizing from {old_rows} to {new_vocab_size} rows would lose "
                f"{old_rows - new_vocab_size} of them; pass allow_shrink=True if that is meant"
            )
        if self.padding_idx is not None and self.padding_idx >= new_vocab_size:
            raise InputError(f"{new_vocab_size} rows would cut off the padding row {self.padding_idx}")
        if new_vocab_size == old_rows:
            return old_rows

        old_VD = self.weight.detach()
        new_VD = old_VD.new_empty(new_vocab_size, self.embedding_dim)
        new_VD[:old_rows] = old_VD[:new_vocab_size]
        added = new_VD[old_rows:]
        if init == "mean":
            added[:] = mean_row(old_VD, self.padding_idx)
        else:
            # Another seed than at birth: the same one would repeat the first rows of the table.
            init_rows(added, init, self.init_std, None if self.seed is None else self.seed + old_rows)
        self.weight = nn.Parameter(new_VD, requires_grad=self.weight.requires_grad)
        self.num_embeddings = new_vocab_size
        return new_vocab_size


def describe(value: object) -> str:
    """What came instead of a floating-point tensor."""
    return f"of dtype {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
