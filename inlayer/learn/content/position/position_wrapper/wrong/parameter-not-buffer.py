"""Keeps the encoding as a parameter, which is counted, saved, and optimized."""

import torch
from torch import Tensor, nn


def sinusoidal_encoding(block_size: int, n_embd: int) -> Tensor:
    """Return the encoding (block_size, n_embd) in float32, sines and cosines interleaved."""
    even = torch.arange(0, n_embd, 2, dtype=torch.float32)
    angles = torch.arange(block_size, dtype=torch.float32)[:, None] / 10_000 ** (even / n_embd)
    encoding = torch.empty(block_size, n_embd)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : n_embd // 2]
    return encoding


class PositionWrapper(nn.Module):
    """Rows of a table (vocab_size, n_embd) plus an optional fixed encoding for up to block_size positions."""

    def __init__(
        self,
        vocab_size: int,
        n_embd: int,
        block_size: int,
        positions: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.block_size = block_size
        self.token_embedding = nn.Embedding(vocab_size, n_embd, dtype=dtype)
        encoding = sinusoidal_encoding(block_size, n_embd).to(dtype) if positions else None
        self.encoding = None if encoding is None else nn.Parameter(encoding, requires_grad=False)

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Return hidden states (B, T, D) from exactly one of ids (B, T) and vectors (B, T, D)."""
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("input_ids and inputs_embeds were both given; pass one of them")
        if input_ids is not None:
            return self.add_positions(self.token_embedding(input_ids))
        if inputs_embeds is not None:
            return self.add_positions(inputs_embeds)
        raise ValueError("neither input_ids nor inputs_embeds was given; pass one of them")

    def add_positions(self, rows: Tensor) -> Tensor:
        """Add the encoding of their positions to vectors (B, T, D) without modifying them."""
        if self.encoding is None:
            return rows
        length = rows.shape[1]
        if length > self.block_size:
            raise ValueError(f"{length} tokens, but block_size is {self.block_size}")
        return rows + self.encoding[:length]

    def before_and_after(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows as they come out of the table, and the rows with positions."""
        rows = self.token_embedding(input_ids)
        return rows, self.add_positions(rows)
