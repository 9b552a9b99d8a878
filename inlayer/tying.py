"""Base module: a head's rows, either its own parameter or a tied table.

hidden states -> head -> [tied table]
- a tied head holds the *module* that owns the rows and gets its weight at every call, so a replaced, moved, copied,
  or resized table stays tied. The module is not registered as a child: state_dict and parameters() contain it once
- see also: the padding row of a tied table, which gets no gradient from the head (tables/padding_row.py)
Tested in tests/test_head.py.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from inlayer.errors import InputError, ShapeError

Rows = TypeVar("Rows", bound="HeadRows")


def resolve_table(source: nn.Module) -> nn.Module:
    """Return the module that owns the rows: the source's input embeddings, or the source itself."""
    getter = getattr(source, "get_input_embeddings", None)
    table = getter() if callable(getter) else source
    # The class is checked first: the weight of a stored table would read all of its rows.
    if not isinstance(table, nn.Module) or not (hasattr(type(table), "weight") or hasattr(table, "weight")):
        raise InputError(
            f"{type(source).__name__} has no rows to tie a head to: neither .weight nor .get_input_embeddings()"
        )
    return table


def table_shape(table: nn.Module) -> tuple[int, int]:
    """Return the shape (V, D), without reading the rows of a table in a file."""
    rows, width = getattr(table, "num_embeddings", None), getattr(table, "embedding_dim", None)
    in_memory = "weight" in table._parameters or "weight" in table._buffers
    if not in_memory and isinstance(rows, int) and isinstance(width, int):
        return rows, width
    weight = table.weight
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ShapeError(f"{type(table).__name__} has no weight of shape (V, D)")
    return weight.shape[0], weight.shape[1]


class HeadRows(nn.Module):
    """A module with rows (V, D): a parameter, a stored table, or another module's table. The base class of `Head`."""

    bias: nn.Parameter | None
    n_embd: int
    # In a tuple, because nn.Module would register a bare module as a child and count the table twice.
    _source: tuple[nn.Module] | None = None

    @property
    def weight(self) -> Tensor:
        """The rows (V, D): a parameter, or the weight of a stored table or of the table that the head is tied to.

        Example:
            >>> inlayer.Head(4, 256).weight.shape
            torch.Size([256, 4])
        """
        own = self._parameters.get("weight")
        return self._owner().weight if own is None else own  # type: ignore[return-value]

    @property
    def vocab_size(self) -> int:
        """Number of rows; a tied head follows its table. Does not read rows from a file.

        Example:
            >>> inlayer.Head(4, 256).vocab_size
            256
        """
        own = self._parameters.get("weight")
        return table_shape(self._owner())[0] if own is None else own.shape[0]

    def _owner(self) -> nn.Module:
        """Return the module that holds the rows, for a head that does not have its own parameter."""
        owner = self._modules.get("stored") or self.table
        if owner is None:
            raise AttributeError("weight")  # nn.Module looks this name up before the parameter is registered
        return owner

    @property
    def tied(self) -> bool:
        """True if the rows belong to another module.

        Example:
            >>> inlayer.load("default").head.tied
            True
        """
        return self._parameters["weight"] is None and "stored" not in self._modules

    @property
    def table(self) -> nn.Module | None:
        """The table module that the head is currently tied to, or None if it has its own rows.

        Example:
            >>> inlayer.Head(4, 256).tie(inlayer.Table(256, 4)).table
            Table(256, 4)
        """
        return resolve_table(self._source[0]) if self._source is not None and self.tied else None

    def tie(self: Rows, source: nn.Module) -> Rows:
        """Use another module's rows instead of the head's own.

        Args:
            source: A table, or a module with `get_input_embeddings()`, such as `Embeddings` or a transformers model.

        Returns:
            The head.

        Raises:
            InputError: If the module has no rows.
            ShapeError: If its size differs from the head's.

        Example:
            >>> inlayer.Head(4, 256).tie(inlayer.Embeddings(256, 4)).tied
            True
        """
        self._check_size(resolve_table(source))
        self._source = (source,)
        self.register_parameter("weight", None)
        self._modules.pop("stored", None)
        # So that Embeddings.resize can resize their biases.
        heads: list[object] | None = getattr(source, "_tied_heads", None)
        if heads is not None and all(self is not known for known in heads):
            heads.append(self)
        return self

    def _check_size(self, table: nn.Module) -> None:
        size = table_shape(table)
        if size != (self.vocab_size, self.n_embd):
            raise ShapeError(
                f"cannot tie a head of size {(self.vocab_size, self.n_embd)} to a table of size {size} (V, D): the "
                "sizes must match; was one of them resized or padded?"
            )

    def untie(self: Rows) -> Rows:
        """Copy the table's rows into a parameter of the head.

        Returns:
            The head.

        Example:
            >>> inlayer.Head(4, 256).tie(inlayer.Table(256, 4)).untie().tied
            False
        """
        if self.tied:
            shared = self.weight
            self.weight = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)  # type: ignore[misc]
            self._source = None
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load as usual. A tied head accepts a copy of the table's rows, which ordinary tied models also save."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        *_, unexpected_keys, error_msgs = args
        key = f"{prefix}weight"
        if self.tied and key in unexpected_keys:
            unexpected_keys.remove(key)
            saved, tables = state_dict[key], [self.weight, *(state_dict[name] for name in state_dict if name != key)]
            same_size = (table.to(saved) for table in tables if table.shape == saved.shape)
            if not any(torch.allclose(table, saved, rtol=0, atol=0, equal_nan=True) for table in same_size):
                error_msgs.append(f"{key} differs from every table; this head is tied: call head.untie() to load it")

    def resize_bias(self, rows: int) -> None:
        """Resize the bias of a tied head to the number of rows of its resized table; new entries are zero.

        `Embeddings.resize` calls this for every head tied to its table.

        Args:
            rows: Number of table rows.

        Example:
            >>> table = inlayer.Table(256, 4)
            >>> head = inlayer.Head(4, 256, bias=True).tie(table)
            >>> head.resize_bias(table.resize(300))
            >>> head(torch.zeros(4)).shape
            torch.Size([300])
        """
        if self.tied and self.bias is not None and len(self.bias) != rows:
            bias_V = self.bias.detach().new_zeros(rows)
            copied = min(rows, len(self.bias))
            bias_V[:copied] = self.bias.detach()[:copied]
            self.bias = nn.Parameter(bias_V, requires_grad=self.bias.requires_grad)


def use_stored_rows(head: HeadRows, table: nn.Module) -> None:
    """Give a head the rows of an untied table that stays in its file, instead of a parameter."""
    head._check_size(resolve_table(table))
    head.stored = table  # a registered child, unlike the table of a tied head
    head.register_parameter("weight", None)
    head._source = None
