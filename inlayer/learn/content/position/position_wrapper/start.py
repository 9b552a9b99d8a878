"""A small input layer: token rows from ids or vectors, with an optional sinusoidal encoding."""

import torch
from torch import Tensor, nn


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
        self.token_embedding = nn.Embedding(vocab_size, n_embd, dtype=dtype)
        # Compute the encoding once and keep it in a buffer named "encoding".

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Return hidden states (B, T, D) from exactly one of ids (B, T) and vectors (B, T, D)."""
        return self.token_embedding(input_ids)

    def before_and_after(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows as they come out of the table, and the rows with positions."""
        rows = self.token_embedding(input_ids)
        return rows, rows
