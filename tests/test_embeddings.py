"""Embeddings: inputs, outputs, errors, and its table."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from inlayer import Embeddings, Head, Table, position_ids_from_mask
from inlayer.errors import ConfigError, DtypeError, IdRangeError, InputError, PositionRangeError, ShapeError
from inlayer.positions import LearnedPositions, PositionIdRule, RotaryPositions, SinusoidalPositions

V, D, L = 50, 8, 16
IDS = torch.tensor([[3, 1, 4], [1, 5, 9]])

EVERY_LAYER: dict[str, dict[str, Any]] = {
    "plain": {},
    "learned": {"block_size": L},
    "sinusoidal": {"positions": "sinusoidal", "block_size": 4},
    "rotary": {"positions": "rotary"},
    "padded": {"block_size": L, "padding_idx": 1},
    "scaled": {"block_size": L, "scale": 3.3},
    "multiplied": {"block_size": L, "input_multiplier": 3.3},
    "normed": {"block_size": L, "norm_eps": 1e-5},
    "typed": {"block_size": L, "n_token_types": 2, "norm_eps": 1e-12},
    "projected rows": {"block_size": L, "row_width": 4, "projection_at": "rows"},
    "projected sum": {"block_size": L, "row_width": 4, "projection_at": "sum", "norm_eps": 1e-12, "n_token_types": 2},
    "numbered by ids": {"block_size": L, "position_id_rule": PositionIdRule(by="ids", start=2, padding_idx=1)},
    "numbered by mask": {"block_size": L, "position_id_rule": PositionIdRule(by="mask"), "position_offset": 2},
}
each_layer = pytest.mark.parametrize("options", EVERY_LAYER.values(), ids=EVERY_LAYER)


def make(**options: Any) -> Embeddings:
    return Embeddings(V, D, **{"seed": 0, "init_std": 1.0} | options)


class Tiny(nn.Module):
    """An input layer, a body, and a head tied to the layer."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embeddings = make(**{"block_size": L, "padding_idx": 0, "init_std": 0.02} | options)
        self.body = nn.Linear(D, D)
        self.head = Head(D, V)
        self.embeddings.tie(self.head)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.body(self.embeddings(ids)))


def is_tied(model: Tiny) -> bool:
    table = model.embeddings.token_embedding.weight
    return model.head.weight is table and model.head.tied


# ---- defaults


def test_block_size_adds_learned_positions() -> None:
    layer = make(block_size=L)
    assert isinstance(layer.position_embedding, LearnedPositions)
    theirs = layer.token_embedding.weight[IDS] + layer.position_embedding.weight[:3]
    assert torch.equal(layer(IDS), theirs)


def test_without_block_size_there_are_no_positions() -> None:
    layer = make()
    assert layer.position_embedding is None
    assert torch.equal(layer(IDS), layer.token_embedding.weight[IDS])


def test_positions_by_name_and_by_module() -> None:
    assert make(positions="none").position_embedding is None
    assert isinstance(make(positions="sinusoidal").position_embedding, SinusoidalPositions)
    rotary = make(positions="rotary", head_dim=4, theta=5e5).position_embedding
    assert isinstance(rotary, RotaryPositions)
    assert (rotary.head_dim, rotary.rope_parameters) == (4, RotaryPositions(4).rope_parameters.__class__(theta=5e5))
    own = LearnedPositions(4, D)
    assert make(positions=own).position_embedding is own


# ---- inputs


def test_exactly_one_input_is_required() -> None:
    layer = make()
    with pytest.raises(InputError, match="neither input_ids nor inputs_embeds was given; pass exactly one"):
        layer()
    with pytest.raises(InputError, match="both input_ids and inputs_embeds were given; pass exactly one"):
        layer(IDS, torch.zeros(2, 3, D))
    assert issubclass(InputError, ValueError)


@each_layer
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_empty_inputs(options: dict[str, Any], shape: tuple[int, int]) -> None:
    layer = make(**options)
    assert layer(torch.zeros(shape, dtype=torch.int64)).shape == (*shape, D)
    with torch.no_grad():
        assert layer(torch.zeros(shape, dtype=torch.int64)).shape == (*shape, D)
    width = layer.token_embedding.embedding_dim
    assert layer(inputs_embeds=torch.zeros(*shape, width)).shape == (*shape, D)


@each_layer
def test_single_text_has_no_batch_axis(options: dict[str, Any]) -> None:
    layer = make(**options)
    assert torch.equal(layer(IDS[0]), layer(IDS[:1])[0])
    vectors = torch.randn(3, layer.token_embedding.embedding_dim)
    assert torch.equal(layer(inputs_embeds=vectors), layer(inputs_embeds=vectors[None])[0])
    assert layer(IDS[0, :0]).shape == (0, D)


