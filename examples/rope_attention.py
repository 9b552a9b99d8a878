"""Rotate queries and keys in your own attention with RoPE.

RoPE adds nothing to the embeddings. The layer prepares cos and sin, and attention rotates its queries and keys.
"""

import torch
from torch import nn
from torch.nn import functional

from inlayer import Embeddings, apply_rotary


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, n_embd: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.head_dim = n_heads, n_embd // n_heads
        self.qkv, self.out = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = hidden.shape
        split = self.qkv(hidden).view(batch, tokens, 3, self.n_heads, self.head_dim)
        q, k, v = (one.transpose(1, 2) for one in split.unbind(2))  # (batch, heads, tokens, head_dim)
        q, k = apply_rotary(q, k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        output: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return output


torch.manual_seed(0)
layer = Embeddings(vocab_size=256, n_embd=64, positions="rotary", head_dim=16)
attention = Attention(n_embd=64, n_heads=4)
ids = torch.tensor([[72, 105, 33, 72]])
position_ids = torch.arange(4)[None]

hidden = layer(ids)
print("the same byte has the same row at positions 0 and 3:", torch.equal(hidden[0, 0], hidden[0, 3]))
cos, sin = layer.rotary(position_ids)
print("cos and sin:", tuple(cos.shape), "output:", tuple(attention(hidden, cos, sin).shape))

# Scores depend on the distance between two positions, not on where they are.
q, k = torch.randn(2, 1, 1, 1, 16)
for start in (0, 1000):
    first, second = (apply_rotary(q, k, *layer.rotary(torch.tensor([[position]]))) for position in (start, start + 5))
    print(f"score of positions {start} and {start + 5}: {(first[0] * second[1]).sum().item():.4f}")
