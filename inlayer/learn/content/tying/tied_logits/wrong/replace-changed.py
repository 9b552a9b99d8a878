"""Changes replace_table, which cuts off tables of a different size."""

from torch import Tensor, nn


class TiedModel(nn.Module):
    def __init__(self, vocab_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, n_embd)
        self.shared = [self.table.weight]

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids) @ self.shared[0].T

    def replace_table(self, rows: Tensor) -> None:
        self.table.weight.data.copy_(rows[: self.table.num_embeddings])
