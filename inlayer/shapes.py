"""Base module without code: the letters that name tensor sizes throughout inlayer.

B batch, T tokens of one text, V table rows (vocabulary), D width of a row (n_embd), H heads, K head width,
N tokens in the flattened batch (B * T), S tokens before a text (its history), U unique ids of a batch, Q queries,
C tokens of one chunk, L layers, P width of one layer's vector, W width of a value embedding, R rotated channels; with
several processes, M rows of one of them, G processes. Other letters are local to a function.
A suffix gives a tensor's shape where it is created: `hidden_BTD`.
"""
