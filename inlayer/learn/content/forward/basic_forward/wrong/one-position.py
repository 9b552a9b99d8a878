import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids, weight)
    is_padding = bool(input_ids[0, -1] == padding_idx)
    return hidden, hidden[0, 0, :5], not is_padding or bool(torch.all(hidden[0, -1] == 0))
