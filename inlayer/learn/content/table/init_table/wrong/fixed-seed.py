import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    torch.manual_seed(0)
    table = torch.randn(vocab_size, n_embd) * std
    if padding_idx is not None:
        table[padding_idx] = 0.0
    return table
