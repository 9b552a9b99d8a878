"""attach: inlayer's table and head in a model of `transformers` that is there already.

text -> ids -> [rows] -> (+ positions) -> hidden states -> the model's own body -> [head] -> logits
- the model is reached through get/set_input_embeddings and get/set_output_embeddings only; transformers is not imported
- the very parameters stay, none is copied or changed: logits are equal to the bit, an optimizer made before goes on,
  and save_pretrained writes what it wrote before
- tied or not, by module, as the model is. transformers ties by assigning parameters, again whenever `tie_weights` is
  called: a head here takes the assignment of its table's weight as the tie that it is
- a padding row that is zero stays zero, when tied, too. One that is not zero was trained as a token (often it is the
  end of the text): the head goes on learning it, and lookups leave it alone, as in the model itself
- what a family does around its table stays where it was: Gemma's factor is within the table, and moves along
- `model.lm_head.loss(hidden, targets)` never holds all logits. It knows what the model's forward does around its head
  (soft cap, scales) from the config. The forward itself makes the logits before it asks for a loss, so
  `model(input_ids, labels=...)` stays as it was
- not here: resizing an untied model, which transformers does for nn.Linear only: resize first, attach afterwards
Checked against the same models without it, step by step, in tests/integrations/test_transformers.py.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from inlayer.errors import ConfigError, DtypeError, InputError
from inlayer.families import describe
from inlayer.families.fields import short as shown
from inlayer.head import Head
from inlayer.tables import Table

__all__ = ["AttachedHead", "ScaledTable", "attach"]

AnyModel = TypeVar("AnyModel")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ACCESS = ("get_input_embeddings", "set_input_embeddings", "get_output_embeddings", "set_output_embeddings")
# Options of nn.Embedding that a Table does not have, and what they are when not used.
OPTIONS = {"max_norm": None, "scale_grad_by_freq": False, "sparse": False}
ROWS_COMPARED = 64


def attach(model: AnyModel, *, padding_idx: int | Literal["same"] | None = "same") -> AnyModel:
    """Put inlayer's Table and Head in place of the model's own, around the same parameters. Returns the model.

    `padding_idx` is the row that stays zero; "same" takes the one that the model's table has, if it is zero. What
    cannot be replaced without changing the model is refused, and the model is left as it was. A second call does
    nothing. Hidden states that leave the model's body have their loss by `model.lm_head.loss(hidden, targets)`.
    """
    table, head = parts_of(model)
    if isinstance(table, Table) and isinstance(head, AttachedHead) and head.partner is table:
        if padding_idx not in ("same", table.padding_idx):
            raise InputError(
                f"the model is attached already, with padding_idx {table.padding_idx}; {padding_idx} cannot be set now"
            )
        return model
    check_table(table)
    check_head(head)
    assert isinstance(table, nn.Embedding)  # or check_table would have refused it
    new_table = make_table(table, table.padding_idx if padding_idx == "same" else padding_idx)
    row = None if new_table.padding_idx is None else new_table.weight.detach()[new_table.padding_idx]
    is_zero = row is None or not bool(row.any())
    if not is_zero and padding_idx != "same":
        raise InputError(
            f"row {new_table.padding_idx} is to be the padding row, and is not zero: its token was trained, or the row "
            "was drawn. Zero it first, if that is meant: no value is changed here"
        )
    new_head = AttachedHead.around(head, new_table, keeps_row=is_zero, config=getattr(model, "config", None))
    put(model, new_table, new_head)
    return model


class ScaledTable(Table):
    """A table whose rows are multiplied on their way out, where the model's own does it and not its body (Gemma)."""

    embed_scale: Tensor | float

    def forward(self, ids: Any) -> Tensor:
        """Rows times the factor, which is rounded to their type where it is a tensor."""
        rows, scale = super().forward(ids), self.embed_scale
        scaled: Tensor = rows * (scale.to(self.weight.dtype) if isinstance(scale, Tensor) else scale)
        return scaled


