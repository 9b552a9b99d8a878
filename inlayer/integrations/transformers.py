"""attach: replaces the table and the head of a `transformers` model with inlayer's.

text -> ids -> [rows] -> (+ positions) -> hidden states -> the model's own blocks -> [head] -> logits
- only get/set_input_embeddings and get/set_output_embeddings are used; transformers is not imported
- the parameters stay the same objects with the same values: logits are bit-identical, an existing optimizer keeps
  working, and save_pretrained writes the same files
- the head is tied if the model's is, but by module; transformers assigns parameters on every `tie_weights` call instead
- a padding row that is zero stays zero, even when tied. A padding row that is not zero was trained (often as the
  end-of-text token): the head keeps training it, but lookups do not, as in the original model
- an untied model can be resized only before attaching, because transformers resizes only nn.Linear heads
Tested step by step against the same models without inlayer in tests/integrations/test_transformers.py.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from inlayer.errors import ConfigError, DtypeError, InputError, needs_torch, type_name
from inlayer.families import describe
from inlayer.families.config_reader import short_repr

with needs_torch("inlayer.integrations.transformers"):
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    from inlayer.head import Head
    from inlayer.tables import Table

AnyModel = TypeVar("AnyModel")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ACCESSORS = ("get_input_embeddings", "set_input_embeddings", "get_output_embeddings", "set_output_embeddings")
# Options of nn.Embedding that a Table does not have, with their defaults.
OPTIONS = {"max_norm": None, "scale_grad_by_freq": False, "sparse": False}
ROWS_COMPARED = 64
TRANSFORMS = "a masked-language head transforms the hidden states first"


def attach(model: AnyModel, *, padding_idx: int | Literal["same"] | None = "same") -> AnyModel:
    """Replace a transformers model's embedding table and head with inlayer modules that share the same parameters.

    Values do not change, and a second call does nothing. Afterwards `model.lm_head.loss(hidden, targets)` computes the
    loss of the last hidden states without materializing all logits.

    Args:
        model: A model such as LlamaForCausalLM.
        padding_idx: The row that stays zero. "same" keeps the padding row of the model's table, if it is zero.

    Returns:
        The same model.

    Raises:
        InputError: If the table or the head cannot be replaced without changing the model, which is left unchanged.
        DtypeError: If the weights have an unsupported dtype.

    Example:
        >>> from transformers import LlamaForCausalLM
        >>> model = inlayer.attach(LlamaForCausalLM.from_pretrained("model"))
        >>> type(model.lm_head).__name__
        'AttachedHead'
    """
    table, head = find_table_and_head(model)
    if isinstance(table, Table) and isinstance(head, AttachedHead) and head.model_table is table:
        if padding_idx not in ("same", table.padding_idx):
            raise InputError(
                f"the model is already attached with padding_idx {table.padding_idx}; it cannot be changed to "
                f"{padding_idx}"
            )
        return model
    scaled = isinstance(table, nn.Embedding) and hasattr(table, "embed_scale")
    check_part(table, "table", (nn.Embedding, type(table) if scaled else Table, ScaledTable))
    check_part(head, "head", (nn.Linear, AttachedHead))
    assert isinstance(table, nn.Embedding)
    for name, default in OPTIONS.items():
        if getattr(table, name) != default:
            value = short_repr(getattr(table, name))
            raise InputError(f"the model's table has {name} = {value}, which Table does not support")
    new_table = make_table(table, table.padding_idx if padding_idx == "same" else padding_idx)
    row = None if new_table.padding_idx is None else new_table.weight.detach()[new_table.padding_idx]
    is_zero = row is None or not bool(row.any())
    if not is_zero and padding_idx != "same":
        raise InputError(
            f"padding_idx is {new_table.padding_idx}, but that row is not zero: it is trained or randomly initialized; "
            "zero it first if it is padding, since attach does not change values"
        )
    new_head = AttachedHead.from_linear(head, new_table, keeps_zero=is_zero, config=getattr(model, "config", None))
    if "MaskedLM" in type(model).__name__:
        new_head._loss_error = TRANSFORMS
    install(model, new_table, new_head)
    return model


class ScaledTable(Table):
    """Table that scales its rows, like the one it replaces (Gemma)."""

    embed_scale: Tensor | float

    def forward(self, ids: Any) -> Tensor:
        """Return rows times the scale, which is rounded to their dtype if it is a tensor."""
        rows, scale = super().forward(ids), self.embed_scale
        return rows * (scale.to(self.weight.dtype) if isinstance(scale, Tensor) else scale)


class AttachedHead(Head):
    """Head inside a transformers model. The model applies its soft cap and scales; here, only `loss` does."""

    # The table of the same model, tied or untied; it is not registered as a child module.
    model_table: nn.Module | None = None
    _keeps_zero = True
    _loss_error: str | None = None

    @classmethod
    def from_linear(cls, linear: nn.Module, table: Table, *, keeps_zero: bool, config: object) -> AttachedHead:
        """Build a head with the parameters of `linear`, tied to the table if they are the table's."""
        weight, bias = linear.weight, linear.bias
        assert isinstance(weight, nn.Parameter)
        assert isinstance(bias, nn.Parameter | None)
        rows, width = weight.shape
        head = cls(width, rows, bias=bias is not None, device="meta", dtype=weight.dtype)
        head.__dict__["model_table"], head._keeps_zero = table, keeps_zero
        head.padding_idx = table.padding_idx if keeps_zero else None
        try:
            layer = describe(config)
            spec = layer.head
            if spec.bias and layer.norm_eps is not None:  # BERT and its descendants
                raise ConfigError(TRANSFORMS)
            head.hidden_scale = spec.hidden_scale
            head.logit_scale, head.logit_divisor = spec.logit_scale, spec.logit_divisor
            head.soft_cap = spec.soft_cap
        except (ConfigError, DtypeError) as error:
            head._loss_error = str(error).partition(";")[0]  # the advice is removed
        head.weight = weight  # type: ignore[misc]
        head.bias = bias
        return head.train(linear.training)

    def __setattr__(self, name: str, value: Any) -> None:
        """Treat an assignment of the table's weight as tying, because transformers ties that way."""
        table = self.model_table if name == "weight" else None
        if table is not None and value is table.weight:
            self.tie(table)
        else:
            super().__setattr__(name, value)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits like those of nn.Linear; the model applies its soft cap and scales."""
        return functional.linear(self._check_hidden(hidden), self._weight_without_padding_gradient(), self.bias)

    def loss(self, hidden: Tensor, targets: Tensor, **options: Any) -> Tensor:
        """Compute `Head.loss` of the last hidden states.

        Raises ConfigError if the model's soft cap and scales are unknown.
        """
        if self._loss_error is not None:
            raise ConfigError(
                f"inlayer does not know how this model scales its logits; use the model's own loss: {self._loss_error}"
            )
        return super().loss(hidden, targets, **options)

    def _padding_row(self) -> int | None:
        return super()._padding_row() if self._keeps_zero else None


def find_table_and_head(model: object) -> tuple[nn.Module, nn.Module]:
    """Return the model's table and head. Raises InputError if it does not have both."""
    kind = type(model).__name__
    lacking = [name for name in ACCESSORS if not callable(getattr(model, name, None))]
    if not isinstance(model, nn.Module) or lacking:
        missing = f": it has no {', '.join(lacking)}" if lacking else ""
        raise InputError(f"{kind} is not a transformers model such as LlamaForCausalLM{missing}")
    try:
        table, head = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    except (NotImplementedError, AttributeError) as error:
        raise InputError(f"{kind} does not provide its table: {error}") from error
    for part, name in ((table, "embedding table"), (head, "head; use the model class that ends in ForCausalLM")):
        if not isinstance(part, nn.Module):
            raise InputError(f"{kind} has no {name}")
    if all(head is not child for child in model.children()):
        raise InputError(
            f"the head of {kind} is inside a submodule: it is a masked-language head, which has more layers, or part "
            "of a larger model; attach the inner model"
        )
    return table, head


