"""Open a checkpoint's embedding layer without loading the model.

Pass a folder, a .safetensors or .gguf file, or a hub id; the default is the bundled sample model.
"""

import sys

import inlayer

model = inlayer.load(sys.argv[1] if len(sys.argv) > 1 else "default")  # reads only headers
info = model.table_info
print(f"table: {info.name}, {info.shape[0]:,} x {info.shape[1]:,} {info.dtype}, at byte {info.offset:,}")

# Rows and tokens need only numpy.
ids = model.tokenizer.encode("I love dogs")
rows = model.table.rows(ids)  # reads these rows and nothing else
print(f"ids {ids}; rows {rows.shape} {rows.dtype}")

# The whole layer needs torch. docs/families.md lists the families whose hidden states match transformers.
if model.spec is not None:
    import torch

    hidden = model.embeddings(torch.tensor([ids]))
    print(f"family {model.spec.family}, positions {model.spec.positions}, hidden states {tuple(hidden.shape)}")
    if model.head is not None:
        logits = model.head(hidden)
        print(f"logits {tuple(logits.shape)}, tied {model.head.tied}")
