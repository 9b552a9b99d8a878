import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    row = torch.randn(n_embd) * std
    table = row.repeat(vocab_size, 1)
    if padding_idx is not None:
        table[padding_idx] = 0.0
    return table
