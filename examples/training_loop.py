"""Use inlayer's layer and head in your own torch training loop.

The model is your own: here one small network that predicts the next byte of this file.
"""

from pathlib import Path

import torch
from torch import nn

from inlayer import ByteTokenizer, Embeddings, Head


class TinyModel(nn.Module):
    """Embeddings, any network of yours, head."""

    def __init__(self, vocab_size: int, n_embd: int, block_size: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocab_size, n_embd, block_size, seed=0)  # learned positions are added
        self.network = nn.GRU(n_embd, n_embd, batch_first=True)
        self.head = Head(n_embd, vocab_size)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.network(self.embeddings(ids[:, :-1]))
        return self.head.loss(hidden, ids[:, 1:])  # cross-entropy without holding all logits


torch.manual_seed(0)
tokenizer = ByteTokenizer()
text = torch.tensor(tokenizer.encode(Path(__file__).read_text(encoding="utf-8")))
model = TinyModel(tokenizer.get_vocab_size(), n_embd=64, block_size=32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(151):
    starts = torch.randint(len(text) - 33, (16,))
    batch = torch.stack([text[start : start + 33] for start in starts])  # 32 inputs, shifted by one for the targets
    loss = model.loss(batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.2f}")

unused = model.embeddings.token_embedding.weight[0xFF].norm()
used = model.embeddings.token_embedding.weight[ord("e")].norm()
print(f"norm of the row of 'e': {used:.2f}; of byte ff, which never occurs: {unused:.2f}")