@pytest.mark.parametrize("ids", [torch.tensor(3), torch.zeros(1, 2, 3, dtype=torch.int64)])
def test_ids_of_the_wrong_rank(ids: Tensor) -> None:
    with pytest.raises(ShapeError, match=r"input_ids has shape .*; expected \(batch, tokens\), or \(tokens,\)"):
        make()(ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_ids_of_the_wrong_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(DtypeError, match=f"input_ids has dtype {dtype}"):
        make()(torch.zeros(1, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@each_layer
def test_any_integer_ids(dtype: torch.dtype, options: dict[str, Any]) -> None:
    layer = make(**options)
    assert torch.equal(layer(IDS.to(dtype)), layer(IDS))


@pytest.mark.parametrize("bad", [V, -1, 10**9])
def test_ids_outside_are_reported_with_place_and_range(bad: int) -> None:
    ids = IDS.clone()
    ids[1, 2] = bad
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(IdRangeError, match=rf"id {bad} at \[1, 2\] .*0\.\.49"):
            make()(ids)


@pytest.mark.parametrize("shape", [(D,), (1, 2, 3, D), (2, 3, D + 1), (2, 3, 1)])
def test_vectors_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="inputs_embeds has shape"):
        make()(inputs_embeds=torch.zeros(shape))


def test_vectors_of_the_wrong_dtype() -> None:
    with pytest.raises(DtypeError, match=r"inputs_embeds has dtype torch\.int64"):
        make()(inputs_embeds=torch.zeros(2, 3, D, dtype=torch.int64))


@pytest.mark.parametrize("projection_at", ["rows", "sum"])
def test_projected_vectors_have_the_dtype_of_the_projection(projection_at: str) -> None:
    layer, vectors = make(row_width=3, projection_at=projection_at), torch.zeros(2, 3, 3, dtype=torch.bfloat16)
    with pytest.raises(DtypeError, match=r"torch\.bfloat16, but their projection has torch\.float32; convert them"):
        layer(inputs_embeds=vectors)
    with torch.autocast("cpu"):
        assert layer(inputs_embeds=vectors).shape == (2, 3, D)


# ---- positions


def test_position_ids_shapes() -> None:
    layer, own = make(block_size=L), torch.tensor([5, 0, 9])
    theirs = layer.token_embedding.weight[IDS] + layer.position_embedding.weight[own]
    for position_ids in (own, own[None], own.expand(2, 3)):
        assert torch.equal(layer(IDS, position_ids=position_ids), theirs)
    assert torch.equal(layer(IDS[0], position_ids=own), theirs[0])
    assert not torch.equal(layer(IDS), theirs)


@pytest.mark.parametrize("shape", [(), (2,), (1,), (3, 3), (2, 1), (2, 3, 1)])
@pytest.mark.parametrize("name", ["position_ids", "token_type_ids"])
def test_position_and_type_ids_must_match_the_input(name: str, shape: tuple[int, ...]) -> None:
    """A shape that merely broadcasts is an error: (3, 3) types for one text would give a batch of three."""
    layer = make(block_size=L, n_token_types=2)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(ShapeError, match=rf"{name} has shape .*expected \(2, 3\)"):
            layer(IDS, **{name: torch.zeros(shape, dtype=torch.int64)})


def test_positions_beyond_block_size_are_an_error() -> None:
    layer = make(block_size=L)
    assert layer(torch.zeros(1, L, dtype=torch.int64)).shape == (1, L, D)
    with pytest.raises(PositionRangeError, match=r"position 16 is outside 0\.\.15, because block_size is 16"):
        layer(torch.zeros(1, L + 1, dtype=torch.int64))
    with pytest.raises(PositionRangeError, match="position 16"):
        layer(inputs_embeds=torch.zeros(1, L + 1, D))
    with pytest.raises(PositionRangeError, match="position -1"):
        layer(IDS, position_ids=torch.tensor([0, -1, 2]))
    with pytest.raises(DtypeError, match="position_ids has dtype"):
        layer(IDS, position_ids=torch.tensor([0.0, 1.0, 2.0]))


def test_sinusoidal_and_rotary_have_no_upper_limit() -> None:
    long = torch.zeros(1, 10 * L, dtype=torch.int64)
    assert make(block_size=L, positions="sinusoidal")(long).shape == (1, 10 * L, D)
    layer = make(positions="rotary")
    assert layer(long).shape == (1, 10 * L, D)
    assert layer.rotary(torch.tensor([[10**6]]))[0].isfinite().all()


# ---- token types


def test_token_types_are_added_and_checked() -> None:
    layer, types = make(n_token_types=2), torch.tensor([0, 1, 1])
    rows, type_rows = layer.token_embedding.weight[IDS], layer.token_type_embedding.weight
    assert torch.equal(layer(IDS), rows + type_rows[0])
    assert torch.equal(layer(IDS, token_type_ids=types), rows + type_rows[types])
    with pytest.raises(IdRangeError, match=r"token type 2 at \[1\] \(and 1 more\) is outside 0\.\.1$"):
        layer(IDS, token_type_ids=types + 1)
    with pytest.raises(InputError, match="no token types"):
        make()(IDS, token_type_ids=types)


# ---- scale, dropout, init


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scale_is_rounded_and_input_multiplier_is_not(dtype: torch.dtype) -> None:
    """Gemma rounds sqrt(width) to the table's dtype; Granite's multiplier is not rounded."""
    factor = 3072**0.5
    layer = Embeddings(V, 512, seed=0, scale=factor, dtype=dtype)
    other = Embeddings(V, 512, seed=0, input_multiplier=factor, dtype=dtype)
    rows = layer.token_embedding.weight[IDS]
    rounded, unrounded = rows * torch.tensor(factor, dtype=dtype), rows * factor
    assert torch.equal(layer(IDS), rounded)
    assert torch.equal(other(IDS), unrounded)
    assert torch.equal(rounded, unrounded) == (dtype == torch.float32)


def test_inputs_embeds_are_multiplied_but_not_scaled() -> None:
    vectors = torch.randn(2, 3, D)
    assert torch.equal(make(scale=3.0)(inputs_embeds=vectors), vectors)
    assert torch.equal(make(input_multiplier=3.0)(inputs_embeds=vectors), vectors * 3.0)


def test_dropout_only_in_training() -> None:
    layer = make(dropout=0.5)
    torch.manual_seed(0)
    dropped = layer(IDS)
    assert (dropped == 0).any()
    kept = dropped != 0
    assert torch.equal(dropped[kept], 2 * layer.token_embedding.weight[IDS][kept])
    assert torch.equal(layer.eval()(IDS), layer.token_embedding.weight[IDS])


def test_seed() -> None:
    options = {"block_size": V, "n_token_types": V}
    first, second, other = (make(**options, seed=seed) for seed in (7, 7, 8))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
        assert not torch.equal(weight, other.state_dict()[name])
    tables = list(first.state_dict().values())
    assert not any(torch.equal(a, b) for i, a in enumerate(tables) for b in tables[:i])


def test_seed_does_not_change_the_global_random_state() -> None:
    torch.manual_seed(0)
    make(block_size=L, n_token_types=2)
    ours = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.rand(1))


@pytest.mark.parametrize(
    ("options", "std"), [({}, 0.02), ({"init_std": 0.5}, 0.5), ({"init": "embedding"}, 1.0), ({"init": "scaled"}, 0.1)]
)
def test_init_rules(options: dict[str, Any], std: float) -> None:
    weight = Embeddings(2_000, 100, seed=0, padding_idx=5, **options).token_embedding.weight.detach()
    assert abs(float(weight.std()) / std - 1) < 0.02
    assert not weight[5].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "learned"}, "needs block_size"),
        ({"positions": "magic"}, "positions is 'magic'; it must be one of none, learned, sinusoidal, rotary"),
        ({"row_width": 4}, "pass both or neither"),
        ({"projection_at": "rows"}, "pass both or neither"),
        ({"row_width": 4, "projection_at": "start"}, "projection_at is one of rows, sum"),
        ({"dropout": 1.5}, "dropout is 1.5"),
        ({"norm": "rmsnorm"}, "norm is 'rmsnorm' at 'sum', but norm_eps is None"),
        ({"norm_at": "start"}, "norm is 'layernorm' at 'start', but norm_eps is None"),
        ({"norm_at": "end", "norm_eps": 1e-5}, "norm_at is 'end'; it must be one of sum, start, rows"),
        ({"norm": "batchnorm", "norm_eps": 1e-5}, "norm is 'batchnorm'; it must be one of layernorm, "),
        ({"positions": SinusoidalPositions(D + 1)}, "positions of width 9 cannot be added to rows of width 8"),
        ({"positions": "rotary", "head_dim": 3}, "in pairs"),
        ({"positions": "none", "block_size": 4}, "block_size 4 is for learned and sinusoidal positions"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_invalid_options_are_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_settings_of_a_config_that_do_not_fit_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="in pairs"):
        Embeddings.from_config({"model_type": "llama", "vocab_size": 9, "hidden_size": 6, "head_dim": 3})
    with pytest.raises(InputError, match="seed is -1") as caught:
        Embeddings.from_config({"model_type": "llama", "vocab_size": 9, "hidden_size": 64}, seed=-1)
    assert not isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("options", [{"padding_idx": V}, {"init_std": -1.0}])
