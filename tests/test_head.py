"""Head: logits bit-identical to transformers, ties that survive, and a loss equal to plain cross-entropy."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import inlayer
from inlayer import chunked_loss
from inlayer import head as head_module
from inlayer.embeddings import Embeddings
from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError
from inlayer.head import Head
from inlayer.tables import Table
from inlayer.training.config import DecoderConfig
from inlayer.training.decoder import Decoder

V, D = 23, 8


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Thousands of tiny steps, which are faster on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class TiedModel(nn.Module):
    """A table, a body and a head: the smallest tied model."""

    def __init__(self, padding_idx: int | None = None, tied: bool = True, **options: object) -> None:
        super().__init__()
        self.table = Table(V, D, padding_idx=padding_idx)
        self.body = nn.Linear(D, D)
        self.head = Head(D, V, **options)
        if tied:
            self.head.tie(self.table)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(self.table(ids))))


class Layer(nn.Module):
    """A layer whose table can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = Table(V, D)

    def get_input_embeddings(self) -> nn.Module:
        return self.token_embedding


def is_tied(model: TiedModel) -> bool:
    return model.head.tied and model.head.weight is model.table.weight


# Logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_plain_logits(dtype: torch.dtype, bias: bool) -> None:
    head = Head(D, V, bias=bias, dtype=dtype)
    if head.bias is not None:
        nn.init.normal_(head.bias)
    hidden = torch.randn(2, 3, D, dtype=dtype)
    ours, theirs = head(hidden), functional.linear(hidden, head.weight, head.bias)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def their_logits(family: str, head: nn.Module, hidden: Tensor) -> Tensor:
    """Run the head of a transformers model on our rows and hidden states."""
    import transformers

    small = {"vocab_size": V, "num_hidden_layers": 1, "num_attention_heads": 2}
    config, model_class, body = {
        "gpt2": (
            transformers.GPT2Config(n_embd=D, n_head=2, n_layer=1, vocab_size=V),
            "GPT2LMHeadModel",
            "transformer",
        ),
        "cohere": (
            transformers.CohereConfig(hidden_size=D, logit_scale=0.0625 * 1.1, **small),
            "CohereForCausalLM",
            "model",
        ),
        "granite": (
            transformers.GraniteConfig(hidden_size=D, logits_scaling=6.0, **small),
            "GraniteForCausalLM",
            "model",
        ),
        "gemma2": (
            transformers.Gemma2Config(
                hidden_size=D, head_dim=4, final_logit_softcapping=3.0, num_key_value_heads=2, **small
            ),
            "Gemma2ForCausalLM",
            "model",
        ),
        "t5": (
            transformers.T5Config(
                d_model=D, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=V, decoder_start_token_id=0
            ),
            "T5ForConditionalGeneration",
            "decoder",
        ),
    }[family]
    config.pad_token_id = 0
    model = getattr(transformers, model_class)(config).to(hidden.dtype).eval()
    model.lm_head.weight = nn.Parameter(head.weight.detach().clone())
    getattr(model, body).register_forward_hook(lambda *call: replace_hidden(call[-1], hidden))
    ids = torch.ones(hidden.shape[:2], dtype=torch.int64)
    logits: Tensor = (model(input_ids=ids, decoder_input_ids=ids) if family == "t5" else model(input_ids=ids)).logits
    return logits


def replace_hidden(output: object, hidden: Tensor) -> object:
    output["last_hidden_state"] = hidden
    return output


