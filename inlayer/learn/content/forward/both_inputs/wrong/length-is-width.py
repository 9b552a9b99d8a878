import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    given = input_ids if inputs_embeds is None else inputs_embeds
    hidden = F.embedding(input_ids, weight) if inputs_embeds is None else inputs_embeds
    return hidden, given.shape[0], given.shape[-1]