def test_invalid_table_options_are_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        make(**options)


# ---- one result, however it is computed


@each_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_same_bits_without_gradients(options: dict[str, Any], dtype: torch.dtype) -> None:
    layer = make(**options).to(dtype)
    ids, mask = torch.randint(2, V, (4, 9)), torch.ones(4, 9)
    ids[0, 6:], mask[0, 6:] = 1, 0
    theirs = layer(ids, attention_mask=mask)
    assert theirs.requires_grad
    weights = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        assert torch.equal(layer(ids, attention_mask=mask), theirs)
    with torch.inference_mode():
        assert torch.equal(layer(ids, attention_mask=mask), theirs)
    assert all(torch.equal(weight, weights[name]) for name, weight in layer.state_dict().items())


@each_layer
def test_inputs_embeds_are_never_modified(options: dict[str, Any]) -> None:
    layer = make(**options)
    vectors = torch.randn(2, 3, layer.token_embedding.embedding_dim)
    kept = vectors.clone()
    with torch.no_grad():
        layer(inputs_embeds=vectors)
    assert torch.equal(vectors, kept)


def test_results_are_not_overwritten_by_later_calls() -> None:
    """Large results without gradients use memory that is no longer in use."""
    layer = Embeddings(V, 512, block_size=4096, seed=0)
    batches = [torch.full((1, 4096), token) for token in range(5)]
    with torch.no_grad():
        kept = [layer(ids) for ids in batches]
        views = [layer(ids)[0, 100:200] for ids in batches]
    for ids, ours, view in zip(batches, kept, views, strict=True):
        theirs = layer(ids)
        assert torch.equal(ours, theirs)
        assert torch.equal(view, theirs[0, 100:200])


