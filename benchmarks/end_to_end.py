"""text -> hidden states: inlayer compared with `tokenizers` + nn.Embedding, with DeepSeek-V3's vocabulary.

Both get the same batches of texts and return bit-identical padded hidden states (B, T, D). The table has DeepSeek-V3's
129,280 rows; its width is reduced to fit a small machine. A wider table or dtype shifts time from text -> ids, where
the gain is largest, to ids -> rows, where both are limited by memory speed. So the ratio depends on the dtype, and
two are measured with the same target: bfloat16, which DeepSeek-V3 uses, and float32, which is harder.

How far the ratio to the peers can go depends on the machine's memory. So inlayer is also compared with a limit that no
implementation can pass: our time for text -> ids, plus a plain copy of as many bytes as the hidden states have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tokenizers
import torch
from torch import Tensor, nn

from benchmarks.corpus import deepseek_tokenizer, english_texts
from benchmarks.lookup import touched_table
from benchmarks.measure import Result, interleave, milliseconds, ratio
from inlayer.embeddings import Embeddings
from inlayer.tables import Table
from inlayer.tokenizers import open_tokenizer

ROWS, WIDTH, BATCH, PAD = 129_280, 512, 128, 1
DTYPES = (torch.bfloat16, torch.float32)


def run() -> Iterator[Result]:
    """Yield one result per dtype."""
    for dtype in DTYPES:
        yield compare(dtype)


def compare(dtype: torch.dtype) -> Result:
    """Compare both implementations for one dtype."""
    folder = deepseek_tokenizer()
    texts = list(english_texts())
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    weight_VD = touched_table(ROWS, WIDTH, dtype)
    our_tokenizer, our_layer = (
        open_tokenizer(folder),
        Embeddings(ROWS, WIDTH, device="meta"),
    )  # rotary positions add nothing
    our_layer.set_input_embeddings(Table.from_weight(weight_VD))
    their_tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    their_tokenizer.enable_padding(pad_id=PAD)
    their_table = nn.Embedding(ROWS, WIDTH, _weight=weight_VD)

    def ours(batch: list[str]) -> Tensor:
        ids_BT, _ = our_tokenizer.encode_batch(batch, add_special_tokens=False).padded(PAD)
        hidden_BTD: Tensor = our_layer(ids_BT)
        return hidden_BTD

    def theirs(batch: list[str]) -> Tensor:
        encodings = their_tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        hidden_BTD: Tensor = their_table(torch.tensor([encoding.ids for encoding in encodings]))
        return hidden_BTD

    with torch.no_grad():
        hidden_states = [tuple(ours(batch).shape) for batch in batches]
        source, target = torch.ones(2, max(math.prod(shape) for shape in hidden_states), dtype=dtype)

        def limit() -> None:
            for batch, shape in zip(batches, hidden_states, strict=True):
                our_tokenizer.encode_batch(batch, add_special_tokens=False).padded(PAD)
                values = math.prod(shape)
                target[:values].copy_(source[:values])

        assert all(torch.equal(ours(batch), theirs(batch)) for batch in batches[:2])
        seconds = interleave(
            {
                "inlayer": lambda: [ours(batch).shape for batch in batches],
                "tokenizers + nn.Embedding": lambda: [theirs(batch).shape for batch in batches],
                "limit: text -> ids, and a copy": limit,
            },
            rounds=7,
        )
    return Result(
        name=f"end_to_end_deepseek_v3_{str(dtype).removeprefix('torch.')}",
        ratios=[
            ratio(
                "tokenizers + nn.Embedding / inlayer",
                seconds["tokenizers + nn.Embedding"],
                seconds["inlayer"],
                at_least=8.0,
            ),
            ratio("inlayer / limit", seconds["inlayer"], seconds["limit: text -> ids, and a copy"], at_most=1.3),
        ],
        measured=milliseconds(seconds),
        sizes={
            "texts": len(texts),
            "batch": BATCH,
            "rows": ROWS,
            "width": WIDTH,
            "dtype": str(dtype),
            "hidden states": sum(batch * length for batch, length, _ in hidden_states),
        },
        notes=["hidden states bit-identical"],
    )
