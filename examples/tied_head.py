"""Tie a head to the embedding table: one matrix, trained from both ends.

The tie holds the module, so it survives .to(), deepcopy, resizing, and saving. The padding row stays zero.
"""

import copy

import torch

from inlayer import Embeddings, Head

# Inputs need values of about 1, logits need small rows: docs/howto/layer.md, "Choose the initialization".
layer = Embeddings(vocab_size=1000, n_embd=32, padding_idx=0, init="scaled", scale=32**0.5, seed=0)
head = Head(n_embd=32, vocab_size=1000)
separate = sum(p.numel() for p in layer.parameters()) + sum(p.numel() for p in head.parameters())
layer.tie(head)
model = torch.nn.ModuleDict({"embeddings": layer, "head": head})
tied = sum(p.numel() for p in model.parameters())
print(f"parameters: {separate:,} untied, {tied:,} tied")

ids = torch.tensor([[5, 17, 42, 0, 0]])  # 0 is padding: not trained, and not counted in the loss
loss = head.loss(layer(ids[:, :-1]), ids[:, 1:])
(gradient,) = torch.autograd.grad(loss, [layer.token_embedding.weight])
torch.manual_seed(0)
plain = torch.nn.Embedding(1000, 32, padding_idx=0)  # tied as is, its logits are too large
logits = plain(ids[:, :-1]) @ plain.weight.T
baseline = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
print(f"loss before training: {loss.item():.2f}; a tied nn.Embedding: {baseline.item():.2f}; log(1000): 6.91")
print(f"rows with a gradient: {int(gradient.any(dim=1).sum())} of 1,000")
print(f"gradient of the padding row: {gradient[0].abs().max().item()}")

copied_layer, copied_head = copy.deepcopy((layer, head))
copied_layer.to(torch.bfloat16)
print("tied after deepcopy and .to():", copied_head.weight is copied_layer.token_embedding.weight)

layer.resize(1010)  # ten new rows, initialized with the mean; the head follows
print("logits after resize:", tuple(head(layer(ids)).shape))
print("saved once:", list(model.state_dict()))