def test_hook_on_the_table_can_keep_the_rows() -> None:
    """Sums must not change rows that a hook has kept or replaced."""
    layer, seen, foreign = make(block_size=L), [], torch.zeros(2, 3, D)
    handle = layer.token_embedding.register_forward_hook(lambda _module, _args, rows: seen.append(rows))
    with torch.no_grad():
        layer(IDS)
    assert torch.equal(seen[0], layer.token_embedding.weight[IDS])
    handle.remove()
    layer.token_embedding.register_forward_hook(lambda *_: foreign)
    with torch.no_grad():
        layer(IDS)
    assert not foreign.any()


def test_threads() -> None:
    layer = Embeddings(V, 256, block_size=4096, seed=0, norm_eps=1e-5)
    batches = [torch.randint(V, (2, 2048), generator=torch.Generator().manual_seed(i)) for i in range(12)]

    def run(ids: Tensor) -> Tensor:
        with torch.no_grad():
            return layer(ids)

    with ThreadPoolExecutor(4) as pool:
        ours = list(pool.map(run, batches))
    for ids, hidden in zip(batches, ours, strict=True):
        assert torch.equal(hidden, layer(ids))


COMPILED = """
import copy, torch
from torch import nn
from inlayer import Embeddings, Head
from inlayer.positions import DynamicNTKScaling, PositionIdRule, RopeParameters, RotaryPositions

ids, pads = torch.tensor([[3, 1, 4], [1, 5, 9]]), PositionIdRule(by="ids", start=2, padding_idx=1)
for options in (
    {"block_size": 16, "padding_idx": 1, "scale": 3.3},
    {"positions": "sinusoidal", "block_size": 2, "input_multiplier": 2.0},
    {"positions": "rotary"},
    {"block_size": 16, "row_width": 4, "projection_at": "rows",
     "position_id_rule": PositionIdRule(by="mask"), "position_offset": 2},
    {"block_size": 16, "row_width": 4, "projection_at": "sum", "norm_eps": 1e-12, "n_token_types": 2,
     "position_id_rule": pads},
):
    torch.compiler.reset()
    plain = Embeddings(50, 8, seed=0, **options)
    traced = copy.deepcopy(plain)
    compiled = torch.compile(traced, backend="aot_eager", fullgraph=True)
    theirs, ours = plain(ids), compiled(ids)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    theirs.square().sum().backward()
    ours.square().sum().backward()
    for a, b in zip(plain.parameters(), traced.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids), plain(ids), rtol=0, atol=1e-6)

rotary = RotaryPositions(8, RopeParameters(scaling=DynamicNTKScaling(factor=2.0, original_max_position_embeddings=4)))
for length in (3, 9):
    compiled = torch.compile(rotary, backend="aot_eager", fullgraph=True)(torch.arange(length))
    for ours, theirs in zip(compiled, rotary(torch.arange(length)), strict=True):
        torch.testing.assert_close(ours, theirs)

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings, self.head = Embeddings(50, 8, padding_idx=0, seed=0), Head(8, 50)
        self.embeddings.tie(self.head)
    def forward(self, ids):
        return self.head(self.embeddings(ids) + 1)

plain = Tied()
traced = copy.deepcopy(plain)
for model in (plain, torch.compile(traced, backend="aot_eager", fullgraph=True)):
    model(ids).square().sum().backward()
table = traced.embeddings.token_embedding.weight
assert traced.head.weight is table
torch.testing.assert_close(table.grad, plain.embeddings.token_embedding.weight.grad)
assert not table.grad[0].any() and table.grad[1:].all()
"""


@pytest.mark.slow
def test_a_compiled_layer_gives_the_same_values_and_gradients() -> None:
    """The same values and gradients in one whole graph, the tie and the padding row included.

    In its own process, because pytest's type checks cannot be compiled.
    """
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


