"""Compare initializations of the table in a network that reads its rows directly, without a norm before them.

The defaults of Embeddings suit pre-norm transformer blocks. docs/howto/layer.md explains the other settings.
"""

from functools import partial
from pathlib import Path

import torch
from torch import nn

from inlayer import ByteTokenizer, Embeddings, Head

VOCAB_SIZE, N_EMBD = 256, 64
LICENSE = Path(__file__).parents[1] / "LICENSE"  # a text that does not change
TEXT = torch.tensor(ByteTokenizer().encode(LICENSE.read_text(encoding="utf-8")))


def final_loss(embeddings: nn.Module, head: nn.Module) -> float:
    """Train a GRU between the two to predict the next byte of the license, and return the last loss."""
    torch.manual_seed(1)  # the same network and batches for every setting
    network = nn.GRU(N_EMBD, N_EMBD, batch_first=True)
    parameters = list(nn.ModuleList([embeddings, network, head]).parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    for _ in range(150):
        starts = torch.randint(len(TEXT) - 32, (16,))
        batch = torch.stack([TEXT[start : start + 33] for start in starts])
        hidden, _ = network(embeddings(batch[:, :-1]))
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


layer = partial(Embeddings, VOCAB_SIZE, N_EMBD, seed=0)
head = partial(Head, N_EMBD, VOCAB_SIZE)
root = N_EMBD**0.5
torch.manual_seed(0)
for name, embeddings, own_head in (
    ("nn.Embedding, nn.Linear", nn.Embedding(VOCAB_SIZE, N_EMBD), nn.Linear(N_EMBD, VOCAB_SIZE)),
    ("the defaults", layer(), head()),
    ("init='embedding'", layer(init="embedding"), head()),
    ("init='embedding', head init_std=1/root", layer(init="embedding"), head(init_std=1 / root)),
    ("tied: the defaults", layer(), None),
    ("tied: scale=1/init_std", layer(scale=1 / 0.02), None),
    ("tied: init='scaled', scale=root", layer(init="scaled", scale=root), None),
):
    print(f"{name:<38}  loss {final_loss(embeddings, own_head or head().tie(embeddings)):.2f}")
