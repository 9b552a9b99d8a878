import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    if input_ids is None and inputs_embeds is None:
        raise ValueError("pass input_ids or inputs_embeds")
    if inputs_embeds is None:
        inputs_embeds = F.embedding(input_ids, weight)
    batch_size, seq_length = inputs_embeds.shape[:2]
    return inputs_embeds, batch_size, seq_length
