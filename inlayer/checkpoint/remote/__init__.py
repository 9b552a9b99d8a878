"""Remote checkpoints: hub repositories and URLs, read by byte range.

[checkpoint] -> Embeddings, Head, tokenizer
- transfer.py reads ranges, cache.py keeps them, source.py finds files; index.py, rows.py and store.py read checkpoints
Tested in tests/checkpoint/remote/.
"""

from __future__ import annotations

from inlayer.checkpoint.remote.store import open_remote
from inlayer.checkpoint.remote.transfer import UnreachableError

__all__ = ["UnreachableError", "open_remote"]
