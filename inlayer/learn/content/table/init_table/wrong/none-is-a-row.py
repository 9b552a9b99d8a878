import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    table = torch.randn(vocab_size, n_embd) * std
    table[padding_idx or 0] = 0.0
    return table
