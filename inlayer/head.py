"""The head: hidden states -> logits, or straight to the loss.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> [head] -> logits
- order of operations, each skipped where it does nothing: hidden * input_scale (T5), projection, * scale
  (Cohere), / divisor (Granite: dividing by x and multiplying by 1 / x round differently), soft cap (Gemma 2)
- tied, it holds the *module* that owns the rows and asks it for them at every call: a swapped, moved, copied
  or resized table stays tied. The module is held unregistered, so state_dict and parameters() have it once.
- tied to a table with a padding row, it sends that row no gradient, so the row stays zero in training
- the loss never holds all logits: torch's chunked linear_cross_entropy, or own chunks for what that cannot do (a soft
  cap, a z-loss, half precision under autocast, where it would round the loss itself to the half type)
- rows that lie with several processes: each has the logits of its own rows only, also in the loss (sharding.py)
- not here: the table (tables/), who is tied to whom in a given model (families.py)
Checked against linear + cross_entropy and against transformers' heads in tests/test_head.py.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import LinearCrossEntropyOptions, functional
from torch.utils.checkpoint import checkpoint

from inlayer import sharding
from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError
from inlayer.shapes import check_padding, check_size, check_std, is_finite
from inlayer.tensors import check_float, check_ids

__all__ = ["Head"]

IGNORE = -100  # torch's own default for a target that counts for nothing
REDUCTIONS = ("mean", "sum", "none")

# Rows of logits held at once: see chunk_rows.
FEWEST_ROWS = 256
MAX_ROWS = 1024

# Where autocast's half products may be emulated, and many times slower; torch's chunked loss avoids them there, too.
FULL_PRECISION = frozenset({"cpu"})


class Head(nn.Module):
    """Projects hidden states (..., D) onto a vocabulary of V rows, its own or a table's.

    `tie(source)` gives up its own rows for those of a table module, or of whatever table the source's
    `get_input_embeddings()` returns at each call. A `soft_cap` maps logits into (-cap, cap).
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
        # A tuple, because nn.Module registers a bare module as a child, and the table would be counted twice.
        self._source: tuple[nn.Module] | None = None
        self.register_parameter("weight", nn.Parameter(torch.empty(vocab_size, n_embd, device=device, dtype=dtype)))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(vocab_size, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the head's own rows from N(0, init_std) and zero its bias; a tied table is not touched."""
        own = self._parameters["weight"]
        if own is not None and not own.is_meta:
            nn.init.normal_(own, std=self.init_std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        """The rows (V, D): the head's own parameter, or the very weight of its own table or the one it is tied to."""
        own = self._parameters.get("weight")
        if own is not None:
            return own
        stored = self._modules.get("stored")
        if stored is None and self._source is None:
            raise AttributeError("weight")  # not registered yet: nn.Module asks before it registers
        return (self.table if stored is None else stored).weight  # type: ignore[return-value]

    @property
    def vocab_size(self) -> int:
        """V; of a tied head it follows the table. No row of a table in a file is read for it."""
        own = self._parameters.get("weight")
        return table_size(self._modules.get("stored") or self.table)[0] if own is None else own.shape[0]

    @property
    def tied(self) -> bool:
        """Are the rows another module's?"""
        return self._parameters["weight"] is None and "stored" not in self._modules

    @property
    def table(self) -> nn.Module:
        """The table module the head is tied to, as its source names it now."""
        if self._source is None or not self.tied:
            raise InputError("this head owns its rows; tie(source) ties it to a table")
        return resolve_table(self._source[0])

    def tie(self, source: nn.Module) -> Head:
        """Use the rows of `source` from now on, and drop the head's own. Returns the head."""
        self._check_size(resolve_table(source))
        self._source = (source,)
        self.register_parameter("weight", None)
        self._modules.pop("stored", None)
        return self

    def store(self, table: nn.Module) -> Head:
        """Use the rows of a table of the head's own, one that stays in its file, and drop the ones it has."""
        self._check_size(resolve_table(table))
        self.stored = table  # a child, where the table of a tied head is none
        self.register_parameter("weight", None)
        self._source = None
        return self

    def _check_size(self, table: nn.Module) -> None:
        size = table_size(table)
        if size != (self.vocab_size, self.n_embd):
            raise ShapeError(
                f"the table is {size}, the head {(self.vocab_size, self.n_embd)}, as (V, D); "
                "only equal ones can be tied: was one of them resized or padded to a multiple?"
            )

    def untie(self) -> Head:
        """Keep an own copy of the rows from now on. Returns the head."""
        if self.tied:
            shared = self.weight
            self.weight = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)  # type: ignore[misc]
            self._source = None
        return self

    def resize_bias(self, rows: int) -> None:
        """Follow a tied table to its new number of rows; new entries are zero. A head with its own rows stays."""
        if self.tied and self.bias is not None and len(self.bias) != rows:
            bias_V = self.bias.detach().new_zeros(rows)
            kept = min(rows, len(self.bias))
            bias_V[:kept] = self.bias.detach()[:kept]
            self.bias = nn.Parameter(bias_V, requires_grad=self.bias.requires_grad)

    def forward(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Logits."""
        hidden = self._check_hidden(hidden)
        held = self._held_rows()
        if held is None:
            return self.project(hidden, self._guarded_weight(), self.bias)
        logits_L = self.project(sharding.to_all(hidden, held.mesh), held.rows_LD, held.entries(self.bias))
        return sharding.join_columns(logits_L, self.vocab_size, held.mesh)

    def loss(
        self,
        hidden: Any,
        targets: object,
        *,
        ignore_index: int = IGNORE,
        reduction: str = "mean",
        z_loss: float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Cross entropy of hidden states (..., D) against target ids (...), without ever holding all logits.

        Targets equal to `ignore_index` count for nothing, nor do those equal to the head's or its table's padding id.
        With nothing left to count, the loss is 0 and its gradients are zero. `reduction` is "mean", "sum" or
        "none". One backward uses the graph up; higher derivatives are not offered.

        `z_loss` times the square of logsumexp(logits) is added for every target that counts, and reduced with the
        rest: cross entropy does not see logits that drift all together. Under autocast the loss is float32.
        """
        hidden_ND, targets_N, shape = self._check_loss(hidden, targets, reduction, z_loss)
        held = self._held_rows()
        weight_VD = self._guarded_weight() if held is None else held.rows_LD
        bias_V: Tensor | None = self.bias if held is None else held.entries(self.bias)
        kept_N = targets_N != ignore_index
        for padding_idx in {self.padding_idx, self._zero_row()} - {None}:
            kept_N &= targets_N != padding_idx
        check_targets(targets_N.view(shape), kept_N.view(shape), self.vocab_size, ignore_index)
        if reduction == "none":
            targets_N = targets_N.where(kept_N, IGNORE)
        elif not bool(kept_N.all()):  # what does not count is not computed either
            kept = kept_N.nonzero().squeeze(1)
            hidden_ND, targets_N = hidden_ND.index_select(0, kept), targets_N.index_select(0, kept)
        if held is not None:
            hidden_ND = sharding.to_all(hidden_ND, held.mesh)
        device = hidden_ND.device.type
        autocast = torch.is_autocast_enabled(device)
        if autocast:  # torch's chunked loss knows nothing of it: cast here, once for all chunks
            dtype = torch.float32 if device in FULL_PRECISION else torch.get_autocast_dtype(device)
            hidden_ND, weight_VD = hidden_ND.to(dtype), weight_VD.to(dtype)
            bias_V = None if bias_V is None else bias_V.to(dtype)
        plain = self.soft_cap is None and z_loss == 0 and not (autocast and hidden_ND.dtype != torch.float32)
        plain = plain and held is None
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            if len(targets_N) == 0:  # the sum of no logits: 0, and zero gradients rather than none
                nothing_N = functional.linear(hidden_ND, weight_VD, bias_V).sum(-1)
                loss = nothing_N if reduction == "none" else nothing_N.sum()
            elif plain:
                loss = self._loss_by_torch(hidden_ND, targets_N, weight_VD, bias_V, reduction=reduction)
            else:
                loss = self._loss_by_chunks(
                    hidden_ND, targets_N, weight_VD, bias_V, held, reduction=reduction, z_loss=z_loss
                )
        loss = loss.to(torch.float32 if autocast else hidden_ND.dtype)
        return loss.view(shape) if reduction == "none" else loss

    def extra_repr(self) -> str:
        """Sizes and what differs from a plain projection, for print(model)."""
        plain = {"input_scale": 1.0, "scale": 1.0, "divisor": 1.0, "soft_cap": None}
        said = "".join(
            f", {name}={getattr(self, name)}" for name, value in plain.items() if getattr(self, name) != value
        )
        return f"{self.n_embd}, {self.vocab_size}, bias={self.bias is not None}, tied={self.tied}{said}"

    def project(self, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
        """Logits for rows that may be some of the head's only; their biases with them."""
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
        """The factors go into hidden states and bias: a projection is linear."""
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
            options=LinearCrossEntropyOptions(
                chunking_method=None,
                batch_chunk_size=rows,
                allow_retain_graph=torch.compiler.is_compiling(),  # torch forces it there, and warns
            ),
        )

    def _loss_by_chunks(
        self,
        hidden_ND: Tensor,
        targets_N: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        held: sharding.HeldRows | None,
        *,
        reduction: str,
        z_loss: float,
    ) -> Tensor:
        """What torch's function cannot: chunks, computed again backward. From the logits on in float32 at least."""

        def one_chunk(hidden_CD: Tensor, targets_C: Tensor) -> Tensor:
            logits_CV = self.project(hidden_CD, weight_VD, bias_V)
            logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
            if held is not None:
                losses_C, log_sums_C = sharding.cross_entropy(logits_CV, targets_C, held, IGNORE)
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
                f"z_loss is {z_loss!r}; it must be finite and not negative (0.0 adds nothing, 1e-4 is usual)"
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
            raise DtypeError(f"hidden is {hidden.dtype} and the head's rows are {weight.dtype}; convert one of them")
        return hidden

    def _zero_row(self) -> int | None:
        """The row of a tied table that must stay zero."""
        padding_idx = getattr(self.table, "padding_idx", None) if self.tied else None
        return padding_idx if isinstance(padding_idx, int) else None

    def _held_rows(self) -> sharding.HeldRows | None:
        """Of a weight that is spread over processes, the rows that are here, guarded; None where it is not."""
        weight_VD = self.weight
        if not sharding.is_sharded(weight_VD):
            return None
        held = sharding.held_rows(weight_VD)
        row = held.place(self._zero_row())
        return held if row is None else held._replace(rows_LD=guard(held.rows_LD, row))

    def _guarded_weight(self) -> Tensor:
        weight_VD = self.weight
        if self.bias is not None and self.bias.shape[0] != weight_VD.shape[0]:
            raise ShapeError(
                f"the head's bias has {self.bias.shape[0]} entries, its rows are {weight_VD.shape[0]}; "
                "the tied table was resized by itself: resize the layer that the head is tied to, or call resize_bias"
            )
        padding_idx = self._zero_row()
        return weight_VD if padding_idx is None else guard(weight_VD, padding_idx)


def guard(weight_VD: Tensor, row: int) -> Tensor:
    """The same rows, one of which gets no gradient."""
    if not (weight_VD.requires_grad and torch.is_grad_enabled()):
        return weight_VD
    guarded: Tensor = KeepRow.apply(weight_VD, row)  # type: ignore[no-untyped-call]
    return guarded


class KeepRow(torch.autograd.Function):
    """Identity; on the way back it zeroes the gradient of one row.

    A hook on the parameter would do the same until deepcopy or .to() leaves it behind. In place is right
    here: only the projection and the chunked loss consume the guarded weight, each hands over a gradient made
    for it alone, and a copy would cost the size of the table.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight_VD: Tensor, row: int) -> Tensor:  # noqa: ARG004
        """The same values, as a new node of the graph."""
        return weight_VD.view_as(weight_VD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        """Remember the row."""
        ctx.row = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_VD: Tensor) -> tuple[Tensor, None]:
        """The gradient without that row."""
        grad_VD[ctx.row] = 0
        return grad_VD, None


def resolve_table(source: nn.Module) -> nn.Module:
    """The module that owns the rows: what the source names as its input embeddings, or the source itself."""
    getter = getattr(source, "get_input_embeddings", None)
    table = getter() if callable(getter) else source
    # Of the class, too: asking a stored table itself for its weight would read all of it.
    if not isinstance(table, nn.Module) or not (hasattr(type(table), "weight") or hasattr(table, "weight")):
        raise InputError(f"{type(source).__name__} has no rows to tie to: neither .weight nor .get_input_embeddings()")
    return table


def table_size(table: nn.Module) -> tuple[int, int]:
    """(V, D). A table that holds no weight but reads it from a file is asked for its size, not for its rows."""
    rows, width = getattr(table, "num_embeddings", None), getattr(table, "embedding_dim", None)
    held = "weight" in table._parameters or "weight" in table._buffers
    if not held and isinstance(rows, int) and isinstance(width, int):
        return rows, width
    weight = table.weight
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ShapeError(f"{type(table).__name__} has no (V, D) weight to tie to")
    return weight.shape[0], weight.shape[1]


def chunk_rows(tokens: int, n_embd: int) -> int:
    """How many rows of logits to hold at once: D of them, which is as large as the gradient of the rows.

    The backward holds that gradient twice for a moment anyway, so chunks up to this size cost no memory at the
    peak, and smaller ones cost time (docs/decisions.md). Past the upper bound a larger matrix multiply is no
    faster, below the lower one it is much slower.
    """
    return min(tokens, max(FEWEST_ROWS, min(n_embd, MAX_ROWS)))


def check_targets(targets: Tensor, kept: Tensor, rows: int, ignore_index: int) -> None:
    """Raise IdRangeError for the first target that counts and is no row."""
    outside = kept & ((targets < 0) | (targets >= rows))
    if bool(outside.any()):
        place = outside.nonzero()[0].tolist()
        raise IdRangeError(
            f"target {int(targets[tuple(place)])} at {place} is outside 0..{rows - 1}; "
            f"targets to be ignored must equal ignore_index ({ignore_index})"
        )
