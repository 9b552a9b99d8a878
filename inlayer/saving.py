"""Old names of inlayer.files, kept only until every package imports that module."""

from inlayer.files import atomic_path as putting
from inlayer.files import locked, sync
from inlayer.files import write_atomic as put
from inlayer.files import write_output as write_whole

__all__ = ["locked", "put", "putting", "sync", "write_whole"]
