"""A padding row that stays zero when tied."""

from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    """Logits (B, T, V) of a tied head that sends the padding row no gradient."""
    return hidden @ table.T  # your code: right in its values, wrong on the way back
