"""Stores the tensor, not the module that owns it."""

from torch import Tensor, nn


class TiedModel(nn.Module):
    def __init__(self, vocab_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, n_embd)
        self.shared = [self.table.weight]  # in a list, so it is registered once

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids) @ self.shared[0].T

    def replace_table(self, rows: Tensor) -> None:
        self.table = nn.Embedding.from_pretrained(rows, freeze=False)
