import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        weight.uniform_(-std * 3**0.5, std * 3**0.5)
        if padding_idx is not None:
            weight[padding_idx].zero_()
