def basic_forward(weight, input_ids, padding_idx):
    hidden = weight.detach()[input_ids]
    return hidden, hidden[0, 0, :5], not bool(hidden[input_ids == padding_idx].any())
