"""Has a separate head with the right shape."""

from torch import Tensor, nn


class TiedModel(nn.Module):
    def __init__(self, vocab_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))

    def replace_table(self, rows: Tensor) -> None:
        self.table = nn.Embedding.from_pretrained(rows, freeze=False)
