"""Position ids of a padded batch: the real tokens of each text are numbered 0, 1, 2, ..."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    """Position ids (B, T) int64 from mask (B, T) bool; padding gets 0."""
    counted = mask.cumsum(dim=1)  # how many real tokens there are up to here, this one included
    return (counted - 1).masked_fill(~mask, 0)
