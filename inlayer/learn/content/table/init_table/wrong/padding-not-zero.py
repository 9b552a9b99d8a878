from torch import nn


def init_table(vocab_size, n_embd, std, padding_idx):
    table = nn.Embedding(vocab_size, n_embd, padding_idx=padding_idx)  # zeroes the padding row
    nn.init.normal_(table.weight, std=std)
    return table.weight
