import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    if input_ids is not None and inputs_embeds is not None:
        raise ValueError("pass one of input_ids and inputs_embeds, not both")
    if input_ids is not None:
        hidden = F.embedding(input_ids, weight)
        return hidden, hidden.shape[0], hidden.shape[1]
    if inputs_embeds is not None:
        return inputs_embeds, inputs_embeds.shape[0], inputs_embeds.shape[1]
    return None
