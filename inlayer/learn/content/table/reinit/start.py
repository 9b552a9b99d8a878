"""Task reinit: draw the values of a table again, in place."""

from torch import Tensor


def reinit(weight: Tensor, std: float, padding_idx: int | None) -> None:
    """Fill the table from N(0, std), in place; the padding row, if there is one, is zero afterwards."""
    # write your code here
