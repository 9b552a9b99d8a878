"""Absolute positions: a vector per position, added to the token rows. Learned, or sinusoidal (Vaswani et al., 2017).

text -> ids -> rows -> [positions] -> hidden states -> head
- learned: a second table, which may start with unused rows (`offset`; OPT has 2). A position outside it is an error
- sinusoidal: pair i is sin and cos of position / theta^(2i / D); "interleaved" puts them side by side (the paper),
  "half" puts all sines first. If D is odd, the last sine has no cosine. The buffer stays float32 even if the
  model is cast
Tested in tests/positions/test_learned.py and test_sinusoidal.py, and against transformers in tests/families/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.checks import check_std, is_integer
from inlayer.errors import InputError, PositionRangeError
from inlayer.initialization import init_rows
from inlayer.tensors import check_ids, is_meta_or_traced

SinusoidalLayout = Literal["interleaved", "half", "half_fp32"]


class LearnedPositions(nn.Embedding):
    """`block_size` learned rows of width `n_embd`. A subclass of nn.Embedding, so tools treat the table as one.

    Args:
        block_size: Number of positions.
        n_embd: Width of the rows.
        offset: Unused rows at the start of the table (OPT has 2).
        padding_idx: A row that is zero and gets no gradient.
        init_std: Standard deviation of the initial rows.
        seed: Seed of the initial rows.
        device: Device of the table.
        dtype: Dtype of the table.

    Raises:
        InlayerError: If a size, an index, or `init_std` is invalid.

    Example:
        >>> from inlayer.positions import LearnedPositions
        >>> positions = LearnedPositions(block_size=8, n_embd=4)
        >>> positions(torch.arange(3)[None]).shape
        torch.Size([1, 3, 4])
    """

    def __init__(
        self,
        block_size: int,
        n_embd: int,
        *,
        offset: int = 0,
        padding_idx: int | None = None,
        init_std: float = 0.02,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not (is_integer(block_size) and is_integer(offset)) or block_size < 1 or n_embd < 1 or offset < 0:
            raise InputError(
                f"learned positions have {block_size!r} rows of width {n_embd} and offset {offset!r}; rows and width "
                "must be at least 1, and the offset at least 0"
            )
        block_size, offset = int(block_size), int(offset)
        if padding_idx is not None and not 0 <= padding_idx < block_size + offset:
            raise InputError(
                f"padding_idx {padding_idx} is outside the {block_size + offset} rows of learned positions; "
                "is block_size too small for this padding id?"
            )
        self.block_size, self.offset, self.init_std, self.seed = block_size, offset, check_std(init_std), seed
        super().__init__(block_size + offset, n_embd, padding_idx=padding_idx, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Initialize all rows from N(0, init_std), reproducibly with a seed, and the padding row with zeros."""
        init_rows(self.weight, "normal", self.init_std, self.seed, self.padding_idx)

    def forward(self, position_ids: Tensor) -> Float[Tensor, "... D"]:
        """Return one row per position id: position_ids.shape + (D,).

        Args:
            position_ids: Positions of any shape.

        Returns:
            The rows.

        Raises:
            DtypeError: If the positions are not integers.
            PositionRangeError: If a position is outside the table.

        Example:
            >>> from inlayer.positions import LearnedPositions
            >>> LearnedPositions(block_size=8, n_embd=4)(torch.tensor([7])).shape
            torch.Size([1, 4])
        """
        rows = check_ids(position_ids, "position_ids").long() + self.offset
        if not is_meta_or_traced(rows) and rows.numel():
            low, high = (int(end) for end in torch.aminmax(rows))
            if low < 0 or high >= self.num_embeddings:
                bad = (low if low < 0 else high) - self.offset
                raise PositionRangeError(
                    f"position {bad} is outside {-self.offset}..{self.block_size - 1}, because block_size is "
                    f"{self.block_size}; the text is too long, or position_ids are for another model"
                )
        return F.embedding(rows, self.weight, self.padding_idx)

    if TYPE_CHECKING:
        __call__ = forward