FAMILIES: dict[str, dict[str, float]] = {
    "gpt2": {},
    "cohere": {"logit_scale": 0.0625 * 1.1},
    "granite": {"logit_divisor": 6.0},
    "gemma2": {"soft_cap": 3.0},
    "t5": {"hidden_scale": D**-0.5},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_bit_equal_to_transformers(family: str, dtype: torch.dtype) -> None:
    head = Head(D, V, **FAMILIES[family], init_std=1.0).to(dtype)
    hidden = torch.randn(2, 5, D).to(dtype)
    with torch.no_grad():
        ours, theirs = head(hidden), their_logits(family, head, hidden)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        if FAMILIES[family]:  # control
            plain = Head(D, V).to(dtype)
            plain.load_state_dict(head.state_dict())
            assert not torch.equal(plain(hidden), theirs)


def test_soft_cap_bounds_the_logits() -> None:
    head = Head(D, V, soft_cap=2.0, init_std=100.0)
    assert head(torch.randn(50, D)).abs().max() <= 2.0


# Ties


def survives(change: Callable[[TiedModel], TiedModel]) -> None:
    model = TiedModel(padding_idx=0)
    assert is_tied(model)
    changed = change(model)
    assert is_tied(changed)
    names = [name for name, _ in changed.named_parameters()]
    assert names == ["table.weight", "body.weight", "body.bias"]
    assert list(changed.state_dict()) == names
    assert sum(p.numel() for p in changed.parameters()) == V * D + D * D + D
    hidden = torch.randn(2, D, dtype=changed.table.weight.dtype)
    with torch.no_grad():  # a change of the table reaches the logits
        before = changed.head(hidden)
        changed.table.weight.mul_(2.0)
        torch.testing.assert_close(changed.head(hidden), 2 * before)


def through_state_dict(model: TiedModel) -> TiedModel:
    copied = TiedModel(padding_idx=0)
    copied.load_state_dict(model.state_dict())
    assert torch.equal(copied.table.weight, model.table.weight)
    return copied


def through_assign(model: TiedModel) -> TiedModel:
    copied = TiedModel(padding_idx=0)
    copied.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(copied.table.weight, model.table.weight)
    return copied


def through_pickle(model: TiedModel) -> TiedModel:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: TiedModel = torch.load(buffer, weights_only=False)
    return loaded


def through_deepcopy(model: TiedModel) -> TiedModel:
    copied = copy.deepcopy(model)
    assert copied.head.table is copied.table
    assert copied.table.weight is not model.table.weight
    return copied


def through_meta(model: TiedModel) -> TiedModel:
    return model.to("meta").to_empty(device="cpu").apply(lambda module: getattr(module, "reset_parameters", int)())


def through_training(model: TiedModel) -> TiedModel:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([[1, 2]])).sum().backward()
    optimizer.step()
    return model


def through_resize(model: TiedModel) -> TiedModel:
    model.table.resize(V + 5)
    assert model.head.vocab_size == V + 5
    model.table.resize(V, allow_shrink=True)
    return model


