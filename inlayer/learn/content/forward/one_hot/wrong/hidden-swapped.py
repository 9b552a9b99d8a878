import torch


def one_hot(ids, vocab_size, dtype):
    return (ids[..., None] == torch.arange(vocab_size)).to(dtype)


def look_up(table, ids):
    return table.T @ one_hot(ids, table.shape[0], table.dtype).transpose(1, 2)