def sinusoidal_encoding(
    position_ids: Tensor, n_embd: int, *, theta: float = 10_000.0, layout: SinusoidalLayout = "interleaved"
) -> Float[Tensor, "... D"]:
    """Encode positions: position_ids.shape + (n_embd,), float32. Position 0 of width 4 is [0, 1, 0, 1]."""
    if layout == "half_fp32":  # CTRL's arithmetic: the same operations on the same shapes give the same bits
        channels = torch.arange(n_embd, dtype=torch.float32, device=position_ids.device)
        rates = 1 / torch.pow(theta, 2 * (channels // 2) / n_embd)
        angles = position_ids[..., None].float() * rates
        return torch.cat((angles[..., 0::2].sin(), angles[..., 1::2].cos()), dim=-1)
    # Computed in float64: at position 100,000, a float32 angle is already wrong in the third decimal.
    exponent = torch.arange(0, n_embd, 2, dtype=torch.float64, device=position_ids.device) / n_embd
    angles = position_ids[..., None].double() / theta**exponent
    sines, cosines = angles.sin(), angles.cos()[..., : n_embd // 2]
    if layout == "half":
        return torch.cat((sines, cosines), dim=-1).float()
    encoding = torch.empty(*position_ids.shape, n_embd, dtype=torch.float32, device=position_ids.device)
    encoding[..., 0::2], encoding[..., 1::2] = sines.float(), cosines.float()
    return encoding


class SinusoidalPositions(nn.Module):
    """Fixed encodings of width `n_embd` for any position; the first `block_size` are precomputed.

    Args:
        n_embd: Width of the encodings.
        block_size: Number of precomputed positions; none by default. Later positions are allowed.
        theta: The base: pair i is sin and cos of position / theta^(2i / D).
        layout: "interleaved" (sine and cosine side by side), "half" (all sines first), or "half_fp32" (CTRL).
        device: Device of the precomputed encodings, which stay float32 even if the model is cast.

    Raises:
        InlayerError: If a size, theta, or the layout is invalid.

    Example:
        >>> from inlayer.positions import SinusoidalPositions
        >>> SinusoidalPositions(n_embd=4)(torch.tensor([0, 1]))
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """

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
            raise InputError(
                f"sinusoidal positions have width {n_embd} and block_size {block_size}; sizes must be positive"
            )
        if not 0 < theta < math.inf:
            raise InputError(f"the base theta of sinusoidal positions is {theta}; it must be positive and finite")
        if layout not in get_args(SinusoidalLayout):
            raise InputError(f"layout is {layout!r}; it must be one of {', '.join(get_args(SinusoidalLayout))}")
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
        """Return the encoding of every position: position_ids.shape + (D,), float32.

        Args:
            position_ids: Positions of any shape.

        Returns:
            The encodings.

        Raises:
            DtypeError: If the positions are not integers.
            PositionRangeError: If a position is negative.

        Example:
            >>> from inlayer.positions import SinusoidalPositions
            >>> SinusoidalPositions(n_embd=4)(torch.tensor([100_000])).shape
            torch.Size([1, 4])
        """
        position_ids = check_ids(position_ids, "position_ids").long()  # uint8 would index as a mask
        if is_meta_or_traced(position_ids):
            return self._encode(position_ids)
        if position_ids.numel() == 0:
            return self.table.new_empty((*position_ids.shape, self.n_embd))
        low, high = (int(end) for end in torch.aminmax(position_ids))
        if low < 0:
            raise PositionRangeError(f"position {low} is negative; sinusoidal positions start at 0")
        return self.table[position_ids] if high < self.block_size else self._encode(position_ids)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        """Return the settings, for print(model)."""
        return f"n_embd={self.n_embd}, block_size={self.block_size}, theta={self.theta}, layout={self.layout}"
