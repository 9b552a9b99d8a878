"""Adds the small number after the square root."""

from torch import Tensor


def split_by_layer(ids: Tensor, table: Tensor, embeds: Tensor, projection: Tensor, layers: int) -> Tensor:
    width = table.shape[1] // layers
    rows = table[ids].view(*ids.shape, layers, width) * width**0.5
    x = (embeds @ projection.T).view(*ids.shape, layers, width)
    context = x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)
    return (rows + context) / 2**0.5
