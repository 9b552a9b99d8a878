"""Sinusoidal positions against a plain loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from inlayer import Embeddings
from inlayer.errors import DtypeError, InputError, PositionRangeError
from inlayer.positions import SinusoidalPositions, sinusoidal_encoding


def wave_by_wave(positions: list[int], width: int, theta: float, layout: str) -> Tensor:
    """Slow and obvious: channel by channel, as in the paper."""
    rows = []
    for position in positions:
        sines = [math.sin(position / theta ** (2 * i / width)) for i in range((width + 1) // 2)]
        cosines = [math.cos(position / theta ** (2 * i / width)) for i in range(width // 2)]
        row = sines + cosines
        if layout == "interleaved":
            row[0::2], row[1::2] = sines, cosines
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64).float()


@pytest.mark.parametrize("theta", [1e4, 100.0])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("width", [1, 2, 7, 16])
@pytest.mark.parametrize("block_size", [None, 8, 4096])
def test_matches_the_plain_loop(theta: float, layout: Any, width: int, block_size: int | None) -> None:
    positions = [0, 1, 2, 7, 1000]
    ours = SinusoidalPositions(width, block_size, theta=theta, layout=layout)(torch.tensor(positions))
    theirs = wave_by_wave(positions, width, theta, layout)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    if width > 2:  # the first pair turns one radian a token whatever the base
        assert not torch.allclose(
            SinusoidalPositions(width, theta=2 * theta, layout=layout)(torch.tensor(positions)), theirs
        )
        other: Any = "half" if layout == "interleaved" else "interleaved"
        assert not torch.allclose(
            sinusoidal_encoding(torch.tensor(positions), width, theta=theta, layout=other), theirs
        )


def test_the_first_position() -> None:
    assert sinusoidal_encoding(torch.tensor([0]), 4).tolist() == [[0, 1, 0, 1]]
    assert sinusoidal_encoding(torch.tensor([0]), 4, layout="half").tolist() == [[0, 0, 1, 1]]


def test_positions_have_no_upper_limit() -> None:
    """Beyond block_size, the encoding has the same bits as a longer table."""
    ids = torch.tensor([[3, 9, 100_000]])
    short, long = SinusoidalPositions(8, 4)(ids), SinusoidalPositions(8, 100_001)(ids)
    assert torch.equal(short, long)


def test_distant_position_is_exact() -> None:
    """In float32, the angle of position 10 million would be wrong by more than half a radian."""
    far = torch.tensor([9_999_999])
    torch.testing.assert_close(
        sinusoidal_encoding(far, 8), wave_by_wave([9_999_999], 8, 1e4, "interleaved"), rtol=0, atol=1e-7
    )


def test_buffer_is_not_in_the_state_dict() -> None:
    waves = SinusoidalPositions(8, 4)
    assert not list(waves.parameters())
    assert [name for name, _ in waves.named_buffers()] == ["table"]
    assert not waves.state_dict()
    assert list(Embeddings(9, 8, 4, positions="sinusoidal").state_dict()) == ["token_embedding.weight"]


def test_casting_does_not_round_the_encoding() -> None:
    waves = SinusoidalPositions(8, 16)
    ids = torch.arange(16)
    initial = waves(ids)
    assert torch.equal(waves.to(torch.bfloat16).float()(ids), initial)
    assert torch.equal(waves.half()(ids), initial)
    layer = Embeddings(9, 8, 16, positions="sinusoidal").to(torch.bfloat16)
    hidden = layer(inputs_embeds=torch.zeros(1, 16, 8, dtype=torch.bfloat16))
    assert torch.equal(hidden[0], initial.to(torch.bfloat16))  # rounded once


def test_encoding_moves_with_the_device() -> None:
    waves = SinusoidalPositions(8, 16).to("meta")
    assert waves.table.is_meta
    assert waves(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 8)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_small_integer_positions_give_the_values_of_int64(dtype: torch.dtype) -> None:
    """uint8 must not index as a mask."""
    ids = torch.tensor([[1, 0], [3, 2]])
    assert torch.equal(SinusoidalPositions(8, 4)(ids.to(dtype)), SinusoidalPositions(8, 4)(ids))


def test_empty() -> None:
    assert SinusoidalPositions(8, 4)(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 8)


def test_errors() -> None:
    with pytest.raises(PositionRangeError, match="position -1 is negative"):
        SinusoidalPositions(8, 4)(torch.tensor([0, -1]))
    with pytest.raises(DtypeError, match="position_ids"):
        SinusoidalPositions(8, 4)(torch.tensor([0.0]))
    for arguments in ({"n_embd": 0}, {"n_embd": 8, "block_size": -1}):
        with pytest.raises(InputError, match="sizes must be positive"):
            SinusoidalPositions(**arguments)
    for theta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=r"theta of sinusoidal positions is .*; it must be positive and finite"):
            SinusoidalPositions(8, theta=theta)