@each_layer
def test_meta(options: dict[str, Any]) -> None:
    layer = make(**options, device="meta")
    assert all(parameter.is_meta for parameter in layer.parameters())
    hidden = layer(IDS.to("meta"))
    assert hidden.is_meta
    assert hidden.shape == (2, 3, D)


# ---- the table and its ties


def test_get_and_set_input_embeddings() -> None:
    model = Tiny()
    layer, table = model.embeddings, Table(V, D, seed=9)
    assert layer.get_input_embeddings() is layer.token_embedding
    layer.set_input_embeddings(table)
    assert layer.get_input_embeddings() is table
    assert is_tied(model)  # the head follows
    layer.set_input_embeddings(nn.Embedding(V + 1, D))
    assert layer.vocab_size == V + 1
    assert layer(torch.tensor([[V]])).shape == (1, 1, D)
    with pytest.raises(InputError, match="cannot be resized"):
        layer.resize(100)
    with pytest.raises(ShapeError, match="the new table's weight"):
        layer.set_input_embeddings(nn.Embedding(V, D + 1))


def test_resize_keeps_existing_rows_and_the_tie() -> None:
    model = Tiny()
    layer, old = model.embeddings, model.embeddings.token_embedding.weight.detach().clone()
    before = model(IDS)
    assert layer.resize(V + 7) == layer.vocab_size == model.head.vocab_size == V + 7
    assert is_tied(model)
    new = layer.token_embedding.weight.detach()
    assert torch.equal(new[:V], old)
    torch.testing.assert_close(new[V:], old[1:].mean(0).expand(7, D))  # without the padding row 0
    assert not new[0].any()
    torch.testing.assert_close(model(IDS)[..., :V], before)
    assert layer(torch.tensor([[V + 6]])).shape == (1, 1, D)


def test_resize_to_a_multiple_and_to_fewer_rows() -> None:
    layer = make()
    assert layer.resize(V + 1, pad_to_multiple_of=64) == 64
    with pytest.raises(InputError, match="would drop 14"):
        layer.resize(V)
    assert layer.resize(V, allow_shrink=True) == V
    assert torch.equal(layer.token_embedding.weight, make().token_embedding.weight)


def test_resize_also_resizes_the_bias_of_a_tied_head() -> None:
    """Existing entries are unchanged, bit for bit, and new ones are zero, even after a deep copy."""
    model = nn.ModuleDict({"layer": make(), "head": Head(D, V, bias=True)})
    nn.init.normal_(model["head"].bias)
    model["layer"].tie(model["head"])
    copied, before = copy.deepcopy(model), model["head"].bias.detach().clone()
    copied["layer"].resize(V + 2)
    assert torch.equal(copied["head"].bias, torch.cat((before, torch.zeros(2))))
    assert copied["head"](torch.randn(1, D)).shape == (1, V + 2)
    assert torch.equal(model["head"].bias, before)
    assert len([name for name, _ in model.named_parameters()]) == 2 + isinstance(
        model["layer"].position_embedding, nn.Embedding
    )


def test_table_resized_without_its_head_is_an_error() -> None:
    layer, head = make(), Head(D, V, bias=True)
    layer.tie(head)
    layer.token_embedding.resize(V + 2)
    with pytest.raises(ShapeError, match=f"{V + 2} rows but a bias of {V} entries"):
        head(torch.randn(1, D))


def test_tie_needs_equal_sizes() -> None:
    with pytest.raises(ShapeError, match="the sizes must match"):
        make().tie(Head(D, V + 1))


def saved_and_loaded(model: Tiny) -> Tiny:
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    copied = Tiny(seed=99)
    copied.load_state_dict(torch.load(buffer, weights_only=True))
    return copied


@pytest.mark.parametrize(
    "way",
    [
        lambda model: model.to(torch.float64),
        lambda model: model.to(torch.bfloat16),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        saved_and_loaded,
        lambda model: copy.deepcopy(model).to("meta").to_empty(device="cpu"),
    ],
    ids=["float64", "bfloat16", "deepcopy", "pickle", "state_dict", "meta"],
)
def test_tie_survives(way: Any) -> None:
    copied = way(Tiny())
    assert is_tied(copied)
    with torch.no_grad():  # what one end learns, the other reads
        copied.embeddings.token_embedding.weight.fill_(2.0)
    assert (copied.head.weight == 2.0).all()


def test_copies_are_independent_and_equal() -> None:
    model = Tiny()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved_and_loaded(model)):
        assert torch.equal(copied(IDS), model(IDS))
        assert copied.head.weight is not model.head.weight


def test_safetensors(tmp_path: Path) -> None:
    """The file contains the table once, without a warning about shared memory."""
    model, copied = Tiny(), Tiny(seed=99)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    weights = load_file(tmp_path / "model.safetensors")
    assert sorted(weights) == sorted(model.state_dict())
    assert not torch.equal(copied(IDS), model(IDS))
    copied.load_state_dict(weights)
    assert torch.equal(copied(IDS), model(IDS))
    assert is_tied(copied)


