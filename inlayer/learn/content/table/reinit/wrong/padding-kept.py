import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        kept = None if padding_idx is None else weight[padding_idx].clone()
        weight.normal_(0.0, std)
        if padding_idx is not None:
            weight[padding_idx] = kept
