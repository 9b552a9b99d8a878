"""Mean pooling: one vector per text, the mean of its real tokens."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) over the real tokens of hidden (B, T, D); mask (B, T) marks the real ones."""
    real = mask.bool()
    kept = hidden.masked_fill(~real.unsqueeze(-1), 0.0)  # not a product, because 0 * NaN is NaN
    count = real.sum(dim=1, keepdim=True).clamp(min=1)  # for a text without tokens: 0 / 1, not 0 / 0
    return kept.sum(dim=1) / count
