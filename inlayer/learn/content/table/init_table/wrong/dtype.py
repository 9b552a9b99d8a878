import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    table = torch.normal(0.0, std, (vocab_size, n_embd), dtype=torch.float64)
    if padding_idx is not None:
        table[padding_idx] = 0.0
    return table
