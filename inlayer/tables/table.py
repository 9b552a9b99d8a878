"""In-memory tables, the learnable part of the input layer, and row lookup.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- an id outside the table is an error, detected before the gather. Only a tracer (torch.compile, export, jit, meta, and
  fake tensors) skips the check because it has no values
- without gradients, the memory of large results is reused (tables/buffers.py), bit-identical to F.embedding
- the padding row is zero after every initialization and receives no gradient from lookups or from
  a tied head (tying.py)
Tested against F.embedding, a plain loop, and nn.Embedding in test_lookup.py and test_table.py of tests/tables/.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from inlayer import sharding
from inlayer.checks import check_padding, check_seed, check_size, check_std, id_range_error
from inlayer.errors import DtypeError, InputError, ShapeError, type_name
from inlayer.initialization import (
    INIT_RULES,
    RESIZE_RULES,
    InitRule,
    ResizeRule,
    check_init_rule,
    init_rows,
    mean_row,
)
from inlayer.tables.buffers import BufferPool
from inlayer.tensors import check_ids, check_table_dtype, is_meta_or_traced

# At or above this size, a lease (about 10 us) is negligible next to the gather (0.4 ms) and numpy requests huge pages;
# below it, malloc reuses freed memory anyway.
MIN_BUFFERED_BYTES = 4 * 2**20

_BUFFERS = BufferPool()


def look_up(ids: object, weight: Shaped[Tensor, "V D"], padding_idx: int | None = None) -> Shaped[Tensor, "... D"]:
    """Look up rows of `weight` for ids of any shape and integer dtype: `ids.shape + (D,)`.

    `padding_idx` is the row that gets no gradient.

    >>> look_up(torch.tensor([2, 0]), torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    tensor([[4., 5.],
            [0., 1.]])
    """
    index = check_ids(ids)
    if weight.dim() != 2:
        raise ShapeError(f"the table has {weight.dim()} axes {tuple(weight.shape)}; it must be (V, D), rows by width")
    if index.device != weight.device:
        raise InputError(f"input_ids are on {index.device}, but the table is on {weight.device}; move one of them")
    if index.dtype not in (torch.int64, torch.int32):  # the only dtypes the kernels support
        index = index.to(torch.int64)
    check_id_range(index, weight.shape[0])
    if sharding.is_sharded(weight):
        return sharding.look_up(index, weight, padding_idx)
    if weight.is_contiguous() and not is_meta_or_traced(index) and _reusable(index.numel() * weight.shape[1], weight):
        rows = _BUFFERS.lease((*index.shape, weight.shape[1]), weight.dtype)
        torch.index_select(weight.detach(), 0, index.reshape(-1), out=rows.view(-1, weight.shape[1]))
        return rows
    # Same call as F.embedding, whose size check would warn under torch.jit.trace.
    return torch.embedding(weight, index, -1 if padding_idx is None else padding_idx)


def lease_buffer(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return uninitialized memory for rows read from a file, reusing large buffers."""
    nbytes = math.prod(shape) * dtype.itemsize
    return _BUFFERS.lease(shape, dtype) if nbytes >= MIN_BUFFERED_BYTES else torch.empty(shape, dtype=dtype)


def add_into_buffer(rows: Tensor, added: Tensor) -> Tensor:
    """Return `rows + added`, where `added` is broadcast to `rows`; the memory of a large sum is reused.

    The result is always a new tensor, because a hook or a cache may hold the rows.
    """
    if added.dtype != rows.dtype or not _reusable(rows.numel(), rows, added):
        return rows + added
    return torch.add(rows, added, out=_BUFFERS.lease(tuple(rows.shape), rows.dtype))


def check_id_range(ids: Tensor, rows: int, name: str = "id") -> None:
    """Raise IdRangeError for the first id outside 0..rows - 1. Negative ids never count from the end."""
    if is_meta_or_traced(ids) or ids.numel() == 0:
        return
    low, high = torch.aminmax(ids)
    if int(low) >= 0 and int(high) < rows:
        return
    raise id_range_error(ids.cpu().numpy(), rows, name)


def _reusable(values: int, *sources: Tensor) -> bool:
    """Return whether a result can use a reused buffer: large, on the CPU, plain tensors, no gradient to record."""
    return (
        all(source.device.type == "cpu" and not is_meta_or_traced(source) for source in sources)
        and values * sources[0].dtype.itemsize >= MIN_BUFFERED_BYTES
        and not (torch.is_grad_enabled() and any(source.requires_grad for source in sources))
    )


class Table(nn.Embedding):
    """A trainable table of `vocab_size` rows of width `n_embd`.

    Args:
        vocab_size: Number of rows.
        n_embd: Width of a row.
        padding_idx: A row that is zero and gets no gradient; a negative one counts from the end.
        init: "normal" (N(0, init_std)), "embedding" (N(0, 1)) or "scaled" (N(0, 1 / sqrt(n_embd))).
        init_std: Standard deviation for "normal".
        seed: Makes the initial rows reproducible; without it, torch's global generator is used.
        device: As in torch.nn.Embedding.
        dtype: As in torch.nn.Embedding.

    Raises:
        InputError: If a size, rule, seed, or padding row is invalid.
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
        init: InitRule = "normal",
        init_std: float = 0.02,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        vocab_size, n_embd = check_size(vocab_size, "vocab_size"), check_size(n_embd, "n_embd")
        check_table_dtype(dtype)
        check_std(init_std)
        weight_VD = torch.empty(vocab_size, n_embd, device=device, dtype=dtype)
        # With a weight, nn.Embedding skips its own initialization, which would be discarded.
        super().__init__(vocab_size, n_embd, check_padding(padding_idx, vocab_size), _weight=weight_VD)
        check_init_rule(init, INIT_RULES)
        self.init: InitRule = init
        self.init_std = init_std
        self.seed = None if seed is None else check_seed(seed)
        self.reset_parameters()

    @classmethod
    def from_weight(cls, weight: Tensor, padding_idx: int | None = None) -> Table:
        """Create a table around existing rows. Nothing is copied or changed, not even the padding row.

        Args:
            weight: Rows (V, D) of a floating-point dtype; a Parameter stays the same object.
            padding_idx: A row that gets no gradient.

        Returns:
            The table.

        Raises:
            DtypeError: If the rows are not a floating-point tensor.
            ShapeError: If they are not (V, D).

        Example:
            >>> Table.from_weight(torch.eye(3))(torch.tensor(1))
            tensor([0., 1., 0.], grad_fn=<EmbeddingBackward0>)
        """
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            kind = f"of dtype {weight.dtype}" if isinstance(weight, Tensor) else type_name(weight)
            raise DtypeError(f"the rows are {kind}; a table needs a floating-point tensor")
        if weight.dim() != 2 or 0 in weight.shape:
            raise ShapeError(f"the rows have shape {tuple(weight.shape)}; a table is (V, D) with both sizes at least 1")
        vocab_size, n_embd = weight.shape
        table = cls(vocab_size, n_embd, padding_idx=padding_idx, device="meta")
        table.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
        return table

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Table:
        """Make a table from existing rows; like nn.Embedding.from_pretrained, it is frozen by default.

        Args:
            embeddings: Rows (V, D).
            freeze: If True, the rows are not trained.
            padding_idx: A row that never gets a gradient.

        Returns:
            The table.

        Raises:
            InlayerError: Same as `from_weight`.

        Example:
            >>> Table.from_pretrained(torch.eye(3)).weight.requires_grad
            False
        """
        table = cls.from_weight(embeddings, padding_idx)
        table.weight.requires_grad_(not freeze)
        return table

    def reset_parameters(self) -> None:
        """Initialize all rows again, and the padding row with zeros."""
        init_rows(self.weight, self.init, self.init_std, self.seed, self.padding_idx)

    def forward(self, ids: Any) -> Shaped[Tensor, "... D"]:
        """Look up rows.

        Args:
            ids: Token ids of any shape.

        Returns:
            Rows of shape `ids.shape + (D,)`.

        Raises:
            DtypeError: If the ids are not integers.
            IdRangeError: If an id is not a row.

        Example:
            >>> Table(256, 4, padding_idx=0)(torch.tensor([[0]]))
            tensor([[[0., 0., 0., 0.]]], grad_fn=<EmbeddingBackward0>)
        """
        return look_up(ids, self.weight, self.padding_idx)

    if TYPE_CHECKING:
        __call__ = forward

    def resize(
        self, new_vocab_size: int, pad_to_multiple_of: int | None = None, init: ResizeRule = "mean", *,
        allow_shrink: bool = False,
    ) -> int:  # fmt: skip
        """Change the number of rows in place; existing rows are unchanged, bit for bit.

        The weight becomes a new Parameter: create the optimizer after this call.

        Args:
            new_vocab_size: Number of rows.
            pad_to_multiple_of: Round the number of rows up to a multiple.
            init: Values of new rows: the "mean" of the others except the padding row, "zeros", or a rule of `Table`.
            allow_shrink: Allow fewer rows, which drops the last ones.

        Returns:
            The new number of rows.

        Raises:
            InputError: If rows would be dropped without `allow_shrink`, or the padding row would be dropped.

        Example:
            >>> Table(100, 4).resize(101, pad_to_multiple_of=64)
            128
        """
        new_vocab_size = check_size(new_vocab_size, "new_vocab_size")
        check_init_rule(init, RESIZE_RULES)
        if pad_to_multiple_of is not None:
            pad_to_multiple_of = check_size(pad_to_multiple_of, "pad_to_multiple_of")
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
