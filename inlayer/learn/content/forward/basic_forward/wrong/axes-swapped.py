import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids, weight).transpose(1, 2)
    return hidden, hidden[0, :5, 0], bool((weight[padding_idx] == 0).all())
