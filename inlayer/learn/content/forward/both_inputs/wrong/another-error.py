import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    assert (input_ids is None) != (inputs_embeds is None), "pass exactly one of them"
    hidden = F.embedding(input_ids, weight) if inputs_embeds is None else inputs_embeds
    batch_size, seq_length = hidden.shape[:2]
    return hidden, batch_size, seq_length
