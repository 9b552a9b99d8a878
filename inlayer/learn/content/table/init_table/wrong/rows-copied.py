import torch


def init_table(vocab_size, n_embd, std, padding_idx):
    half = torch.randn(vocab_size // 2 + 1, n_embd) * std
    table = half.repeat_interleave(2, 0)[:vocab_size]
    if padding_idx is not None:
        table[padding_idx] = 0.0
    return table
