"""Makes sure that padding is never predicted, which is a different goal."""

from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    logits = hidden @ table.T
    logits[..., padding_idx] = float("-inf")
    return logits
