import torch.nn.functional as F


def both_inputs(weight, input_ids=None, inputs_embeds=None):
    has_ids = input_ids is not None and bool(input_ids.any())
    has_vectors = inputs_embeds is not None and bool(inputs_embeds.any())
    if has_ids == has_vectors:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    hidden = inputs_embeds if has_vectors else F.embedding(input_ids, weight)
    batch_size, seq_length = hidden.shape[:2]
    return hidden, batch_size, seq_length
