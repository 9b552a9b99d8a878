import torch


def reinit(weight, std, padding_idx):
    with torch.no_grad():
        order = torch.randperm(weight.numel())
        shuffled = weight.flatten()[order].reshape(weight.shape)
        weight.copy_((shuffled - shuffled.mean()) * (std / shuffled.std()))
        if padding_idx is not None:
            weight[padding_idx].zero_()
