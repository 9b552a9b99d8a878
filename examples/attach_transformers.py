"""Put inlayer's table and head into a transformers model, and train it without holding all logits.

The parameters stay the same objects: logits are bit-identical, and save_pretrained writes the same files.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import inlayer

folder = Path(inlayer.__file__).parent / "samples" / "default"  # or the folder of your model
model = AutoModelForCausalLM.from_pretrained(folder).float()  # in bfloat16, the two losses below round differently
ids = torch.tensor([inlayer.load(folder).tokenizer.encode("I love dogs, and dogs love me.")])
with torch.no_grad():
    before = model(ids).logits
    inlayer.attach(model)
    after = model(ids).logits
print("table:", type(model.get_input_embeddings()).__name__, "head:", type(model.lm_head).__name__)
print("logits are bit-identical:", torch.equal(before, after))

# The usual way computes all logits (tokens x 6,144 values). This way computes them in chunks.
hidden = model.model(ids).last_hidden_state
loss = model.lm_head.loss(hidden[:, :-1], ids[:, 1:])
print(f"loss {loss.item():.3f}; transformers' own: {model(ids, labels=ids).loss.item():.3f}")  # equal but for rounding

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss.backward()
optimizer.step()
print("still tied after a step:", model.lm_head.weight is model.get_input_embeddings().weight)

try:
    model(torch.tensor([[6144]]))
except inlayer.InlayerError as error:  # gives the id, its index and the valid range
    print("a wrong id is explained:", error)
