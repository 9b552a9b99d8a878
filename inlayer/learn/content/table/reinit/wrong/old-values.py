import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        weight *= std / 1000
        weight += torch.randn_like(weight) * std
        if padding_idx is not None:
            weight[padding_idx].zero_()
