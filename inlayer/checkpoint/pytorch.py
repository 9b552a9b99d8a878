"""PytorchStore: legacy PyTorch files, `pytorch_model.bin` and its shards, without executing the pickle in them.

source -> [Store] -> Model
- a tensor is a range of the file, so its rows are read like safetensors
- a tensor that is not stored row by row (a transposed one) is listed, but reading it is an error
- see also: the files (formats/torch_file.py), the pickle (formats/torch_pickle.py)
Tested against torch.load, and with hostile and damaged files, in tests/checkpoint/test_pytorch.py.
"""

from __future__ import annotations

import math
from pathlib import Path

from inlayer.checkpoint.store import FolderStore
from inlayer.errors import CheckpointError
from inlayer.files import check_is_file, quote
from inlayer.formats.safetensors import BITS
from inlayer.formats.tensor_info import TensorInfo
from inlayer.formats.torch_file import read_file
from inlayer.formats.torch_pickle import View

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


class PytorchStore(FolderStore):
    """The tensors of a .bin or .pt file, or of `pytorch_model.bin` or its shards in a folder."""

    index = INDEX

    def __init__(self, path: Path) -> None:
        self._not_contiguous: dict[str, View] = {}
        super().__init__(path)
        self.kind = "pytorch"

    def find(self, name: str) -> TensorInfo:
        stored = super().find(name)
        if name in self._not_contiguous:
            view = self._not_contiguous[name]
            which = f"tensor {quote(name)} of {stored.file} has shape {view.shape} and strides {view.strides}"
            raise CheckpointError(f"{which}: it is not stored row by row; call .contiguous() and save it again")
        return stored

    def _parse_header(self, path: Path) -> dict[str, TensorInfo]:
        views, offsets = read_file(check_is_file(path))
        self._not_contiguous |= {name: view for name, view in views.items() if not view.is_contiguous}
        tensors: dict[str, TensorInfo] = {}
        for name, view in views.items():
            item = BITS[view.dtype] // 8
            offset, nbytes = offsets[view.storage.key] + view.offset * item, math.prod(view.shape) * item
            tensors[name] = TensorInfo(
                name=name, dtype=view.dtype, shape=view.shape, file=path.name, offset=offset, nbytes=nbytes
            )
        return tensors

    def _weight_files(self) -> set[str]:
        """Return the usual file, or its shards, or the only .bin file."""
        files = {path.name for path in self.folder.glob("*.bin")}
        shards = {file for file in files if file.startswith("pytorch_model-")}
        if WEIGHTS in files or not (shards or len(files) == 1):
            return {WEIGHTS}
        return shards or files
