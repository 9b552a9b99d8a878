import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        weight.normal_(0.0, std)
        weight[padding_idx] = 0.0