def test_tied_table_is_counted_once() -> None:
    model = Tiny()
    assert sum(parameter.numel() for parameter in model.parameters()) == V * D + L * D + D * D + D
    assert [name for name in model.state_dict() if "head" in name] == []


def test_both_ends_contribute_to_one_gradient() -> None:
    """The gradient is the sum of the gradients of an untied pair."""
    tied = Tiny(padding_idx=None)
    untied = copy.deepcopy(tied)
    untied.head.untie()
    assert not untied.head.tied
    for model in (tied, untied):
        model(IDS).square().sum().backward()
    theirs = untied.embeddings.token_embedding.weight.grad + untied.head.weight.grad
    torch.testing.assert_close(tied.embeddings.token_embedding.weight.grad, theirs)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Thousands of tiny steps, which are faster on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_padding_row_stays_zero_during_many_steps_of_adamw() -> None:
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    initial = model.embeddings.token_embedding.weight.detach().clone()
    ids = torch.randint(0, V, (300, 2, 6), generator=torch.Generator().manual_seed(0))
    ids[:, 0, 4:] = 0  # padding in every step
    for batch in ids:
        optimizer.zero_grad()
        hidden = model.body(model.embeddings(batch[:, :-1]))
        model.head.loss(hidden, batch[:, 1:]).backward()
        optimizer.step()
    table = model.embeddings.token_embedding.weight.detach()
    assert torch.equal(table[0], torch.zeros(D))
    assert (table[1:] != initial[1:]).any(1).all()


# ---- from a config

LLAMA = {
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": D,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "pad_token_id": 0,
}


def test_from_config_accepts_object_dict_and_path(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    forms = [LLAMA, path, str(path), tmp_path, str(tmp_path), LlamaConfig.from_dict(dict(LLAMA))]
    layers = [Embeddings.from_config(form, seed=0) for form in forms]
    for layer in layers:
        assert torch.equal(layer(IDS), layers[0](IDS))
        assert torch.equal(layer.rotary(IDS)[0], layers[0].rotary(IDS)[0])
        assert layer.padding_idx == 0
    assert Embeddings.from_config(LLAMA, dtype=torch.bfloat16, device="meta").dtype == torch.bfloat16


HEADS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "llama": {"model_type": "llama"},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "gemma2": {"model_type": "gemma2", "head_dim": 4, "final_logit_softcapping": 0.5},
    "cohere": {"model_type": "cohere", "logit_scale": 0.3},
    "granite": {"model_type": "granite", "logits_scaling": 7.0, "tie_word_embeddings": True},
    "phi": {"model_type": "phi"},
    "phi-tied": {"model_type": "phi", "tie_word_embeddings": True},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", HEADS)
def test_heads_bit_equal_to_transformers(name: str, dtype: torch.dtype) -> None:
    """The logits of transformers' model for its own last hidden states."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    sizes = LLAMA | {"hidden_size": 16, "num_key_value_heads": 2, "max_position_embeddings": 32}
    config = sizes | {"bos_token_id": 2, "eos_token_id": 3} | HEADS[name]
    theirs_config = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(theirs_config, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
        out = theirs(IDS, output_hidden_states=True)
    hidden, linear = out.hidden_states[-1], theirs.get_output_embeddings()

    layer = Embeddings.from_config(config, dtype=dtype)
    head = layer.head_from_config(config)
    assert head.tied == (linear.weight is theirs.get_input_embeddings().weight)
    assert (head.weight is layer.token_embedding.weight) == head.tied
    with torch.no_grad():
        layer.token_embedding.weight.copy_(theirs.get_input_embeddings().weight)
        if not head.tied:
            head.weight.copy_(linear.weight)
        assert (head.bias is None) == (linear.bias is None)
        if head.bias is not None:
            head.bias.copy_(linear.bias)
        ours = head(hidden)
    assert torch.equal(ours, out.logits)
    assert not torch.equal(head(2 * hidden), out.logits)


@pytest.mark.parametrize(
    ("model_type", "tied"), [("t5", True), ("t5", False), ("mt5", True), ("mt5", False), ("umt5", True)]
)
def test_t5_heads(model_type: str, tied: bool) -> None:
    """Hidden states are scaled by 1 / sqrt(width) if the file ties, but never in mT5."""
    from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM

    config = {
        "model_type": model_type, "vocab_size": V, "d_model": 16, "d_ff": 8, "d_kv": 4, "num_heads": 2,
        "num_layers": 1, "decoder_start_token_id": 0, "tie_word_embeddings": tied,
    }  # fmt: skip
    theirs = AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[model_type].from_dict(dict(config))).eval()
    with torch.no_grad():
        out = theirs(input_ids=IDS, decoder_input_ids=IDS, output_hidden_states=True)
    layer = Embeddings.from_config(config)
    head = layer.head_from_config(config)
    assert head.tied == tied
    with torch.no_grad():
        head.weight.copy_(theirs.lm_head.weight)
        assert torch.equal(head(out.decoder_hidden_states[-1]), out.logits)


def test_tied_head_with_bias_is_complete() -> None:
    """The bias of a tied head is zero on the layer's device, although its rows are never created."""
    config = LLAMA | HEADS["phi-tied"] | {"hidden_size": 16}
    layer = Embeddings.from_config(config)
    head = layer.head_from_config(config)
    assert head.bias is not None
    assert torch.equal(head.bias, torch.zeros(V))
    assert head(layer(IDS)).shape == (2, 3, V)


def test_mask_of_the_wrong_shape_is_an_error_in_every_layer() -> None:
    layer, ids = Embeddings(10, 8), torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ShapeError, match=r"attention_mask has shape \(2, 4\); expected \(2, 3\)"):
        layer(ids, attention_mask=torch.ones(2, 4))


