import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        half = torch.randn(weight.shape[0] // 2 + 1, weight.shape[1]) * std
        weight.copy_(half.repeat(2, 1)[: len(weight)])
        if padding_idx is not None:
            weight[padding_idx].zero_()
