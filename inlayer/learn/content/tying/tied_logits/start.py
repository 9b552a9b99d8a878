"""Task tied_logits: a head that reads the table."""

from torch import Tensor, nn


class TiedModel(nn.Module):
    """A table, and a head that reads it."""

    def __init__(self, vocab_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, n_embd)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (B, T, V) for ids (B, T)."""
        return self.table(ids)  # write your code here: the product of these hidden states with every row

    def replace_table(self, rows: Tensor) -> None:
        """Install another table. Do not change this method."""
        self.table = nn.Embedding.from_pretrained(rows, freeze=False)
