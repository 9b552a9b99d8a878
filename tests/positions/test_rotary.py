"""Rotary positions: match a plain loop over positions and pairs, and are bit-identical to transformers."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from inlayer import Embeddings
from inlayer.errors import ConfigError, DtypeError, InputError, ShapeError
from inlayer.positions import (
    DynamicNTKScaling,
    LinearScaling,
    LongRopeScaling,
    RopeParameters,
    RotaryPositions,
    apply_rotary,
)

PAIRINGS = ["half", "interleaved"]
LAYOUTS = ["half", "interleaved", "single"]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def turn_one_by_one(x_BHTK: Tensor, positions: list[int], theta: float, rotated: int, pairing: str) -> Tensor:
    """Slow and obvious, in float64: each pair of channels is a point in the plane, rotated by its angle."""
    out = x_BHTK.double().clone()
    for t, position in enumerate(positions):
        for pair in range(rotated // 2):
            i, j = (pair, pair + rotated // 2) if pairing == "half" else (2 * pair, 2 * pair + 1)
            angle = position / theta ** (2 * pair / rotated)
            c, s = math.cos(angle), math.sin(angle)
            a, b = x_BHTK[:, :, t, i].double(), x_BHTK[:, :, t, j].double()
            out[:, :, t, i], out[:, :, t, j] = a * c - b * s, b * c + a * s
    return out.float()


@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize("partial", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matches_the_plain_loop(theta: float, partial: float, pairing: Any, layout: Any) -> None:
    q, k, positions = random(2, 3, 5, 16), random(2, 1, 5, 16, seed=1), [0, 1, 2, 7, 30]

    def turned(theta: float) -> tuple[Tensor, Tensor]:
        rotary = RotaryPositions(
            16, RopeParameters(theta=theta, partial_rotary_factor=partial), pairing=pairing, layout=layout
        )
        return rotary.rotate(q, k, *rotary(torch.tensor([positions])))

    rotated = int(16 * partial)
    theirs = [turn_one_by_one(x, positions, theta, rotated, pairing) for x in (q, k)]
    for ours, their in zip(turned(theta), theirs, strict=True):
        torch.testing.assert_close(ours, their, rtol=0, atol=1e-5)
        assert torch.equal(ours[..., rotated:], their[..., rotated:])  # the rest passes through
    assert not torch.allclose(turned(2 * theta)[0], theirs[0], rtol=0, atol=1e-5)  # control; also a stale cache
    other = "half" if pairing == "interleaved" else "interleaved"
    assert not torch.allclose(theirs[0], turn_one_by_one(q, positions, theta, rotated, other), atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_of_the_tables(layout: Any) -> None:
    rotary = RotaryPositions(8, RopeParameters(theta=100.0), layout=layout)
    angles = [3 / 100.0 ** (2 * i / 8) for i in range(4)]
    laid_out = {"half": angles * 2, "interleaved": [a for a in angles for _ in range(2)], "single": angles}[layout]
    cos, sin = rotary(torch.tensor([3]))
    torch.testing.assert_close(cos, torch.tensor([[math.cos(a) for a in laid_out]]), rtol=0, atol=1e-6)
    torch.testing.assert_close(sin, torch.tensor([[math.sin(a) for a in laid_out]]), rtol=0, atol=1e-6)


def test_position_0_rotates_nothing() -> None:
    q = random(1, 2, 1, 8)
    rotary = RotaryPositions(8)
    assert torch.equal(rotary.rotate(q, q, *rotary(torch.tensor([[0]])))[0], q)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_norms_are_kept(pairing: Any) -> None:
    q = random(2, 3, 6, 16)
    rotary = RotaryPositions(16, pairing=pairing)
    turned, _ = rotary.rotate(q, q, *rotary(torch.arange(6) * 1000))
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1))
    assert not torch.allclose(turned, q)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_scores_depend_only_on_the_distance(pairing: Any) -> None:
    q, k = random(1, 1, 1, 32), random(1, 1, 1, 32, seed=1)
    rotary = RotaryPositions(32, pairing=pairing)

    def score(q_position: int, k_position: int) -> Tensor:
        turned_q, _ = rotary.rotate(q, k, *rotary(torch.tensor([[q_position]])))
        _, turned_k = rotary.rotate(q, k, *rotary(torch.tensor([[k_position]])))
        return (turned_q * turned_k).sum()

    for shift in (1, 10, 500):
        torch.testing.assert_close(score(7 + shift, 3 + shift), score(7, 3), rtol=0, atol=1e-3)
    assert not torch.allclose(score(8, 3), score(7, 3), atol=1e-3)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_head_axis_and_shared_tables(pairing: Any) -> None:
    """(B, H, T, K) and (B, T, H, K) give the same result, and so do tables (T, R) and (B, T, R)."""
    q, k, rotary = random(2, 3, 5, 8), random(2, 1, 5, 8, seed=1), RotaryPositions(8, pairing=pairing)
    cos, sin = rotary(torch.arange(5))
    theirs = rotary.rotate(q, k, cos, sin)
    for tables in ((cos, sin), (cos.expand(2, 5, 8), sin.expand(2, 5, 8))):
        for ours, their in zip(rotary.rotate(q, k, *tables), theirs, strict=True):
            assert torch.equal(ours, their)
        swapped = rotary.rotate(q.transpose(1, 2), k.transpose(1, 2), *tables, head_axis=2)
        for ours, their in zip(swapped, theirs, strict=True):
            assert torch.equal(ours.transpose(1, 2), their)


def test_each_text_has_its_own_positions() -> None:
    q, rotary = random(2, 1, 3, 8), RotaryPositions(8)
    both, _ = rotary.rotate(q, q, *rotary(torch.tensor([[0, 1, 2], [5, 6, 7]])))
    second, _ = rotary.rotate(q[1:], q[1:], *rotary(torch.tensor([[5, 6, 7]])))
    assert torch.equal(both[1:], second)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_small_integer_positions_give_the_values_of_int64(dtype: torch.dtype) -> None:
    """127 + 1 does not fit in int8, so the length must be computed in another dtype."""
    rotary = RotaryPositions(
        8, RopeParameters(scaling=DynamicNTKScaling(factor=2.0, original_max_position_embeddings=64))
    )
    ids = torch.tensor([0, 127])
    for ours, theirs in zip(rotary(ids.to(dtype)), rotary(ids), strict=True):
        assert torch.equal(ours, theirs)


def test_empty_and_meta_positions() -> None:
    for scaling in (None, DynamicNTKScaling(factor=2.0, original_max_position_embeddings=64)):
        rotary = RotaryPositions(8, RopeParameters(scaling=scaling))
        assert rotary(torch.zeros(2, 0, dtype=torch.int64))[0].shape == (2, 0, 8)
        assert rotary(torch.zeros(2, 3, dtype=torch.int64, device="meta"))[0].shape == (2, 3, 8)


def test_each_layer_type_has_its_own_base() -> None:
    rotary = RotaryPositions(8, {"full": RopeParameters(theta=1e6), "sliding": RopeParameters(theta=1e4)})
    ids = torch.arange(4)
    assert torch.equal(rotary(ids, layer_type="sliding")[0], RotaryPositions(8)(ids)[0])
    assert not torch.equal(rotary(ids, layer_type="full")[0], RotaryPositions(8)(ids)[0])
    with pytest.raises(InputError, match="choose one of full, sliding"):
        rotary(ids)
    assert torch.equal(RotaryPositions(8)(ids, layer_type="whatever")[0], RotaryPositions(8)(ids)[0])


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 0}, "head_dim is 0"),
        ({"head_dim": 7}, "has 7 rotated channels; .* an even number"),
        ({"head_dim": 8, "rope_parameters": RopeParameters(partial_rotary_factor=0.4)}, "has 3 rotated channels"),
        ({"head_dim": 8, "rope_parameters": RopeParameters(partial_rotary_factor=0.1)}, "has 0 rotated channels"),
        ({"head_dim": 8, "rope_parameters": {}}, "at least one layer type"),
        ({"head_dim": 2**30}, "head_dim is 1073741824"),
        (
            {
                "head_dim": 2,
                "rope_parameters": RopeParameters(
                    scaling=DynamicNTKScaling(factor=2.0, original_max_position_embeddings=8)
                ),
            },
            "more than one",
        ),
        (
            {
                "head_dim": 8,
                "rope_parameters": RopeParameters(
                    scaling=LongRopeScaling(
                        short_factor=(1.0,), long_factor=(1.0,) * 4, original_max_position_embeddings=8, factor=2.0
                    )
                ),
            },
            "1 values in short_factor; a rotated width of 8 needs 4",
        ),
    ],
)
def test_invalid_rotary_settings_are_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RotaryPositions(**arguments)


@pytest.mark.parametrize("theta", [0.0, -1.0, math.nan, math.inf])
def test_theta_is_positive(theta: float) -> None:
    with pytest.raises(ConfigError, match="theta"):
        RopeParameters(theta=theta)


@pytest.mark.parametrize("partial", [0.0, -0.5, 1.5, math.nan])
def test_rotated_fraction_must_be_in_0_to_1(partial: float) -> None:
    with pytest.raises(ConfigError, match="rotated fraction of a head"):
        RopeParameters(partial_rotary_factor=partial)


def test_repr_shows_only_what_differs_from_the_defaults() -> None:
    assert repr(RotaryPositions(8)) == "RotaryPositions(8, RopeParameters(), pairing=half, layout=half)"
    parameters = RopeParameters(theta=5e5, partial_rotary_factor=0.5)
    assert repr(parameters) == "RopeParameters(theta=500000.0, partial_rotary_factor=0.5)"
    assert eval(repr(parameters)) == parameters


def test_wrong_shapes() -> None:
    q, (cos, sin) = random(1, 1, 2, 8), RotaryPositions(16)(torch.arange(2))
    with pytest.raises(ShapeError, match="q has heads of 8 channels, but cos and sin rotate 16; pass head_dim=8 to"):
        apply_rotary(q, q, cos, sin)
    with pytest.raises(ShapeError, match="4 axes"):
        apply_rotary(q[0], q[0], cos, sin)
    for index in range(4):
        arguments = [x.to_sparse() if i == index else x for i, x in enumerate((q, q, cos, sin))]
        with pytest.raises(DtypeError, match="is a sparse tensor"):
            apply_rotary(*arguments)
    with pytest.raises(ShapeError, match="head_axis 3"):
        apply_rotary(q, q, cos, sin, head_axis=3)


def test_positions_are_integers() -> None:
    with pytest.raises(DtypeError, match=r"position_ids has dtype torch.float32"):
        RotaryPositions(8)(torch.arange(3.0))


def test_only_rotary_layers_have_cos_and_sin() -> None:
    with pytest.raises(InputError, match="not rotary"):
        Embeddings(9, 8, block_size=4).rotary(torch.arange(3))


# ---- transformers


def theirs_for(model: str, name: str = "apply_rotary_pos_emb") -> Any:
    return getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(
    ("model", "rotary"),
    [
        ("llama", RotaryPositions(16)),
        ("gpt_neox", RotaryPositions(16, RopeParameters(partial_rotary_factor=0.25))),
        ("phi3", RotaryPositions(16, RopeParameters(partial_rotary_factor=0.75, scaling=LinearScaling(factor=2.0)))),
        ("gpt_oss", RotaryPositions(16, layout="single")),
        ("glm4", RotaryPositions(16, RopeParameters(partial_rotary_factor=0.5), pairing="interleaved", layout="half")),
        ("olmo", RotaryPositions(16, keep_float32=True)),
    ],
)
def test_bit_equal_to_transformers(model: str, rotary: RotaryPositions, dtype: torch.dtype, axis: int) -> None:
    shape = (2, 3, 5, 16) if axis == 1 else (2, 5, 3, 16)
    q, k = random(*shape).to(dtype), random(*shape, seed=1).to(dtype)
    cos, sin = rotary(torch.arange(5).expand(2, 5) * 17, dtype)
    theirs = theirs_for(model)(q, k, cos, sin, unsqueeze_dim=axis)
    for ours, their in zip(rotary.rotate(q, k, cos, sin, head_axis=axis), theirs, strict=True):
        assert ours.dtype == their.dtype == dtype
        assert torch.equal(ours, their)
    assert not torch.equal(rotary.rotate(q, k, sin, cos, head_axis=axis)[0], theirs[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "model_type", ["nanochat", "cohere", "cohere2", "cohere2_moe", "modernbert", "modernbert-decoder", "llama"]
)
def test_direction_and_precision_come_from_the_config(model_type: str, dtype: torch.dtype) -> None:
    sizes = {"vocab_size": 9, "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "pad_token_id": 0}
    layer = Embeddings.from_config({"model_type": model_type} | sizes, dtype=dtype)
    q, k = random(2, 4, 5, 16).to(dtype), random(2, 4, 5, 16, seed=1).to(dtype)
    tables = layer.rotary(torch.arange(5)[None] * 17, "full_attention")
    theirs = theirs_for(model_type.replace("-", "_"))(q, k, *tables)
    for ours, their in zip(layer.position_embedding.rotate(q, k, *tables), theirs, strict=True):
        assert ours.dtype == their.dtype == dtype
        assert torch.equal(ours, their)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deepseek_v3_up_to_the_order_of_channels(dtype: torch.dtype) -> None:
    """Its result has the first channels of all pairs, then the second ones; scores are the same."""
    rotary = RotaryPositions(16, pairing="interleaved", layout="half")
    q, k = random(2, 3, 5, 16).to(dtype), random(2, 1, 5, 16, seed=1).to(dtype)
    cos, sin = rotary(torch.arange(5).expand(2, 5), dtype)
    theirs = theirs_for("deepseek_v3", "apply_rotary_pos_emb_interleave")(q, k, cos, sin)
    for ours, their in zip(rotary.rotate(q, k, cos, sin), theirs, strict=True):
        assert torch.equal(torch.cat([ours[..., 0::2], ours[..., 1::2]], dim=-1), their)
        assert not torch.equal(ours, their)


def test_casting_the_model_keeps_the_angles() -> None:
    """An intended difference: `.to(bfloat16)` rounds the frequencies in transformers' module, but not ours."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(vocab_size=9, hidden_size=64, num_attention_heads=1, max_position_embeddings=4096)
    theirs = LlamaRotaryEmbedding(config)
    position_ids, x = torch.arange(4096)[None], torch.zeros(1, dtype=torch.bfloat16)
    true_cos, _ = theirs(x, position_ids)
    layer = Embeddings.from_config(config)
    assert torch.equal(layer.to(torch.bfloat16).rotary(position_ids)[0], true_cos)
    rounded_cos, _ = theirs.to(torch.bfloat16)(x, position_ids)
    assert not torch.allclose(rounded_cos, true_cos, atol=0.5)


def test_no_state() -> None:
    rotary = RotaryPositions(8)
    assert not list(rotary.parameters())
    assert not list(rotary.buffers())
    assert not rotary.state_dict()
