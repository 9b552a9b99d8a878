import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    if input_ids and inputs_embeds:
        raise ValueError("pass one of input_ids and inputs_embeds, not both")
    if not input_ids and not inputs_embeds:
        raise ValueError("pass input_ids or inputs_embeds")
    hidden = inputs_embeds if inputs_embeds else F.embedding(input_ids, weight)
    batch_size, seq_length = hidden.shape[:2]
    return hidden, batch_size, seq_length
