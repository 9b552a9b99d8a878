import torch


def one_hot(ids, vocab_size, dtype):
    return (torch.arange(vocab_size) <= ids[..., None]).to(dtype)


def look_up(table, ids):
    return one_hot(ids, table.shape[0], table.dtype) @ table
