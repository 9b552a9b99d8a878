import torch


def reinit(weight, std, padding_idx):
    weight = torch.randn(weight.shape) * std
    if padding_idx is not None:
        weight[padding_idx] = 0.0
