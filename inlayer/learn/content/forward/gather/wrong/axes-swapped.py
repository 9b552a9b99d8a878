import torch


def gather(table, ids):
    rows = torch.index_select(table, 0, ids.reshape(-1)).reshape(*ids.shape, table.shape[1])
    return rows.transpose(-1, -2)
