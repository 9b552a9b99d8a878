"""Remote checkpoints: hub repositories and URLs, read by byte range."""

from inlayer.checkpoint.remote.choose_store import open_remote
from inlayer.checkpoint.remote.transfer import UnreachableError

__all__ = ["UnreachableError", "open_remote"]
