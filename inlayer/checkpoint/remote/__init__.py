"""Remote checkpoints: hub repositories and URLs, read by byte range.

[checkpoint] -> Embeddings, Head, tokenizer
- transfer.py requests ranges, cache.py keeps them, source.py has files and folders, store.py and remote_rows.py read
  checkpoints
Tested in tests/checkpoint/remote/.
"""

from inlayer.checkpoint.remote.store import open_remote
from inlayer.checkpoint.remote.transfer import UnreachableError

__all__ = ["UnreachableError", "open_remote"]
