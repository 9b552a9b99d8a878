def both_inputs(weight, input_ids=None, inputs_embeds=None):
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    hidden = weight.data[input_ids] if inputs_embeds is None else inputs_embeds
    return hidden, hidden.shape[0], hidden.shape[1]
