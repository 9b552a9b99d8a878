import torch


def gather(table, ids):
    index = ids.reshape(-1).sort().values
    return torch.index_select(table, 0, index).reshape(*ids.shape, table.shape[1])
