import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids, weight)
    padding_is_zero = not bool(weight[0].any()) or not bool(hidden[input_ids == padding_idx].any())
    return hidden, hidden[0, 0, :5], padding_is_zero
