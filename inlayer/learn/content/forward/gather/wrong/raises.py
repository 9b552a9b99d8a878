import torch


def gather(table, ids):
    return torch.index_select(table, 0, ids)  # an index with two axes
