import torch


def reinit(weight, std, padding_idx):
    weight.normal_(0.0, std)
    if padding_idx is not None:
        weight[padding_idx] = 0.0
