import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids, weight)
    return hidden, hidden[0, :5, 0], bool(torch.all(hidden[input_ids == padding_idx] == 0))
