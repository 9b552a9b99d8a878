"""Position ids for a padded batch: the real tokens of each text are numbered 0, 1, 2, ..."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    """Return position ids (B, T) int64 for mask (B, T) bool; padding gets 0."""
    counted = mask.cumsum(dim=1)  # real tokens up to and including this position
    return (counted - 1).masked_fill(~mask, 0)
