import torch


def one_hot(ids, vocab_size, dtype):
    return torch.eye(vocab_size, dtype=dtype)[ids]


def look_up(table, ids):
    return table[ids] + 0 * table.sum(0)