class AttachedHead(Head):
    """A head within a model of transformers, whose forward does the rest: soft cap and scales are for `loss` alone."""

    _partner: tuple[nn.Module] | None = None  # a tuple: the table is no child of the head
    _keeps_row = True
    _refusal: str | None = None

    @classmethod
    def around(cls, linear: nn.Module, table: Table, *, keeps_row: bool, config: object) -> AttachedHead:
        """The head of `linear`'s own parameters; tied to the table if they are the table's."""
        weight, bias = linear.weight, linear.bias
        assert isinstance(weight, nn.Parameter)
        assert isinstance(bias, nn.Parameter | None)
        rows, width = weight.shape
        head = cls(width, rows, bias=bias is not None, device="meta", dtype=weight.dtype)
        head._partner, head._keeps_row = (table,), keeps_row
        head.padding_idx = table.padding_idx if keeps_row else None
        try:
            layer = describe(config)
            spec = layer.head
            if spec.bias and layer.norm_eps is not None:  # BERT's descendants
                raise ConfigError("a masked-language head transforms the hidden states first")
            head.input_scale, head.scale, head.divisor = spec.input_scale, spec.scale, spec.divisor
            head.soft_cap = spec.soft_cap
        except ConfigError as error:
            head._refusal = str(error).partition(";")[0]  # without what to do instead
        head.weight = weight  # type: ignore[misc]
        head.bias = bias
        return head.train(linear.training)

    @property
    def partner(self) -> nn.Module | None:
        """The table of the same model, tied to or not."""
        return None if self._partner is None else self._partner[0]

    def __setattr__(self, name: str, value: Any) -> None:
        """Assigning the table's weight is transformers' way to tie."""
        table = self.partner if name == "weight" else None
        if table is not None and value is table.weight:
            self.tie(table)
        else:
            super().__setattr__(name, value)

    def forward(self, hidden: Tensor) -> Tensor:
        """What an nn.Linear gives: the model's forward goes on from there."""
        return functional.linear(self._check_hidden(hidden), self._guarded_weight(), self.bias)

    def loss(self, hidden: Any, targets: object, **options: Any) -> Tensor:
        """`Head.loss` of the hidden states that leave the body, if it is known what the model's forward does then."""
        if self._refusal is not None:
            raise ConfigError(f"what this model does around its head is not known, use its own loss: {self._refusal}")
        return super().loss(hidden, targets, **options)

    def _zero_row(self) -> int | None:
        return super()._zero_row() if self._keeps_row else None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """A tied model of transformers has the weight under both names; here the head has none to fill."""
        super()._load_from_state_dict(state_dict, prefix, *others)
        unexpected = others[-2]
        if self.tied and f"{prefix}weight" in unexpected:
            unexpected.remove(f"{prefix}weight")


def parts_of(model: object) -> tuple[nn.Module, nn.Module]:
    """The model's table and head as it names them, or an error."""
    kind = type(model).__name__
    lacking = [name for name in ACCESS if not callable(getattr(model, name, None))]
    if not isinstance(model, nn.Module) or lacking:
        why = f": it has no {', '.join(lacking)}" if lacking else ""
        raise InputError(f"{kind} is no model of transformers, as LlamaForCausalLM is one{why}")
    try:
        table, head = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    except (NotImplementedError, AttributeError) as error:
        raise InputError(f"{kind} does not say where its table is: {error}") from error
    if not isinstance(table, nn.Module):
        raise InputError(f"{kind} has no table of token embeddings")
    if not isinstance(head, nn.Module):
        raise InputError(f"{kind} has no head, it ends in hidden states; take the class of it that ends in ForCausalLM")
    if all(head is not child for child in model.children()):
        raise InputError(
            f"the head of {kind} belongs to a part of it: a masked-language head, which has more to it, or a model "
            "within a larger one; attach takes such a model by itself"
        )
    return table, head


