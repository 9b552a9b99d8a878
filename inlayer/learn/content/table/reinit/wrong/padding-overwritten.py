import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        if padding_idx is not None:
            weight[padding_idx].zero_()
        weight.normal_(0.0, std)