def test_ids_are_checked_for_other_tables_too() -> None:
    layer = Embeddings(10, 8)
    layer.set_input_embeddings(nn.Embedding(30, 8))
    with pytest.raises(IdRangeError, match=r"id 30 at \[0, 1\] is outside 0..29"):
        layer(torch.tensor([[29, 30]]))


def test_unsigned_ids_are_accepted() -> None:
    layer = Embeddings(300, 8, 4, seed=0)
    ids = torch.tensor([[1, 299]])
    for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.int32, torch.int16):
        assert torch.equal(layer(ids.to(dtype)), layer(ids))
    with pytest.raises(IdRangeError, match=r"is outside 0\.\.299; was the text encoded with another"):
        layer(torch.from_numpy(np.array([[1, 2**63 + 5]], np.uint64)))


@torch.no_grad()
def test_rows_kept_by_a_hook_are_not_modified() -> None:
    """Neither a hook on every module nor a table that caches its results sees changed rows."""

    class Remembering(Table):
        def forward(self, ids: Any) -> Tensor:
            kept.append(super().forward(ids))
            return kept[-1]

    kept: list[Tensor] = []
    layer = Embeddings(2_000, 256, 8_192, seed=0)
    ids = torch.randint(0, 2_000, (1, 8_192))
    rows = layer.token_embedding.weight[ids]
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, _, out: kept.append(out) if isinstance(module, Table) else None
    )
    try:
        hidden = layer(ids)
    finally:
        hook.remove()
    layer.set_input_embeddings(Remembering.from_weight(layer.token_embedding.weight))
    assert torch.equal(layer(ids), hidden)
    assert len(kept) == 2
    assert all(torch.equal(one, rows) for one in kept)
    assert not torch.equal(hidden, rows)  # control: positions were added, elsewhere