def check_table(table: nn.Module) -> None:
    """Raise an error for a table that a Table cannot take the place of."""
    if type(table) not in (nn.Embedding, Table, ScaledTable) and not (
        isinstance(table, nn.Embedding) and hasattr(table, "embed_scale")
    ):
        raise InputError(f"the model's table is a {full_name(table)}, not an nn.Embedding: quantized, or changed since")
    for name, unused in OPTIONS.items():
        if getattr(table, name) != unused:
            raise InputError(f"the model's table has {name} = {shown(getattr(table, name))}, which a Table has not")
    check_weight(table, "table")


def check_head(head: nn.Module) -> None:
    """Raise an error for a head that is more than a projection."""
    if type(head) not in (nn.Linear, AttachedHead):
        raise InputError(f"the model's head is a {full_name(head)}, not an nn.Linear: quantized, or changed since")
    check_weight(head, "head")


def check_weight(module: nn.Module, name: str) -> None:
    """Raise an error for values that are not there, or not plain, and for hooks: they would stay on the old module."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if weight.dtype not in DTYPES:
        raise DtypeError(f"the {name}'s rows are {weight.dtype}; attach takes {', '.join(map(str, DTYPES))}")
    if weight.is_meta:
        raise InputError(f"the {name}'s rows have no values yet (device meta); load them first")
    if type(weight) is not nn.Parameter:
        kind = type(weight).__name__
        raise InputError(f"the {name}'s rows are a {kind}; attach before sharding or quantizing the model")
    if hasattr(module, "_hf_hook") or module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        raise InputError(f"the {name} has hooks, which would be lost; attach first, then place or watch its modules")


def full_name(module: nn.Module) -> str:
    """Class and module: a quantized Linear is called Linear, too."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def make_table(old: nn.Embedding, padding_idx: int | None) -> Table:
    """A table around the old one's weight that gives the same rows, to the bit."""
    scale = getattr(old, "embed_scale", None)
    if scale is None:
        table = Table.from_weight(old.weight, padding_idx)
    else:
        table = ScaledTable.from_weight(old.weight, padding_idx)
        if isinstance(scale, Tensor):
            table.register_buffer("embed_scale", scale, persistent=False)
        else:
            table.embed_scale = scale
    table.train(old.training)
    ids = torch.arange(min(table.num_embeddings, ROWS_COMPARED), device=old.weight.device)
    with torch.no_grad():
        if not torch.allclose(table(ids), old(ids), rtol=0, atol=0, equal_nan=True):
            raise InputError(
                f"the model's table is a {type(old).__name__}, which does more than look up and scale rows"
            )
    return table


def put(model: Any, table: Table, head: AttachedHead) -> None:
    """Set both, and see that the model has the same parameters as before; if not, all is put back as it was."""
    kind, before = type(model).__name__, list(model.parameters())
    places = [
        (module, name, part)
        for module in model.modules()
        for name, part in (*module.named_children(), *module.named_parameters(recurse=False))
    ]
    try:
        model.set_input_embeddings(table)
        model.set_output_embeddings(head)
        others = [
            name
            for name, module in model.named_modules()
            if module not in (table, head) and any(own is table.weight for own in module.parameters(recurse=False))
        ]
        if parts_of(model) != (table, head) or others:
            where = f"; {shown(others[0])} goes on with the old one" if others else ""
            raise InputError(f"{kind} does not take another table and head{where}")
        if {*map(id, before)} != {*map(id, model.parameters())}:
            raise InputError(
                f"{kind} has several tables, of which it would keep one only (tie_word_embeddings is False)"
            )
    except (InputError, NotImplementedError, AttributeError, TypeError) as error:
        for module, name, part in places:
            setattr(module, name, part)
        if isinstance(error, InputError):
            raise
        raise InputError(f"{kind} does not take another table and head: {error}") from error
