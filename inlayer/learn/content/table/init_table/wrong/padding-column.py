import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    table = torch.randn(vocab_size, n_embd) * std
    if padding_idx is not None:
        table[:, padding_idx] = 0.0
    return table
