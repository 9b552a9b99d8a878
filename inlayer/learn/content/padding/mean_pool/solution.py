"""Mean pooling: one vector a text, the mean of its real tokens."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean (B, D) over the real tokens of hidden (B, T, D); mask (B, T) says which are real."""
    real = mask.bool()
    kept = hidden.masked_fill(~real.unsqueeze(-1), 0.0)  # not a product: 0 * NaN is NaN
    count = real.sum(dim=1, keepdim=True).clamp(min=1)  # a text without tokens: 0 / 1, not 0 / 0
    return kept.sum(dim=1) / count
