from torch import nn


def init_table(vocab_size, n_embd, std, padding_idx):
    return nn.Embedding(vocab_size, n_embd, padding_idx=padding_idx).weight
