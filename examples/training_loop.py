"""Use inlayer's layer and head in your own torch training loop.

The model is your own: here one small network that predicts the next byte of this file.
"""

from pathlib import Path

import torch
from torch import nn

from inlayer import ByteTokenizer, Embeddings, Head


class TinyModel(nn.Module):
    """Embeddings, any network of yours, head."""

    def __init__(self, embeddings: nn.Module, vocab_size: int, n_embd: int) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.network = nn.GRU(n_embd, n_embd, batch_first=True)
        self.head = Head(n_embd, vocab_size, init_std=n_embd**-0.5)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.network(self.embeddings(ids[:, :-1]))
        return self.head.loss(hidden, ids[:, 1:])  # cross-entropy without holding all logits


def train(embeddings: nn.Module) -> list[str]:
    torch.manual_seed(0)  # the same network and batches for every table
    model, losses = TinyModel(embeddings, vocab_size, n_embd), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(151):
        starts = torch.randint(len(text) - 32, (16,))
        batch = torch.stack([text[start : start + 33] for start in starts])  # 32 inputs, shifted by one for the targets
        loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(f"{loss.item():.2f}")
    return losses[::50]


tokenizer = ByteTokenizer()
text = torch.tensor(tokenizer.encode(Path(__file__).read_text(encoding="utf-8")))
vocab_size, n_embd = tokenizer.get_vocab_size(), 64
# The GRU reads the rows directly, so they need values of about 1: docs/howto/layer.md, "Choose the initialization".
layer = Embeddings(vocab_size, n_embd, block_size=32, init="embedding", seed=0)  # learned positions are added
print("loss at steps 0, 50, 100, 150")
print("Embeddings:   ", *train(layer))
print("nn.Embedding: ", *train(nn.Embedding(vocab_size, n_embd)))
