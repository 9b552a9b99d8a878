"""The head: hidden states -> logits, or straight to the loss.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- order of operations, each skipped if it does nothing: hidden * input_scale (T5), projection, * scale (Cohere),
  / divisor (Granite: dividing by x and multiplying by 1 / x round differently), soft cap (Gemma 2)
- a tied head holds the *module* that owns the rows and gets its weight at every call, so that a replaced, moved, copied
  or resized table stays tied. The module is not registered as a child: state_dict and parameters() contain it once
- tied to a table with a padding row, it sends no gradient to that row, so that the row stays zero in training
- the loss never materializes all logits: torch's chunked linear_cross_entropy, or our own chunks for what it does not
  support (a soft cap, a z-loss, half precision under autocast, where it would round the loss itself) and for torch
  versions without it
- rows sharded over several processes: each process computes the logits of its own rows, also in the loss (sharding.py)
- elsewhere: the table (tables/), which models tie their heads (families/)
Tested against linear + cross_entropy and against transformers' heads in tests/test_head.py.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from inlayer import sharding
from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError
from inlayer.shapes import check_padding, check_size, check_std, is_finite
from inlayer.tensors import check_float, check_ids
from inlayer.tying import resolve_table, table_size, without_row_gradient

__all__ = ["Head"]

IGNORE = -100  # torch's default for ignored targets
REDUCTIONS = ("mean", "sum", "none")

# Rows of logits per chunk: see chunk_rows.
MIN_CHUNK_ROWS = 256
MAX_CHUNK_ROWS = 1024

# Devices where half precision may be emulated and many times slower; torch's chunked loss avoids it there, too.
FULL_PRECISION = frozenset({"cpu"})


class Head(nn.Module):
    """Projects hidden states (..., D) onto a vocabulary of V rows: its own, or those of a table it is tied to.

    Args:
        n_embd: Width of the hidden states.
        vocab_size: Number of rows.
        bias: Whether to add a bias to the logits.
        input_scale: Factor on the hidden states (T5).
        scale: Factor on the logits (Cohere).
        divisor: The logits are divided by it (Granite).
        soft_cap: Maps logits smoothly into (-soft_cap, soft_cap) (Gemma 2).
        padding_idx: Targets with this id do not count in the loss.
        init_std: Standard deviation of the initial rows.
        device: As in torch.nn.Linear.
        dtype: As in torch.nn.Linear.

    Raises:
        InputError: If a size or factor is invalid.

    Example:
        >>> head = Head(4, 256)
        >>> head(torch.zeros(1, 2, 4)).shape
        torch.Size([1, 2, 256])
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        n_embd: int,
        vocab_size: int,
        *,
        bias: bool = False,
        input_scale: float = 1.0,
        scale: float = 1.0,
        divisor: float = 1.0,
        soft_cap: float | None = None,
        padding_idx: int | None = None,
        init_std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("n_embd", n_embd), ("vocab_size", vocab_size)):
            check_size(size, name)
        for name, factor in (("input_scale", input_scale), ("scale", scale), ("divisor", divisor)):
            if not is_finite(factor) or factor == 0:
                raise InputError(f"{name} is {factor!r}; it must be finite and not 0 (1.0 does nothing)")
        if soft_cap is not None and not (is_finite(soft_cap) and soft_cap > 0):
            raise InputError(f"soft_cap is {soft_cap!r}; it must be a positive number, or None for no cap")
        self.n_embd = n_embd
        self.input_scale = input_scale
        self.scale = scale
        self.divisor = divisor
        self.soft_cap = soft_cap
        self.padding_idx = check_padding(padding_idx, vocab_size)
        self.init_std = check_std(init_std)
        # In a tuple, because nn.Module would register a bare module as a child and count the table twice.
        self._source: tuple[nn.Module] | None = None
        self.register_parameter("weight", nn.Parameter(torch.empty(vocab_size, n_embd, device=device, dtype=dtype)))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(vocab_size, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the head's own rows from N(0, init_std) and its bias with zeros; a tied table is not changed."""
        own = self._parameters["weight"]
        if own is not None and not own.is_meta:
            nn.init.normal_(own, std=self.init_std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        """The rows (V, D): a parameter, or the weight of a stored table or of the table that the head is tied to."""
        own = self._parameters.get("weight")
        if own is not None:
            return own
        stored = self._modules.get("stored")
        if stored is None and self._source is None:
            raise AttributeError("weight")  # nn.Module looks it up before it is registered
        return (self.table if stored is None else stored).weight  # type: ignore[return-value]

    @property
    def vocab_size(self) -> int:
        """Number of rows; a tied head follows its table. Reads no rows of a table in a file."""
        own = self._parameters.get("weight")
        return table_size(self._modules.get("stored") or self.table)[0] if own is None else own.shape[0]

    @property
    def tied(self) -> bool:
        """Whether the rows belong to another module."""
        return self._parameters["weight"] is None and "stored" not in self._modules

    @property
    def table(self) -> nn.Module:
        """The table module that the head is currently tied to."""
        if self._source is None or not self.tied:
            raise InputError("this head has its own rows; call tie(source) to tie it to a table")
        return resolve_table(self._source[0])

    def tie(self, source: nn.Module) -> Head:
        """Use the rows of a table module, or of source.get_input_embeddings(), instead of its own. Returns the head."""
        self._check_size(resolve_table(source))
        self._source = (source,)
        self.register_parameter("weight", None)
        self._modules.pop("stored", None)
        return self

    def store(self, table: nn.Module) -> Head:
        """Use the rows of an untied table that stays in its file, instead of a parameter. Returns the head."""
        self._check_size(resolve_table(table))
        self.stored = table  # a registered child, unlike the table of a tied head
        self.register_parameter("weight", None)
        self._source = None
        return self

    def _check_size(self, table: nn.Module) -> None:
        size = table_size(table)
        if size != (self.vocab_size, self.n_embd):
            raise ShapeError(
                f"the table is {size} and the head {(self.vocab_size, self.n_embd)}, as (V, D); to be tied they must "
                "have the same size: was one of them resized or padded to a multiple?"
            )

    def untie(self) -> Head:
        """Copy the table's rows into a parameter of the head. Returns the head."""
        if self.tied:
            shared = self.weight
            self.weight = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)  # type: ignore[misc]
            self._source = None
        return self

    def resize_bias(self, rows: int) -> None:
        """Resize the bias of a tied head to its table's new number of rows; new entries are zero."""
        if self.tied and self.bias is not None and len(self.bias) != rows:
            bias_V = self.bias.detach().new_zeros(rows)
            kept = min(rows, len(self.bias))
            bias_V[:kept] = self.bias.detach()[:kept]
            self.bias = nn.Parameter(bias_V, requires_grad=self.bias.requires_grad)

    def forward(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Compute logits (..., V)."""
        hidden = self._check_hidden(hidden)
        local = self._local_rows()
        if local is None:
            return self.project(hidden, self._guarded_weight(), self.bias)
        logits_L = self.project(sharding.copy_to_all(hidden, local.mesh), local.rows_LD, local.entries(self.bias))
        return sharding.join_columns(logits_L, self.vocab_size, local.mesh)

    def loss(
        self,
        hidden: Any,
        targets: object,
        *,
        ignore_index: int = IGNORE,
        reduction: str = "mean",
        z_loss: float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute the cross entropy of hidden states without materializing all logits.

        Args:
            hidden: Hidden states (..., D).
            targets: Target ids (...). Ignored are `ignore_index` and the padding id of the head or its table.
            ignore_index: The id of targets to ignore.
            reduction: "mean", "sum" or "none". Without any remaining target, the loss and its gradients are 0.
            z_loss: Adds z_loss * logsumexp(logits)^2 per target, which keeps logits from drifting together.

        Returns:
            The loss, in float32 under autocast. Only one backward pass and no higher derivatives are supported.

        Raises:
            IdRangeError: If a target is not a row.
        """
        hidden_ND, targets_N, shape = self._check_loss(hidden, targets, reduction, z_loss)
        local = self._local_rows()
        weight_VD = self._guarded_weight() if local is None else local.rows_LD
        bias_V: Tensor | None = self.bias if local is None else local.entries(self.bias)
        kept_N = targets_N != ignore_index
        for padding_idx in {self.padding_idx, self._zero_row()} - {None}:
            kept_N &= targets_N != padding_idx
        check_targets(targets_N.view(shape), kept_N.view(shape), self.vocab_size, ignore_index)
        if reduction == "none":
            targets_N = targets_N.where(kept_N, IGNORE)
        elif not bool(kept_N.all()):  # skip ignored targets
            kept = kept_N.nonzero().squeeze(1)
            hidden_ND, targets_N = hidden_ND.index_select(0, kept), targets_N.index_select(0, kept)
        if local is not None:
            hidden_ND = sharding.copy_to_all(hidden_ND, local.mesh)
        device = hidden_ND.device.type
        autocast = torch.is_autocast_enabled(device)
        if autocast:  # torch's chunked loss ignores autocast: cast here, once for all chunks
            dtype = torch.float32 if device in FULL_PRECISION else torch.get_autocast_dtype(device)
            hidden_ND, weight_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
            bias_V = None if bias_V is None else bias_V.to(dtype)
        half_autocast = autocast and hidden_ND.dtype != torch.float32
        unsupported = self.soft_cap is not None or z_loss != 0 or half_autocast or local is not None
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            if len(targets_N) == 0:  # an empty sum of logits: 0, with zero gradients instead of none
                empty_N = functional.linear(hidden_ND, weight_VD, bias_V).sum(-1)
                loss = empty_N if reduction == "none" else empty_N.sum()
            elif hasattr(functional, "linear_cross_entropy") and not unsupported:
                loss = self._loss_by_torch(hidden_ND, targets_N, weight_VD, bias_V, reduction=reduction)
            else:
                loss = self._loss_by_chunks(
                    hidden_ND, targets_N, weight_VD, bias_V, local, reduction=reduction, z_loss=z_loss
                )
        loss = loss.to(torch.float32 if autocast else hidden_ND.dtype)
        return loss.view(shape) if reduction == "none" else loss

    def extra_repr(self) -> str:
        """Sizes and non-default settings, for print(model)."""
        plain = {"input_scale": 1.0, "scale": 1.0, "divisor": 1.0, "soft_cap": None}
        settings = "".join(
            f", {name}={getattr(self, name)}" for name, value in plain.items() if getattr(self, name) != value
        )
        return f"{self.n_embd}, {self.vocab_size}, bias={self.bias is not None}, tied={self.tied}{settings}"

    def project(self, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
        """Logits for some or all rows of the head, with their biases."""
        if self.input_scale != 1.0:
            hidden = hidden * self.input_scale
        logits = functional.linear(hidden, weight_VD, bias_V)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.divisor != 1.0:
            logits = logits / self.divisor
        if self.soft_cap is not None:
            logits = torch.tanh(logits / self.soft_cap) * self.soft_cap
        return logits

    def _loss_by_torch(
        self,
        hidden_ND: Tensor,
        targets_N: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        *,
        reduction: str,
    ) -> Tensor:
        """torch's chunked loss. Factors are applied to hidden states and bias, because the projection is linear."""
        factor = self.scale / self.divisor
        if self.input_scale * factor != 1.0:
            hidden_ND = hidden_ND * (self.input_scale * factor)
        if bias_V is not None and factor != 1.0:
            bias_V = bias_V * factor
        rows = chunk_rows(len(targets_N), self.n_embd)
        return functional.linear_cross_entropy(
            hidden_ND,
            weight_VD,
            targets_N,
            linear_bias=bias_V,
            reduction=reduction,
            ignore_index=IGNORE,
            options=nn.LinearCrossEntropyOptions(
                chunking_method=None,
                batch_chunk_size=rows,
                allow_retain_graph=torch.compiler.is_compiling(),  # torch needs it there
            ),
        )

    def _loss_by_chunks(
        self,
        hidden_ND: Tensor,
        targets_N: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        local: sharding.LocalRows | None,
        *,
        reduction: str,
        z_loss: float,
    ) -> Tensor:
        """Our own chunks, recomputed in the backward pass. Everything after the projection is at least float32."""

        def one_chunk(hidden_CD: Tensor, targets_C: Tensor) -> Tensor:
            logits_CV = self.project(hidden_CD, weight_VD, bias_V)
            logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
            if local is not None:
                losses_C, log_sums_C = sharding.cross_entropy(logits_CV, targets_C, local, IGNORE)
            else:
                losses_C = functional.cross_entropy(logits_CV, targets_C, ignore_index=IGNORE, reduction="none")
                log_sums_C = None
            if z_loss == 0:
                return losses_C
            log_sums_C = logits_CV.logsumexp(-1) if log_sums_C is None else log_sums_C
            return losses_C + z_loss * log_sums_C.square().masked_fill(targets_C == IGNORE, 0.0)

        rows = chunk_rows(len(targets_N), self.n_embd)
        losses_N = torch.cat(
            [
                checkpoint(
                    one_chunk,
                    hidden_ND[start : start + rows],
                    targets_N[start : start + rows],
                    use_reentrant=False,
                )
                for start in range(0, len(targets_N), rows)
            ]
        )
        if reduction == "none":
            return losses_N
        return losses_N.mean() if reduction == "mean" else losses_N.sum()

    def _check_loss(
        self, hidden: object, targets: object, reduction: str, z_loss: float
    ) -> tuple[Tensor, Tensor, torch.Size]:
        if reduction not in REDUCTIONS:
            raise InputError(f"reduction {reduction!r} is unknown; choose one of {', '.join(map(repr, REDUCTIONS))}")
        if not (is_finite(z_loss) and z_loss >= 0):
            raise InputError(
                f"z_loss is {z_loss!r}; it must be finite and not negative (0.0 disables it, 1e-4 is a common value)"
            )
        hidden = self._check_hidden(hidden)
        targets = check_ids(targets, "targets")
        if hidden.shape[:-1] != targets.shape:
            raise ShapeError(
                f"hidden {tuple(hidden.shape)} needs targets of shape {tuple(hidden.shape[:-1])}, got "
                f"{tuple(targets.shape)}; one target per hidden state: shift both before the call"
            )
        return hidden.reshape(-1, self.n_embd), targets.reshape(-1).long(), targets.shape

    def _check_hidden(self, hidden: object) -> Tensor:
        hidden = check_float(hidden, "hidden", width=self.n_embd)
        weight = self.weight
        if hidden.dtype != weight.dtype and not torch.is_autocast_enabled(hidden.device.type):
            raise DtypeError(f"hidden is {hidden.dtype} but the head's rows are {weight.dtype}; convert one of them")
        return hidden

    def _zero_row(self) -> int | None:
        """The padding row of a tied table, which must stay zero."""
        padding_idx = getattr(self.table, "padding_idx", None) if self.tied else None
        return padding_idx if isinstance(padding_idx, int) else None

    def _local_rows(self) -> sharding.LocalRows | None:
        """The rows of a sharded weight in this process, without gradient for the padding row; None if not sharded."""
        weight_VD = self.weight
        if not sharding.is_sharded(weight_VD):
            return None
        local = sharding.local_rows(weight_VD)
        row = local.local_index(self._zero_row())
        return local if row is None else local._replace(rows_LD=without_row_gradient(local.rows_LD, row))

    def _guarded_weight(self) -> Tensor:
        weight_VD = self.weight
        if self.bias is not None and self.bias.shape[0] != weight_VD.shape[0]:
            raise ShapeError(
                f"the head has {weight_VD.shape[0]} rows but a bias of {self.bias.shape[0]} entries; the tied table "
                "was resized without the head: call Embeddings.resize instead, or resize_bias on the head"
            )
        padding_idx = self._zero_row()
        return weight_VD if padding_idx is None else without_row_gradient(weight_VD, padding_idx)


def chunk_rows(tokens: int, n_embd: int) -> int:
    """Rows of logits per chunk: D, so that a chunk is as large as the gradient of the rows.

    The backward pass briefly needs that gradient twice anyway, so chunks of this size do not increase peak memory, and
    smaller ones take more time (docs/decisions.md). Larger ones than the maximum are not faster, and smaller ones than
    the minimum are much slower.
    """
    return min(tokens, max(MIN_CHUNK_ROWS, min(n_embd, MAX_CHUNK_ROWS)))


def check_targets(targets: Tensor, kept: Tensor, rows: int, ignore_index: int) -> None:
    """Raise IdRangeError for the first target that is neither ignored nor a row."""
    outside = kept & ((targets < 0) | (targets >= rows))
    if bool(outside.any()):
        where = outside.nonzero()[0].tolist()
        raise IdRangeError(
            f"target {int(targets[tuple(where)])} at {where} is outside 0..{rows - 1}; "
            f"to ignore a target, set it to ignore_index ({ignore_index})"
        )
