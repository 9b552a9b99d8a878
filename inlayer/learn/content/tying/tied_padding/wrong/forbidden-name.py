"""Uses inlayer's own head."""

import inlayer
from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    rows, width = table.shape
    layer, head = inlayer.Embeddings(rows, width, padding_idx=padding_idx), inlayer.Head(width, rows)
    layer.tie(head)
    del layer.token_embedding._parameters["weight"]
    layer.token_embedding.weight = table
    return head(hidden)
