import torch


def table_bytes(vocab_size, n_embd, dtype, tied):
    table = torch.zeros(vocab_size, n_embd, dtype=dtype)
    return table.nbytes * (1 if tied else 2)
