import torch


def basic_forward(weight, input_ids, padding_idx):
    hidden = weight[input_ids]
    padding = hidden[input_ids == padding_idx]
    return hidden, hidden[0, 0, :5], torch.allclose(padding, torch.zeros_like(padding))
