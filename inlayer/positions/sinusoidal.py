"""Sinusoidal positions: fixed sines and cosines, added to the token rows (Vaswani et al., 2017).

text -> ids -> rows -> [positions] -> hidden states -> head
- pair i is sin and cos of position / theta^(2i / D); "interleaved" puts them side by side (the paper), "half" puts all
  sines first
- any length: the first `block_size` positions come from a buffer, others are computed by the same function
- odd D: the last sine has no cosine
- a non-persistent buffer that stays float32 whatever the model's dtype: the result is rounded once, when it is cast
Tested against a plain loop in tests/positions/test_sinusoidal.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, PositionRangeError
from inlayer.tensors import check_ids, has_no_values

__all__ = ["SinusoidalPositions", "sinusoidal_encoding"]

SinusoidalLayout = Literal["interleaved", "half"]


def sinusoidal_encoding(
    position_ids: Tensor, n_embd: int, *, theta: float = 10_000.0, layout: SinusoidalLayout = "interleaved"
) -> Float[Tensor, "... D"]:
    """Encode positions: position_ids.shape + (n_embd,), float32. Position 0 of width 4 is [0, 1, 0, 1]."""
    # Float64 inside: at position 100,000 a float32 angle is already wrong in the third decimal.
    exponent = torch.arange(0, n_embd, 2, dtype=torch.float64, device=position_ids.device) / n_embd
    angles = position_ids[..., None].double() / theta**exponent
    sines, cosines = angles.sin(), angles.cos()[..., : n_embd // 2]
    if layout == "half":
        return torch.cat((sines, cosines), dim=-1).float()
    encoding = torch.empty(*position_ids.shape, n_embd, dtype=torch.float32, device=position_ids.device)
    encoding[..., 0::2], encoding[..., 1::2] = sines.float(), cosines.float()
    return encoding


class SinusoidalPositions(nn.Module):
    """Fixed encodings of width `n_embd` for any position; the first `block_size` are precomputed."""

    table: Tensor

    def __init__(
        self,
        n_embd: int,
        block_size: int | None = None,
        *,
        theta: float = 10_000.0,
        layout: SinusoidalLayout = "interleaved",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if n_embd < 1 or (block_size or 0) < 0:
            raise ConfigError(
                f"sinusoidal positions have width {n_embd} and block_size {block_size}; sizes must be positive"
            )
        if not 0 < theta < math.inf:
            raise ConfigError(f"the base theta of sinusoidal positions is {theta}; it must be positive and finite")
        if layout not in get_args(SinusoidalLayout):
            raise ConfigError(f"unknown layout {layout!r}; choose one of {', '.join(get_args(SinusoidalLayout))}")
        self.n_embd, self.block_size, self.theta = n_embd, block_size or 0, theta
        self.layout: SinusoidalLayout = layout
        self.register_buffer("table", self._encode(torch.arange(self.block_size, device=device)), persistent=False)

    def _encode(self, position_ids: Tensor) -> Tensor:
        return sinusoidal_encoding(position_ids, self.n_embd, theta=self.theta, layout=self.layout)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SinusoidalPositions:
        # Move with the model to another device, but stay float32 when the model is cast.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = self._encode(torch.arange(self.block_size, device=self.table.device))
        return self

    def forward(self, position_ids: Tensor) -> Float[Tensor, "... D"]:
        """The encoding of every position: position_ids.shape + (D,), float32."""
        position_ids = check_ids(position_ids, "position_ids").long()  # uint8 would index as a mask
        if has_no_values(position_ids):
            return self._encode(position_ids)
        if position_ids.numel() == 0:
            return self.table.new_empty((*position_ids.shape, self.n_embd))
        low, high = (int(end) for end in torch.aminmax(position_ids))
        if low < 0:
            raise PositionRangeError(f"position {low} is negative; sinusoidal positions start at 0")
        return self.table[position_ids] if high < self.block_size else self._encode(position_ids)

    def extra_repr(self) -> str:
        """The settings, for print(model)."""
        return f"n_embd={self.n_embd}, block_size={self.block_size}, theta={self.theta}, layout={self.layout}"
