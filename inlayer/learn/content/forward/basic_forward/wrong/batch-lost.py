import torch
import torch.nn.functional as F


def basic_forward(weight, input_ids, padding_idx):
    hidden = F.embedding(input_ids[0], weight)
    return hidden, hidden[0, :5], bool(torch.all(hidden[input_ids[0] == padding_idx] == 0))