def check_part(module: nn.Module, name: str, kinds: tuple[type, ...]) -> None:
    """Raise an error for other classes, special or missing weights, and hooks, which would be lost."""
    if type(module) not in kinds:
        kind = f"{type(module).__module__}.{type(module).__qualname__}"  # a quantized Linear is also called Linear
        raise InputError(
            f"the model's {name} is of type {kind}, not nn.{kinds[0].__name__}; is it quantized or modified?"
        )
    weight = module.weight
    assert isinstance(weight, Tensor)
    if weight.dtype not in DTYPES:
        raise DtypeError(f"the {name} has dtype {weight.dtype}; attach supports {', '.join(map(str, DTYPES))}")
    if weight.is_meta:
        raise InputError(f"the {name} has no values (device meta); load the weights first")
    if type(weight) is not nn.Parameter:
        raise InputError(
            f"the weight of the {name} is {type_name(weight)}; attach before sharding or quantizing the model"
        )
    if hasattr(module, "_hf_hook") or module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        raise InputError(
            f"the {name} has hooks, which would be lost; attach first, then add hooks or dispatch the model"
        )


def make_table(old: nn.Embedding, padding_idx: int | None) -> Table:
    """Build a table around the old table's weight, and check that it returns bit-identical rows."""
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
            raise InputError(f"the model's table is {type_name(old)}, which does more than look up and scale rows")
    return table


def install(model: Any, table: Table, head: AttachedHead) -> None:
    """Set the table and the head, and restore the model if its parameters are no longer the same."""
    kind, before = type(model).__name__, list(model.parameters())
    original = [
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
            if module not in (table, head)
            and any(parameter is table.weight for parameter in module.parameters(recurse=False))
        ]
        if find_table_and_head(model) != (table, head) or others:
            user = f"; {short_repr(others[0])} still uses the old table" if others else ""
            raise InputError(f"{kind} does not accept another table and head{user}")
        if {*map(id, before)} != {*map(id, model.parameters())}:
            raise InputError(
                f"{kind} has several tables, but its setter would keep only one (tie_word_embeddings is False)"
            )
    except (InputError, NotImplementedError, AttributeError, TypeError) as error:
        for module, name, part in original:
            setattr(module, name, part)
        if isinstance(error, InputError):
            raise
        raise InputError(f"{kind} does not accept another table and head: {error}") from error