CHANGES = {
    "nothing": lambda model: model,
    "to dtype": lambda model: model.to(torch.bfloat16),
    "to double": lambda model: model.double(),
    "deepcopy": through_deepcopy,
    "deepcopy twice": lambda model: copy.deepcopy(copy.deepcopy(model)),
    "state_dict": through_state_dict,
    "state_dict assign": through_assign,
    "pickle": through_pickle,
    "meta and back": through_meta,
    "training": through_training,
    "resize": through_resize,
    "requires_grad": lambda model: model.requires_grad_(False),
    "share_memory": lambda model: model.share_memory(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tie_survives(change: str) -> None:
    survives(CHANGES[change])


def test_tie_survives_safetensors(tmp_path: Path) -> None:
    model = TiedModel(padding_idx=0)
    save_file(model.state_dict(), tmp_path / "a.safetensors")  # refuses tensors that share memory
    assert sorted(load_file(tmp_path / "a.safetensors")) == ["body.bias", "body.weight", "table.weight"]
    save_model(model, str(tmp_path / "b.safetensors"))
    for load in (
        lambda copied: copied.load_state_dict(load_file(tmp_path / "a.safetensors")),
        lambda copied: load_model(copied, tmp_path / "b.safetensors"),
    ):
        copied = TiedModel(padding_idx=0)
        load(copied)
        assert is_tied(copied)
        assert torch.equal(copied.table.weight, model.table.weight)


def test_control_tie_by_tensor_fails_these_checks() -> None:
    """Control: the usual `head.weight = table.weight`."""
    model = TiedModel(tied=False)
    model.head.weight = model.table.weight
    assert not model.head.tied
    assert len(model.state_dict()) == 4
    model.table.resize(V + 1)
    assert model.head.weight is not model.table.weight


def test_table_is_resolved_at_every_call() -> None:
    layer, head = Layer(), Head(D, V)
    assert head.tie(layer) is head
    assert head.weight is layer.token_embedding.weight
    layer.token_embedding = Table(V + 2, D)
    assert head.weight is layer.token_embedding.weight
    assert head(torch.randn(1, D)).shape == (1, V + 2)
    assert list(head.state_dict()) == []


class Whole(TiedModel):
    """A model that is its own source, like transformers models: the tie is a cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.head.untie().tie(self)

    def get_input_embeddings(self) -> nn.Module:
        return self.table


@pytest.mark.parametrize("change", [through_deepcopy, through_pickle, lambda model: model.double()])
def test_head_inside_its_own_source(change: Callable[[TiedModel], TiedModel]) -> None:
    model = change(Whole())
    assert is_tied(model)
    assert len(model.state_dict()) == 3
    assert "Head" in repr(model)
    model.table = Table(V + 1, D)
    assert is_tied(model)


def test_nn_embedding_can_be_tied() -> None:
    table, head = nn.Embedding(V, D, padding_idx=3), Head(D, V)
    head.tie(table)
    head(torch.randn(4, D)).sum().backward()
    assert bool((table.weight.grad[3] == 0).all())
    assert bool((table.weight.grad[2] != 0).any())


def test_untie_makes_a_copy() -> None:
    model = TiedModel()
    model.head.untie()
    assert not model.head.tied
    assert model.head.weight is not model.table.weight
    assert torch.equal(model.head.weight, model.table.weight)
    assert "head.weight" in dict(model.named_parameters())
    weight = model.head.weight
    assert model.head.untie().weight is weight  # nothing to do
    assert model.head.table is None
    model.head.tie(model.table)
    assert is_tied(model)


@pytest.mark.parametrize("table", [Table(V + 1, D), Table(V, D + 1)])
def test_table_of_another_shape_cannot_be_tied(table: Table) -> None:
    head = Head(D, V)
    with pytest.raises(ShapeError) as caught:
        head.tie(table)
    assert str(tuple(table.weight.shape)) in str(caught.value)
    assert str((V, D)) in str(caught.value)
    assert not head.tied


@pytest.mark.parametrize("bias", [False, True])
def test_linear_layer_is_replaced_by_a_head(bias: bool) -> None:
    layer, linear = Embeddings(V, D), nn.Linear(D, V, bias=bias)
    with pytest.raises(InputError, match="a Linear cannot be tied to this layer; replace it with ") as caught:
        layer.tie(linear)
    head = eval(str(caught.value).split(" with ")[1], {"inlayer": inlayer, "layer": layer})
    assert head.tied
    assert (head.bias is not None) == bias


def test_module_without_rows_cannot_be_tied() -> None:
    with pytest.raises(InputError, match="Dropout has no rows to tie a head to"):
        Head(D, V).tie(nn.Dropout())
    with pytest.raises(ShapeError, match="no weight of shape"):
        Head(D, V).tie(nn.LayerNorm(D))


def test_bias_of_the_wrong_size_is_an_error() -> None:
    model = TiedModel(bias=True)
    model.table.resize(V + 1)
    with pytest.raises(ShapeError, match=f"{V + 1} rows but a bias of {V} entries"):
        model(torch.tensor([[1]]))


def test_the_bias_of_a_head_that_ties_itself_follows_the_layer() -> None:
    layer, head = Embeddings(V, D), Head(D, V, bias=True)
    head.tie(layer)
    layer.resize(V + 1)
    assert head(layer(torch.tensor([V]))).shape == (1, V + 1)


# The padding row


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "by"), [("sgd", "logits"), ("adamw", "loss")])
def test_padding_row_is_zero_after_a_thousand_steps(optimizer: str, by: str) -> None:
    torch.manual_seed(0)
    model = copy.deepcopy(TiedModel(padding_idx=4))
    steps = OPTIMIZERS[optimizer](model.parameters())
    before = model.table.weight.detach().clone()
    for _ in range(1000):
        ids = torch.randint(0, V, (2, 6))
        if by == "logits":
            loss = functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        else:
            loss = model.head.loss(torch.tanh(model.body(model.table(ids)))[:, :-1], ids[:, 1:])
        steps.zero_grad()
        loss.backward()
        steps.step()
    after = model.table.weight.detach()
    assert torch.equal(after[4], torch.zeros(D))
    others = torch.arange(V) != 4
    assert bool((after[others] != before[others]).all())


def test_control_padding_row_changes_without_the_mask() -> None:
    """Control: padding_idx alone does not protect a tied row."""
    table = Table(V, D, padding_idx=4)
    functional.linear(table(torch.tensor([[1, 4]])), table.weight).pow(2).sum().backward()
    functional.linear(torch.randn(3, D), table.weight).sum().backward()
    assert bool((table.weight.grad[4] != 0).any())


@pytest.mark.parametrize("by", ["logits", "loss", "soft cap", "none"])
def test_mask_changes_no_other_gradient(by: str) -> None:
    options = {"soft_cap": 5.0} if by == "soft cap" else {}
    guarded, free = TiedModel(padding_idx=4, **options), TiedModel(**options)
    free.load_state_dict(guarded.state_dict())
    hidden, targets = torch.randn(6, D), torch.tensor([1, 2, 3, 5, 6, 7])
    for model in (guarded, free):
        if by == "logits":
            model.head(hidden).sin().sum().backward()
        else:
            model.head.loss(hidden, targets, reduction="none" if by == "none" else "mean").sum().backward()
    others = torch.arange(V) != 4
    torch.testing.assert_close(guarded.table.weight.grad[others], free.table.weight.grad[others], rtol=0, atol=0)
    assert bool((guarded.table.weight.grad[4] == 0).all())
    assert bool((free.table.weight.grad[4] != 0).any())


def test_no_graph_node_is_added_without_a_gradient() -> None:
    model = TiedModel(padding_idx=4)
    with torch.no_grad():
        assert model.head._weight_without_padding_gradient() is model.table.weight
    assert TiedModel().head._weight_without_padding_gradient().is_leaf


# The loss


TOLERANCE = {  # relative and absolute, for values and gradients
    torch.float64: (1e-12, 1e-12),
    torch.float32: (1e-5, 1e-6),
    torch.bfloat16: (2e-2, 2e-2),
}


def plain_loss(
    head: Head, hidden: Tensor, targets: Tensor, ignored: list[int], reduction: str, z_loss: float = 0.0
) -> Tensor:
    """The reference: cross-entropy of all logits at once."""
    targets = targets.flatten().clone()
    for value in ignored:
        targets[targets == value] = -100
    logits = head(hidden).flatten(0, -2)
    losses = functional.cross_entropy(logits, targets, ignore_index=-100, reduction="none")
    losses = losses + z_loss * logits.logsumexp(-1) ** 2 * (targets != -100)
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / (targets != -100).sum()}[reduction]


HEADS: dict[str, dict[str, object]] = {
    "plain": {},
    "bias": {"bias": True},
    "scales": {"logit_scale": 0.7, "logit_divisor": 3.0, "hidden_scale": 1.3, "bias": True},
    "soft cap": {"soft_cap": 4.0},
    "everything": {"soft_cap": 4.0, "logit_scale": 0.7, "logit_divisor": 3.0, "hidden_scale": 1.3, "bias": True},
}


REDUCTIONS = ("mean", "sum", "none")
# Every kind of head in every dtype; the other options take turns, so each of their combinations occurs.
LOSS_CASES = [
    (*case, *options)
    for case, options in zip(
        2 * list(product(HEADS, TOLERANCE)), cycle(product((0.0, 0.1), REDUCTIONS, (1, 5, 64))), strict=False
    )
]


@pytest.mark.parametrize(("kind", "dtype", "z_loss", "reduction", "rows"), LOSS_CASES)
def test_loss_and_gradients_match_the_plain_loss(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype, z_loss: float, reduction: str, rows: int
) -> None:
    monkeypatch.setattr(chunked_loss, "chunk_rows", lambda tokens, *_: min(tokens, rows))
    torch.manual_seed(0)
    ours = Head(D, V, init_std=0.5, dtype=dtype, **HEADS[kind])
    if ours.bias is not None:
        nn.init.normal_(ours.bias)
    theirs = copy.deepcopy(ours)
    hidden = torch.randn(3, 6, D, dtype=dtype, requires_grad=True)
    their_hidden = hidden.detach().clone().requires_grad_()
    targets = torch.randint(0, V, (3, 6))
    targets[0, 2] = targets[2, 5] = -100
    mine = ours.loss(hidden, targets, reduction=reduction, z_loss=z_loss)
    reference = plain_loss(theirs, their_hidden, targets, [-100], reduction, z_loss)
    pull = torch.randn_like(reference) if reduction == "none" else torch.ones_like(reference)
    mine.flatten().backward(pull.view(-1)) if reduction == "none" else mine.backward()
    reference.backward(pull)
    rtol, atol = TOLERANCE[dtype]
    assert mine.shape == (targets.shape if reduction == "none" else ())
    torch.testing.assert_close(mine.flatten(), reference.flatten(), rtol=rtol, atol=atol)
    pairs = [(hidden.grad, their_hidden.grad), (ours.weight.grad, theirs.weight.grad)]
    if ours.bias is not None:
        pairs.append((ours.bias.grad, theirs.bias.grad))
    for mine_grad, their_grad in pairs:
        scale = float(their_grad.abs().max())
        torch.testing.assert_close(mine_grad, their_grad, rtol=rtol, atol=atol * max(1.0, scale))
    assert bool((hidden.grad[0, 2] == 0).all())
    wrong = plain_loss(theirs, 2 * their_hidden, targets, [-100], reduction, z_loss)  # control
    assert not torch.allclose(mine.flatten(), wrong.flatten(), rtol=rtol, atol=atol)
    assert mine.dtype == dtype


def test_bfloat16_loss_is_as_accurate_as_the_plain_loss() -> None:
    torch.manual_seed(0)
    head = Head(64, 500, init_std=0.3).bfloat16()
    hidden, targets = torch.randn(200, 64).bfloat16(), torch.randint(0, 500, (200,))
    truth = functional.cross_entropy(hidden.double() @ head.weight.double().t(), targets)
    ours, theirs = head.loss(hidden, targets), functional.cross_entropy(head(hidden), targets)
    assert (ours - truth).abs() <= (theirs - truth).abs() + truth * 2**-8


@pytest.mark.parametrize("soft_cap", [None, 4.0])
def test_padding_targets_are_ignored(soft_cap: float | None) -> None:
    model = TiedModel(padding_idx=4, soft_cap=soft_cap)
    hidden, targets = torch.randn(2, 5, D), torch.tensor([[1, 2, 4, 4, 9], [3, -7, 4, 5, 6]])
    ours = model.head.loss(hidden, targets, ignore_index=-7)
    theirs = plain_loss(model.head, hidden, targets, [4, -7], "mean")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ours, plain_loss(model.head, hidden, targets, [-7], "mean"))  # control
    for z_loss in (0.0, 0.1):
        each = model.head.loss(hidden, targets, ignore_index=-7, reduction="none", z_loss=z_loss)
        assert ((each == 0) == ((targets == 4) | (targets == -7))).all()


def test_nan_at_an_ignored_target_does_not_matter() -> None:
    head = Head(D, V)
    hidden = torch.randn(4, D)
    hidden[2] = float("nan")
    hidden.requires_grad_()
    loss = head.loss(hidden, torch.tensor([1, 2, -100, 3]))
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(head.weight.grad.isfinite().all())
    assert bool((hidden.grad[2] == 0).all())


@pytest.mark.parametrize("soft_cap", [None, 4.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (0,)])
def test_loss_without_targets_is_zero_with_zero_gradients(
    soft_cap: float | None, reduction: str, shape: tuple[int, ...]
) -> None:
    head = Head(D, V, soft_cap=soft_cap, bias=True)
    hidden = torch.randn(*shape, D, requires_grad=True)
    loss = head.loss(hidden, torch.full(shape, -100), reduction=reduction)
    assert loss.shape == (shape if reduction == "none" else ())
    assert bool((loss == 0).all())
    loss.sum().backward()
    for tensor in (hidden, head.weight, head.bias):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))


def test_a_single_hidden_state_has_a_loss() -> None:
    head = Head(D, V)
    hidden = torch.randn(D)
    torch.testing.assert_close(
        head.loss(hidden, torch.tensor(3)),
        functional.cross_entropy(head(hidden), torch.tensor(3)),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_targets_of_small_integer_dtypes(dtype: torch.dtype) -> None:
    head, hidden, targets = Head(D, V), torch.randn(4, D), torch.tensor([1, -100, 2, 3])
    torch.testing.assert_close(head.loss(hidden, targets.to(dtype)), head.loss(hidden, targets), rtol=0, atol=0)


def test_z_loss_is_the_square_of_logsumexp() -> None:
    torch.manual_seed(0)
    head, hidden, targets = Head(D, V, init_std=0.5), torch.randn(9, D), torch.randint(0, V, (9,))
    added = head.loss(hidden, targets, z_loss=0.5) - head.loss(hidden, targets)
    expected = 0.5 * (hidden.double() @ head.weight.double().T).logsumexp(-1).square().mean()
    torch.testing.assert_close(added.double(), expected, rtol=1e-5, atol=1e-6)
    # What it is for: a step along its gradient shrinks logits that drift together, where cross-entropy sees nothing.
    biased = Head(D, V, init_std=0.0, bias=True)
    nn.init.constant_(biased.bias, 3.0)
    biased.loss(hidden, targets).backward()
    assert abs(float(biased.bias.grad.sum())) < 1e-6
    biased.loss(hidden, targets, z_loss=0.1).backward()
    assert float(biased.bias.grad.sum()) > 0.1


def test_decoder_passes_z_loss_on() -> None:
    config = DecoderConfig(architecture="llama", vocab_size=V, n_embd=D, n_layer=1, n_head=2, block_size=8)
    decoder, ids = Decoder(config, seed=0), torch.arange(8)[None]
    ours, theirs = decoder.loss(ids, ids, z_loss=0.3), decoder.head.loss(decoder(ids), ids, z_loss=0.3)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert not torch.equal(ours, decoder.loss(ids, ids))  # control


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss_without_linear_cross_entropy(monkeypatch: pytest.MonkeyPatch, reduction: str) -> None:
    """Older versions of torch lack the function: our own chunks give the same loss and gradients."""
    monkeypatch.delattr(functional, "linear_cross_entropy", raising=False)
    monkeypatch.setattr(chunked_loss, "chunk_rows", lambda tokens, *_: min(tokens, 5))
    ours = Head(D, V, init_std=0.5)
    theirs = copy.deepcopy(ours)
    hidden, targets = torch.randn(3, 6, D), torch.randint(0, V, (3, 6))
    targets[1, 1] = -100
    mine = ours.loss(hidden, targets, reduction=reduction)
    reference = plain_loss(theirs, hidden, targets, [-100], reduction)
    torch.testing.assert_close(mine.flatten(), reference.flatten())
    mine.sum().backward()
    reference.sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


needs_linear_cross_entropy = pytest.mark.skipif(
    not hasattr(functional, "linear_cross_entropy"), reason="compares with a function that this torch does not have"
)


@needs_linear_cross_entropy
def test_without_z_loss_the_loss_is_bit_equal() -> None:
    head, hidden, targets = Head(D, V), torch.randn(9, D), torch.randint(0, V, (9,))
    options = nn.LinearCrossEntropyOptions(chunking_method=None, batch_chunk_size=9)
    theirs = functional.linear_cross_entropy(hidden, head.weight, targets, options=options)
    assert torch.equal(head.loss(hidden, targets, z_loss=0.0), theirs)
    assert not torch.equal(head.loss(hidden, targets, z_loss=1e-4), theirs)  # control


@pytest.mark.parametrize(
    ("products", "kind", "reduction", "z_loss"),
    [
        (*case, *options)
        for case, options in zip(
            product(("float32", "bfloat16"), HEADS), cycle(product(REDUCTIONS, (0.0, 0.1))), strict=False
        )
    ],
)
def test_loss_under_autocast_is_float32_and_exact(
    monkeypatch: pytest.MonkeyPatch, products: str, kind: str, reduction: str, z_loss: float
) -> None:
    """Products are float32 on a CPU and half precision elsewhere; everything after them is float32. Both are tested."""
    if products == "bfloat16":
        monkeypatch.setattr(head_module, "FULL_PRECISION_DEVICES", frozenset())
    monkeypatch.setattr(chunked_loss, "chunk_rows", lambda tokens, *_: min(tokens, 7))
    torch.manual_seed(0)
    head = Head(D, V, init_std=0.5, **HEADS[kind])
    hidden, targets = torch.randn(33, D, requires_grad=True), torch.randint(0, V, (33,))
    reference = plain_loss(head, hidden, targets, [], reduction, z_loss)
    inputs = [hidden, *head.parameters()]
    their_grads = torch.autograd.grad(reference.sum(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        mine = head.loss(hidden, targets, reduction=reduction, z_loss=z_loss)
    grads = torch.autograd.grad(mine.sum(), inputs)
    assert mine.dtype == torch.float32
    tolerance = 1e-5 if products == "float32" else 1.5e-2
    torch.testing.assert_close(mine, reference.view(mine.shape), rtol=tolerance, atol=tolerance)
    for grad, their_grad in zip(grads, their_grads, strict=True):
        assert grad.dtype == torch.float32
        torch.testing.assert_close(grad, their_grad, rtol=0, atol=tolerance * float(their_grad.abs().max()))
    assert not torch.equal(mine, mine.bfloat16().float())  # control: torch's function gives what bfloat16 can hold


@needs_linear_cross_entropy
def test_half_precision_loss_is_rounded_only_before_the_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half-precision products, the loss is the float32 cross-entropy of the half-precision logits."""
    monkeypatch.setattr(head_module, "FULL_PRECISION_DEVICES", frozenset())
    torch.manual_seed(0)
    head, hidden, targets = Head(64, 500, init_std=0.3), torch.randn(999, 64), torch.randint(0, 500, (999,))
    with torch.autocast("cpu", torch.bfloat16):
        ours, logits = head.loss(hidden, targets), head(hidden)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(ours, functional.cross_entropy(logits.float(), targets), rtol=1e-6, atol=0)
    options = nn.LinearCrossEntropyOptions(chunking_method=None, batch_chunk_size=256)
    torchs = functional.linear_cross_entropy(hidden.bfloat16(), head.weight.bfloat16(), targets, options=options)
    assert float((torchs - ours).detach().abs()) > 1e-3  # control: what it was before


@pytest.mark.parametrize("products", ["float32", "bfloat16"])
def test_padding_row_gets_no_gradient_under_autocast(monkeypatch: pytest.MonkeyPatch, products: str) -> None:
    if products == "bfloat16":
        monkeypatch.setattr(head_module, "FULL_PRECISION_DEVICES", frozenset())
    model = TiedModel(padding_idx=4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.head.loss(torch.randn(5, D), torch.tensor([1, 4, 2, 3, 9]), z_loss=0.1)
        nothing = model.head.loss(torch.randn(2, D), torch.tensor([4, -100]), z_loss=0.1)
    assert loss.dtype == nothing.dtype == torch.float32
    assert bool(nothing == 0)
    (loss + nothing).backward()
    assert bool((model.table.weight.grad[4] == 0).all())
    assert bool((model.table.weight.grad[torch.arange(V) != 4] != 0).all())


def test_no_graph_without_gradients() -> None:
    with torch.no_grad():
        assert not Head(D, V).loss(torch.randn(3, D), torch.tensor([1, 2, 3])).requires_grad


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("z_loss", [0.0, 0.1])
@pytest.mark.parametrize("soft_cap", [None, 4.0])
def test_full_logits_are_never_materialized(
    monkeypatch: pytest.MonkeyPatch, soft_cap: float | None, z_loss: float, autocast: bool
) -> None:
    """Record the largest tensor that any torch operation returns."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return result

    monkeypatch.setattr(chunked_loss, "MIN_CHUNK_ROWS", 8)
    head, hidden, targets = Head(D, 1000, soft_cap=soft_cap), torch.randn(256, D), torch.randint(0, 1000, (256,))
    with Largest() as ours, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        head.loss(hidden, targets, z_loss=z_loss).backward()
    with Largest() as theirs:
        functional.cross_entropy(head(hidden), targets).backward()
    assert ours.elements <= 8 * 1000
    assert theirs.elements == 256 * 1000  # control


def test_chunk_rule() -> None:
    assert chunked_loss.chunk_rows(10, 512) == 10
    assert chunked_loss.chunk_rows(10**6, 8) == chunked_loss.MIN_CHUNK_ROWS
    assert chunked_loss.chunk_rows(10**6, 512) == 512
    assert chunked_loss.chunk_rows(10**6, 7168) == chunked_loss.MAX_CHUNK_ROWS


@pytest.mark.parametrize("target", [V, -1, 2**40])
def test_target_outside_is_reported(target: int) -> None:
    with pytest.raises(IdRangeError, match=rf"target {target} at \[1, 2\] is outside 0\.\.{V - 1}.*\(-100\)"):
        Head(D, V).loss(torch.randn(2, 3, D), torch.tensor([[0, 1, 2], [-100, 4, target]]))


@pytest.mark.usefixtures("without_type_checks")
def test_invalid_arguments_of_the_loss_are_an_error() -> None:
    head = Head(D, V)
    with pytest.raises(ShapeError, match=r"targets have shape \(2, 4\), .* one target per hidden state, \(2, 3\)"):
        head.loss(torch.randn(2, 3, D), torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ShapeError, match="width 8"):
        head.loss(torch.randn(2, 3, D + 1), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(DtypeError, match="targets"):
        head.loss(torch.randn(2, 3, D), torch.zeros(2, 3))
    with pytest.raises(DtypeError, match=r"bfloat16.*float32"):
        head.loss(torch.randn(2, D).bfloat16(), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match="reduction is 'max'; it must be one of"):
        head.loss(torch.randn(2, D), torch.zeros(2, dtype=torch.int64), reduction="max")
    for z_loss in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"z_loss is {z_loss}; it must be finite and not negative"):
            head.loss(torch.randn(2, D), torch.zeros(2, dtype=torch.int64), z_loss=z_loss)
    with pytest.raises(DtypeError):
        head.loss([1.0], torch.zeros(1, dtype=torch.int64))


def test_invalid_arguments_of_the_head_are_an_error() -> None:
    for options in (
        {"logit_scale": 0.0},
        {"logit_scale": float("nan")},
        {"logit_divisor": 0.0},
        {"hidden_scale": float("inf")},
        {"soft_cap": 0.0},
        {"soft_cap": -1.0},
        {"init_std": -1.0},
    ):
        with pytest.raises(InputError, match=next(iter(options))):
            Head(D, V, **options)
    for sizes in ((0, V), (D, 0)):
        with pytest.raises(InputError, match="at least 1"):
            Head(*sizes)
    with pytest.raises(ShapeError, match="width 8"):
        Head(D, V)(torch.randn(2, 3, D + 1))


def test_repr_shows_non_default_settings() -> None:
    assert "8, 23, bias=False, tied=True, soft_cap=3.0" in repr(TiedModel(soft_cap=3.0).head)


COMPILED = """
import copy, torch
from torch import nn
from inlayer.head import Head
from inlayer.tables import Table

class CompiledModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = Table(23, 8, padding_idx=4), Head(8, 23, soft_cap=5.0)
        self.head.tie(self.table)
    def forward(self, ids):
        return self.head(self.table(ids))

ids = torch.tensor([[1, 2, 4], [3, 4, 5]])
eager = CompiledModel()
inner = copy.deepcopy(eager)
compiled = torch.compile(inner, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(ids), eager(ids))
for model in (compiled, eager):
    model(ids).pow(2).sum().backward()
assert inner.head.weight is inner.table.weight
torch.testing.assert_close(inner.table.weight.grad, eager.table.weight.grad)
assert bool((inner.table.weight.grad[4] == 0).all())
with torch.no_grad():
    inner.table.weight.mul_(2)
torch.testing.assert_close(compiled(ids), inner(ids))

for soft_cap, z_loss, reduction in ((None, 0.0, "mean"), (5.0, 0.1, "mean"), (None, 0.0, "sum"), (None, 0.1, "none")):
    head = Head(8, 23, soft_cap=soft_cap).tie(Table(23, 8, padding_idx=4))
    options = {"z_loss": z_loss, "reduction": reduction}
    for targets in (torch.tensor([1, 4, 2]), torch.tensor([1, -100, 2]), torch.tensor([4, 4, -100])):
        hidden = torch.randn(3, 8)
        step = torch.compile(lambda h, t: head.loss(h, t, **options), backend="aot_eager", fullgraph=True)
        grads = []
        for loss in (step(hidden, targets), head.loss(hidden, targets, **options)):
            head.table.weight.grad = None
            loss.sum().backward()
            grads.append((loss, head.table.weight.grad))
        torch.testing.assert_close(*grads)
        assert bool((grads[0][1][4] == 0).all())
        assert bool((grads[0][1][1] != 0).all()) == (1 in targets)
"""


@pytest.mark.slow
def test_compiled_head_matches_eager_mode() -> None:
    """In its own process, because pytest's type checks cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], check=True, capture_output=True, text=True)
    assert done.stderr == ""  # no warnings about graph breaks


class Operations(TorchDispatchMode):
    """Records the names of all operations; `_local_scalar_dense` reads a value, `nonzero` a number of values."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("soft_cap", [None, 3.0])
def test_loss_off_the_cpu_reads_no_value(
    reduction: str, soft_cap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a value of a GPU would wait for it at every step. Tensors here are treated as if they had no values."""
    head = Head(D, V, soft_cap=soft_cap, padding_idx=3)
    hidden, targets = torch.randn(2, 5, D), torch.tensor([[1, 2, 3, 4, -100]] * 2)
    with Operations() as usual:
        expected = head.loss(hidden, targets, reduction=reduction)
    assert "_local_scalar_dense" in usual.names  # control
    monkeypatch.setattr(head_module, "is_meta_or_traced", lambda _: True)
    with Operations() as operations:
        loss = head.loss(hidden, targets, reduction=reduction)
    assert not operations.names & {"_local_scalar_dense", "nonzero", "item"}
    torch.testing.assert_close(loss, expected)


def test_tied_head_loads_a_copy_of_the_table() -> None:
    """Plain tied models save head.weight next to the table."""
    model, other = TiedModel(), TiedModel()
    saved = dict(other.state_dict()) | {"head.weight": other.table.weight.detach().clone()}
    model.load_state_dict(saved)
    assert torch.equal(model.table.weight, other.table.weight)
    assert is_tied(model)
    model.head.load_state_dict({"weight": model.table.weight.detach()})
    saved["table.weight"][2, 2] = saved["head.weight"][2, 2] = torch.nan
    model.load_state_dict(saved)
    saved["head.weight"][1, 1] += 1
    with pytest.raises(RuntimeError, match=r"differs from every table; this head is tied: call head\.untie\(\)"):
        model.load_state_dict(saved)
    model.head.untie()
    model.load_state_dict(saved)
    torch.testing.assert_close(model.head.weight, saved["head.weight"], rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("without_type_checks")
def test_float_targets_are_an_error_that_does_not_suggest_embeddings() -> None:
    head = Head(4, 8)
    with pytest.raises(DtypeError, match=r"torch\.float32.*targets are token ids; for soft labels") as error:
        head.loss(torch.randn(3, 4), torch.tensor([1.0, 2.0, 3.0]))
    assert "inputs_embeds" not in str(error.value)
    with pytest.raises(DtypeError, match="is it a mask"):
        head.loss(torch.randn(3, 4), torch.tensor([True, False, True]))
