import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids, weight)
    hidden[input_ids == padding_idx] = 0.0
    return hidden, hidden[0, 0, :5], bool(torch.all(hidden[input_ids == padding_idx] == 0))
