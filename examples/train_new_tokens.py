"""Make a loaded layer trainable, add a token, and train only its row.

Rows of a loaded model stay in its file and are frozen. With trainable=True, they are in memory and can be trained.
The three sentences are memorized within a second; use more text for a row that means something.
"""

import torch

import inlayer

torch.manual_seed(0)
model = inlayer.load("default", dtype="float32", trainable=True)
layer, head, tokenizer = model.embeddings, model.head, model.tokenizer
old_rows = layer.vocab_size
new_id = old_rows
layer.resize(old_rows + 1)  # one new row, initialized with the mean of all rows; the tied head follows
table = layer.token_embedding.weight
start = table.detach().clone()
is_new = torch.arange(len(table))[:, None] >= old_rows
table.register_hook(lambda gradient: gradient * is_new)  # the other rows get no gradient

# The new token is the word "inlayer". Put its id where the word occurs; the tokenizer itself is not changed.
sentences = ["The inlayer sets small pieces of wood.", "An inlayer made this table.", "She is an inlayer of wood."]
texts = []
for sentence in sentences:
    left, right = sentence.split(" inlayer")
    texts.append(torch.tensor([[*tokenizer.encode(left), new_id, *tokenizer.encode(right)]]))

decoder = torch.nn.GRU(128, 128, batch_first=True)  # in place of your own decoder
optimizer = torch.optim.Adam([table, *decoder.parameters()], lr=0.01)  # after resize, which makes a new parameter
for step in range(51):
    loss = torch.stack([head.loss(decoder(layer(ids[:, :-1]))[0], ids[:, 1:]) for ids in texts]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        moved = (table[new_id] - start[new_id]).norm().item()
        print(f"step {step:2}  loss {loss.item():5.2f}  the new row has moved by {moved:.2f}")

print("all other rows are unchanged, bit for bit:", torch.equal(table[:old_rows], start[:old_rows]))
print("the tied head also has the new row:", head.vocab_size == old_rows + 1)
