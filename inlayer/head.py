"""The head: hidden states -> logits, or straight to the loss.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- order of operations, each skipped if it does nothing: hidden * hidden_scale (T5), projection, * logit_scale (Cohere),
  / logit_divisor (Granite: dividing by x and multiplying by 1 / x round differently), soft cap (Gemma 2)
- a head tied to a table with a padding row sends no gradient to that row (tables/padding_row.py)
- the loss never materializes all logits (chunked_loss.py): torch's chunks, or our own for cases torch does not support
  (a soft cap, a z-loss) or where it would round the loss itself (half precision under autocast)
- rows sharded over several processes: each process computes the logits of its own rows, also in the loss (sharding.py)
- see also: the head's rows, its own or those of a table (tying.py), which models tie their heads (families/)
Tested against linear + cross_entropy and against transformers' heads in tests/test_head.py.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from inlayer import sharding
from inlayer.checks import check_padding, check_size, check_std, is_finite
from inlayer.chunked_loss import IGNORE_INDEX, check_targets, chunked_losses, torch_chunked_loss
from inlayer.errors import DtypeError, InputError, ShapeError
from inlayer.tables.padding_row import without_row_gradient
from inlayer.tensors import check_float, check_ids, check_table_dtype, is_jit_tracing, is_meta_or_traced
from inlayer.tying import HeadRows

Reduction: TypeAlias = Literal["mean", "sum", "none"]

# Devices where half precision may be emulated and many times slower; torch's chunked loss also avoids it there.
FULL_PRECISION_DEVICES = frozenset({"cpu"})


class Head(HeadRows):
    """Projects hidden states (..., D) onto a vocabulary of V rows: its own rows, or the rows of a tied table.

    Args:
        n_embd: Width of the hidden states.
        vocab_size: Number of rows.
        bias: Whether to add a bias to the logits.
        hidden_scale: Multiplier for the hidden states (T5).
        logit_scale: Multiplier for the logits (Cohere).
        logit_divisor: The logits are divided by it (Granite).
        soft_cap: Maps logits smoothly into (-soft_cap, soft_cap) (Gemma 2).
        padding_idx: Targets with this id are ignored in the loss.
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

    def __init__(
        self,
        n_embd: int,
        vocab_size: int,
        *,
        bias: bool = False,
        hidden_scale: float = 1.0,
        logit_scale: float = 1.0,
        logit_divisor: float = 1.0,
        soft_cap: float | None = None,
        padding_idx: int | None = None,
        init_std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n_embd, vocab_size = check_size(n_embd, "n_embd"), check_size(vocab_size, "vocab_size")
        check_table_dtype(dtype)
        factors = {"hidden_scale": hidden_scale, "logit_scale": logit_scale, "logit_divisor": logit_divisor}
        for name, factor in factors.items():
            if not is_finite(factor) or factor == 0:
                raise InputError(f"{name} is {factor!r}; it must be finite and not 0 (1.0 has no effect)")
        if soft_cap is not None and not (is_finite(soft_cap) and soft_cap > 0):
            raise InputError(f"soft_cap is {soft_cap!r}; it must be a positive number, or None for no cap")
        self.n_embd, self.init_std = n_embd, check_std(init_std)
        self.padding_idx = check_padding(padding_idx, vocab_size)
        self.hidden_scale, self.logit_scale, self.logit_divisor = hidden_scale, logit_scale, logit_divisor
        self.soft_cap = soft_cap
        self.register_parameter("weight", nn.Parameter(torch.empty(vocab_size, n_embd, device=device, dtype=dtype)))
        own_bias = nn.Parameter(torch.empty(vocab_size, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own_bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the head's own rows from N(0, init_std) and its bias with zeros; a tied table is not changed."""
        own = self._parameters["weight"]
        if own is not None and not own.is_meta:
            nn.init.normal_(own, std=self.init_std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Compute logits.

        Args:
            hidden: Hidden states (..., D) in the dtype of the rows.

        Returns:
            Logits (..., V).

        Raises:
            DtypeError: If the dtype differs from the rows' dtype, outside autocast.
            ShapeError: If the width is not D.

        Example:
            >>> Head(4, 256)(torch.zeros(4)).shape
            torch.Size([256])
        """
        hidden = self._check_hidden(hidden)
        local = self._local_rows()
        if local is None:
            return compute_logits(self, hidden, self._weight_without_padding_gradient(), self.bias)
        hidden = sharding.copy_to_processes(hidden, local.mesh)
        logits_M = compute_logits(self, hidden, local.rows_MD, local.entries(self.bias))
        return sharding.gather_last_dim(logits_M, self.vocab_size, local.mesh)

    if TYPE_CHECKING:
        __call__ = forward

    def loss(
        self,
        hidden: Float[Tensor, "... D"],
        targets: Integer[Tensor, "..."],
        *,
        ignore_index: int = IGNORE_INDEX,
        reduction: Reduction = "mean",
        z_loss: float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute the cross-entropy of hidden states without materializing all logits.

        Args:
            hidden: Hidden states (..., D).
            targets: Target ids (...). `ignore_index` and the padding id (of the head or its table) are ignored.
            ignore_index: The id of targets to ignore.
            reduction: "mean", "sum", or "none". If all targets are ignored, the loss and its gradients are 0.
            z_loss: Adds z_loss * logsumexp(logits)^2 per target, which keeps the logits from drifting.

        Returns:
            The loss, in float32 under autocast. It supports one backward pass, and no higher derivatives.

        Raises:
            IdRangeError: If a target is not a row. This is checked only on the CPU, and not while compiling or tracing:
                on a GPU, the check would force a sync, and CUDA's own assertion fails instead.
            DtypeError: If the targets are not integers.
            ShapeError: If there is not one target per hidden state.

        Example:
            >>> round(Head(4, 256).loss(torch.zeros(2, 4), torch.tensor([72, 105])).item(), 4)  # equal logits: ln 256
            5.5452
        """
        hidden_ND, targets_N, shape = self._check_loss(hidden, targets, reduction, z_loss)
        counted_N = targets_N != ignore_index
        for padding_idx in {self.padding_idx, self._padding_row()} - {None}:
            counted_N &= targets_N != padding_idx
        # Reading values would break a traced graph, and make the CPU wait for a GPU at every step.
        readable = targets_N.device.type == "cpu" and not is_meta_or_traced(targets_N)
        if readable:
            check_targets(targets_N.view(shape), counted_N.view(shape), self.vocab_size, ignore_index)
        if readable and reduction != "none":
            if not bool(counted_N.all()):  # skip ignored targets
                counted = counted_N.nonzero().squeeze(1)
                hidden_ND, targets_N = hidden_ND.index_select(0, counted), targets_N.index_select(0, counted)
            loss = self._loss(hidden_ND, targets_N, reduction, z_loss)
        else:
            targets_N = targets_N.where(counted_N, IGNORE_INDEX)
            loss = self._loss(hidden_ND, targets_N, "sum" if reduction == "mean" else reduction, z_loss)
            loss = loss / counted_N.sum().clamp(min=1) if reduction == "mean" else loss
        return loss.view(shape) if reduction == "none" else loss

    def _loss(self, hidden_ND: Tensor, targets_N: Tensor, reduction: str, z_loss: float) -> Tensor:
        """Return the loss of targets that are rows or IGNORE_INDEX, by torch's chunks or ours."""
        local = self._local_rows()
        weight_VD = self._weight_without_padding_gradient() if local is None else local.rows_MD
        bias_V: Tensor | None = self.bias if local is None else local.entries(self.bias)
        if local is not None:
            hidden_ND = sharding.copy_to_processes(hidden_ND, local.mesh)
        device = hidden_ND.device.type
        autocast = torch.is_autocast_enabled(device)
        if autocast:  # torch's chunked loss ignores autocast: cast here, once for all chunks
            dtype = torch.float32 if device in FULL_PRECISION_DEVICES else torch.get_autocast_dtype(device)
            hidden_ND, weight_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
            bias_V = None if bias_V is None else bias_V.to(dtype)
        half_autocast = autocast and hidden_ND.dtype != torch.float32
        tracing = is_jit_tracing()  # while tracing, sizes (and the number of chunks) are unknown
        is_plain = self.soft_cap is None and z_loss == 0 and local is None
        torch_supports_it = is_plain and not half_autocast and not tracing
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            if not tracing and len(targets_N) == 0:  # an empty sum of logits: 0, with gradients of zero instead of None
                losses_N = functional.linear(hidden_ND, weight_VD, bias_V).sum(-1)
                loss = losses_N if reduction == "none" else losses_N.sum()
            elif torch_supports_it and hasattr(functional, "linear_cross_entropy"):
                # the projection is linear, so the factors can be applied to hidden states and bias
                factor = self.logit_scale / self.logit_divisor
                scaled_ND = hidden_ND if self.hidden_scale * factor == 1.0 else hidden_ND * (self.hidden_scale * factor)
                scaled_V = bias_V if bias_V is None or factor == 1.0 else bias_V * factor
                loss = torch_chunked_loss(scaled_ND, targets_N, weight_VD, scaled_V, reduction)
            else:
                to_logits = partial(compute_logits, self, weight_VD=weight_VD, bias_V=bias_V)
                loss = chunked_losses(to_logits, hidden_ND, targets_N, local, z_loss)
                if reduction != "none":
                    loss = loss.mean() if reduction == "mean" else loss.sum()
        return loss.to(torch.float32 if autocast else hidden_ND.dtype)

    def extra_repr(self) -> str:
        """Return sizes and non-default settings, for print(model)."""
        defaults = {"hidden_scale": 1.0, "logit_scale": 1.0, "logit_divisor": 1.0, "soft_cap": None}
        settings = "".join(
            f", {name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value
        )
        return f"{self.n_embd}, {self.vocab_size}, bias={self.bias is not None}, tied={self.tied}{settings}"

    def _check_loss(
        self, hidden: object, targets: object, reduction: str, z_loss: float
    ) -> tuple[Tensor, Tensor, torch.Size]:
        if reduction not in (names := get_args(Reduction)):
            raise InputError(f"reduction is {reduction!r}; it must be one of {', '.join(map(repr, names))}")
        if not torch.compiler.is_compiling() and not (is_finite(z_loss) and z_loss >= 0):
            raise InputError(
                f"z_loss is {z_loss!r}; it must be finite and not negative (0.0 disables it, 1e-4 is a common value)"
            )
        hidden = self._check_hidden(hidden)
        targets = check_ids(targets, "targets")
        if not is_jit_tracing() and hidden.shape[:-1] != targets.shape:
            raise ShapeError(
                f"targets have shape {tuple(targets.shape)}, but hidden {tuple(hidden.shape)} needs one target per "
                f"hidden state, {tuple(hidden.shape[:-1])}; shift both before the call"
            )
        return hidden.reshape(-1, self.n_embd), targets.reshape(-1).long(), targets.shape

    def _check_hidden(self, hidden: object) -> Tensor:
        hidden = check_float(hidden, "hidden", width=self.n_embd)
        weight = self.weight
        if hidden.dtype != weight.dtype and not torch.is_autocast_enabled(hidden.device.type):
            raise DtypeError(f"hidden is {hidden.dtype} but the head's rows are {weight.dtype}; convert one of them")
        return hidden

    def _padding_row(self) -> int | None:
        """Return the padding row of a tied table, which must stay zero."""
        padding_idx = getattr(self.table, "padding_idx", None) if self.tied else None
        return padding_idx if isinstance(padding_idx, int) else None

    def _local_rows(self) -> sharding.LocalRows | None:
        """Return this process's rows of a sharded weight, or None if it is not sharded.

        The padding row gets no gradient.
        """
        weight_VD = self.weight
        if not sharding.is_sharded(weight_VD):
            return None
        local = sharding.local_rows(weight_VD)
        row = local.local_index(self._padding_row())
        return local if row is None else local._replace(rows_MD=without_row_gradient(local.rows_MD, row))

    def _weight_without_padding_gradient(self) -> Tensor:
        weight_VD = self.weight
        if self.bias is not None and not is_jit_tracing() and self.bias.shape[0] != weight_VD.shape[0]:
            raise ShapeError(
                f"the head has {weight_VD.shape[0]} rows but a bias of {self.bias.shape[0]} entries; the tied table "
                "was resized without the head: call Embeddings.resize instead, or resize_bias on the head"
            )
        padding_idx = self._padding_row()
        return weight_VD if padding_idx is None else without_row_gradient(weight_VD, padding_idx)


def compute_logits(head: Head, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """Compute logits (..., V) for all or some rows and their biases, with a head's factors and soft cap."""
    if head.hidden_scale != 1.0:
        hidden = hidden * head.hidden_scale
    return scale_logits(head, functional.linear(hidden, weight_VD, bias_V))


def scale_logits(head: Head, logits: Tensor) -> Tensor:
    """Apply a head's factors and soft cap to the products of hidden states and rows, with the bias."""
    if head.logit_scale != 1.0:
        logits = logits * head.logit_scale
    if head.logit_divisor != 1.0:
        logits = logits / head.logit_divisor
    if head.soft_cap is not None:
        logits = torch.tanh(logits / head.soft_cap) * head.soft_cap
    return logits
