"""Takes the padding out of the sum, but not out of the count."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    return (hidden * mask.unsqueeze(-1)).mean(dim=1)