@pytest.mark.slow
def test_jit_trace_gives_no_warnings() -> None:
    """In its own process: while tracing, sizes are tensors, which pytest's type checks reject."""
    program = """
import torch, inlayer
from inlayer import Embeddings, Head
from inlayer.positions import RopeParameters, RotaryPositions

class Call(torch.nn.Module):
    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call
    def forward(self, *inputs):
        return self.call(self.module, *inputs)

def check(module, call, inputs, *others):
    traced = torch.jit.trace(Call(module.eval(), call), inputs)
    expected = call(module, *inputs)
    torch.testing.assert_close(traced(*inputs), expected)
    for arguments in others:
        other = call(module, *arguments)
        torch.testing.assert_close(traced(*arguments), other)
        assert not torch.equal(expected, other)  # the comparison can fail

ids, mask = torch.tensor([[3, 1, 4], [1, 5, 9]]), torch.ones(2, 3, dtype=torch.int64)
for options in ({}, {"block_size": 8}, {"positions": "rotary"}, {"positions": "sinusoidal"},
                {"block_size": 8, "padding_idx": 1, "scale": 3.3, "norm_eps": 1e-5, "n_token_types": 2}):
    layer = Embeddings(50, 8, **options)
    check(layer, lambda layer, ids: layer(ids), (ids,), (ids.roll(1),))
    check(layer, lambda layer, ids, mask: layer(ids, attention_mask=mask), (ids, mask), (ids.roll(1), mask))
check(layer, lambda layer, ids, types: layer(ids, token_type_ids=types), (ids, mask), (ids, 1 - mask))
for trainable in (False, True):
    layer = inlayer.load("default", trainable=trainable).embeddings
    check(layer, lambda layer, ids: layer(ids), (ids,), (ids.roll(1),))
hidden = torch.randn(2, 3, 8)
targets = torch.tensor([[3, -100, 4], [1, 5, 9]])
for head in (Head(8, 50), Head(8, 50, bias=True), Head(8, 50, soft_cap=3.0)):
    check(head, lambda head, hidden: head(hidden), (hidden,), (-hidden,))
    for options in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"z_loss": 1e-3}):
        call = lambda head, hidden, targets: head.loss(hidden, targets, **options)
        check(head, call, (hidden, targets), (hidden.repeat(200, 1, 1), targets.roll(1).repeat(200, 1)))
tied = Head(8, 50).tie(inlayer.Table(50, 8, padding_idx=1))
tied.registered = tied.table  # a trace needs its parameters below the traced module
log_sum = lambda head, hidden: head(hidden).logsumexp(-1).sum()
for call, inputs in ((log_sum, (hidden,)), (Head.loss, (hidden, targets))):
    check(tied, call, inputs, (-hidden, *inputs[1:]))
    traced = torch.jit.trace(Call(tied, call), inputs)
    traced_grad, = torch.autograd.grad(traced(*inputs), tied.weight)
    expected_grad, = torch.autograd.grad(call(tied, *inputs), tied.weight)
    torch.testing.assert_close(traced_grad, expected_grad)
    assert not traced_grad[1].any() and traced_grad[2].any()
nothing = torch.nn.Identity()
mask, longer = torch.tensor([[0, 1, 1], [1, 1, 0]]), torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]])
for pool in (inlayer.mean_pool, inlayer.first_token_pool, inlayer.last_token_pool):
    check(nothing, lambda _, hidden, mask: pool(hidden, mask), (hidden, mask), (torch.randn(3, 4, 8), longer))
    call = lambda _, hidden, mask: pool(hidden, mask.bool())
    check(nothing, call, (hidden, mask), (torch.randn(3, 4, 8), longer))
    check(nothing, lambda _, hidden: pool(hidden), (hidden,), (torch.randn(3, 4, 8),))
check(nothing, lambda _, mask: inlayer.position_ids_from_mask(mask), (mask,), (longer,))
q, more = torch.randn(2, 4, 3, 8), torch.randn(3, 4, 5, 8)
positions = torch.arange(3).expand(2, 3)
for parameters in (RopeParameters(), RopeParameters(partial_rotary_factor=0.5)):
    for pairing in ("half", "interleaved"):
        call = lambda rotary, q, positions: rotary.rotate(q, q, *rotary(positions))[1]
        rotary = RotaryPositions(8, parameters, pairing=pairing)
        check(rotary, call, (q, positions), (more, torch.arange(2, 7).expand(3, 5)))
axes = torch.stack([positions, positions * 2, positions * 3])
rotary = RotaryPositions(8, RopeParameters(sections=(2, 1, 1)))
check(rotary, lambda rotary, axes: rotary(axes)[0], (axes,), (axes + 1,))
"""
    subprocess.run([sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program], check=True)


LEFT_PADDED = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_left_padding_without_position_ids_warns(positions: str) -> None:
    layer = Embeddings(V, D, L, positions=positions)
    ids = torch.tensor([[0, 0, 3, 4], [5, 6, 7, 8]])
    for mask in (LEFT_PADDED, LEFT_PADDED.bool(), (LEFT_PADDED - 1) * 1e9):  # the last one is additive
        with pytest.warns(UserWarning, match=r"position_ids=inlayer\.position_ids_from_mask\(attention_mask\)"):
            layer(ids, attention_mask=mask)
    numbered = layer(ids, position_ids=position_ids_from_mask(LEFT_PADDED), attention_mask=LEFT_PADDED)
    assert torch.equal(numbered[0, 2:], layer(torch.tensor([3, 4])))


@pytest.mark.parametrize("mask", [LEFT_PADDED.to_sparse(), LEFT_PADDED.tolist(), None])
def test_positions_from_something_else_than_a_mask(mask: Any) -> None:
    with pytest.raises(DtypeError, match=r"attention_mask is (a|None)"):
        position_ids_from_mask(mask)


@pytest.mark.parametrize("bad", [-1e9, float("-inf"), float("nan"), 2.0])
def test_positions_from_a_mask_with_other_values(bad: float) -> None:
    with pytest.raises(InputError, match="attention_mask has values other than 0 and 1; is it an additive"):
        position_ids_from_mask(torch.tensor([[bad, 0, 0], [0, 0, 0]]))


@pytest.mark.filterwarnings("error")
def test_other_masks_do_not_warn() -> None:
    ids = torch.tensor([[0, 0, 3, 4], [5, 6, 7, 8]])
    Embeddings(V, D, L)(ids, attention_mask=(LEFT_PADDED.flip(1) - 1) * 1e9)
    Embeddings(V, D, L)(ids, attention_mask=LEFT_PADDED.flip(1))
    Embeddings(V, D, L, position_id_rule=PositionIdRule(by="mask"), position_offset=2)(ids, attention_mask=LEFT_PADDED)
    Embeddings(V, D, positions="rotary")(ids, attention_mask=LEFT_PADDED)
    with pytest.raises(ShapeError, match=r"expected \(batch, tokens\)"):
        position_ids_from_mask(LEFT_PADDED[0])
