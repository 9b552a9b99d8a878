"""Store: an opened checkpoint of any format. FolderStore: safetensors. PytorchStore: legacy PyTorch files.

source -> [Store] -> Model -> tokenizer, table, embeddings, head
- opening reads only headers. A shard's header is read when one of its tensors is requested, so only the table's shard
  has to be present
- files may be local or remote (checkpoint/folder.py): a store only opens them by name. PyTorch files are always
  local because they cannot be read by byte range
- a tensor in a PyTorch file is a byte range, so its rows are read like safetensors; the pickle is never executed
  (formats/torch_file.py, formats/torch_pickle.py)
- see also: the index of shards (shard_index.py), GGUF (gguf_store.py), the names of tables (families/tensor_names.py)
Tested in tests/checkpoint/test_folder.py, remote files in tests/checkpoint/remote/; PyTorch files against torch.load,
including malicious ones, in test_pytorch.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from inlayer.checkpoint.find_quantized import find_quantized, logical_name, packed_names, stored_values
from inlayer.checkpoint.folder import Folder
from inlayer.checkpoint.shard_index import INDEX, PartialIndex, open_index
from inlayer.errors import CheckpointError, MissingFileError
from inlayer.families.config_reader import read_config
from inlayer.families.tensor_names import ADAPTER
from inlayer.files import check_is_file, format_path, join_names, path_kind, printable, quote
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.safetensors import BITS, read_tensors
from inlayer.formats.tensor_info import TensorInfo
from inlayer.formats.torch_file import read_file
from inlayer.formats.torch_pickle import TensorView
from inlayer.shapes import Array, Bytes, Ids
from inlayer.tables import RowSource, StoredTable
from inlayer.tables.stored_table import Decoder, check_matrix, wrong_dtype_error
from inlayer.tokenizers import Tokenizer, open_tokenizer

SINGLE = "model.safetensors"
PYTORCH_WEIGHTS, PYTORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
MAX_SHARDS = 256  # remote shards whose headers are read if the index is missing
INTEGERS: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}


class Store(ABC):
    """An opened checkpoint. The constructor of a subclass opens it, or raises an error with the reason."""

    kind: str  # "folder", "safetensors", "gguf", "pytorch", "hub", "url"
    config: dict[str, Any] | None  # config.json, or another format's equivalent, or None
    tokenizer_file: Path | None = None  # set if the tokenizer is not next to the weights
    is_static = False  # a model2vec or StaticEmbedding model, which has only a table
    note: str = ""  # shown with the source, for example that it is a sample
    # tokens that `encode` skips: "special", "unknown" (model2vec), or "none" (StaticEmbedding)
    skipped_tokens: str = "special"

    def __init__(self, files: Folder, file: str | None) -> None:
        self.files = files
        self.source = files.describe(file)  # in messages and reports
        self.remote = files.remote  # whether rows are downloaded when they are read

    @abstractmethod
    def names(self) -> Collection[str]:
        """Return the names of all tensors, without reading more than an index."""

    def find_first(self, candidates: Sequence[str]) -> str | None:
        """Return the first of these names that is a tensor. A remote store reads as little of its index as possible."""
        names = self.names()
        return next((name for name in candidates if name in names), None)

    @abstractmethod
    def find(self, name: str) -> TensorInfo:
        """Return the dtype, the shape, and the location of a tensor; reads the header of its file if necessary."""

    @abstractmethod
    def _encoding(self, tensor: TensorInfo) -> tuple[np.dtype[Any], Decoder | None]:
        """Return the dtype of a tensor's values, and a decoder for its rows, or None if the bytes are the values."""

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        """Return a tensor with two axes as a table; does not read any rows."""
        tensor = self.find(name)
        check_matrix(tensor)
        dtype, decode_rows = self._encoding(tensor)
        return StoredTable(
            self.open_rows(tensor), tensor.shape[1], dtype, decode_rows=decode_rows, padding_idx=padding_idx, name=name
        )

    def read(self, name: str) -> Array:
        """Read a whole tensor as floating-point values: for norms, biases, and position tables."""
        tensor = self.find(name)
        (dtype, decode_rows), raw = self._encoding(tensor), self._read_tensor(tensor)
        rows = math.prod(tensor.shape[:-1])
        values = raw.view(dtype) if decode_rows is None else decode_rows(raw.reshape(rows, -1))
        return values.reshape(tensor.shape)

    def read_integers(self, name: str) -> Ids:
        """Read a whole tensor of integers."""
        tensor = self.find(name)
        if tensor.dtype not in INTEGERS:
            raise wrong_dtype_error(tensor, "integers")
        return self._read_tensor(tensor).view(INTEGERS[tensor.dtype]).reshape(tensor.shape).astype(np.int64)

    @abstractmethod
    def open_tokenizer(self) -> Tokenizer | None:
        """Return the checkpoint's tokenizer, or None if it has none."""

    @abstractmethod
    def parameters(self) -> int | None:
        """Return the number of parameters of the whole model, if headers or an index give it cheaply."""

    def explain_missing_table(self) -> str:
        """Suggest why no table was found, for an error message."""
        found = next(filter(None, map(ADAPTER.search, self.names())), None)
        if found is None:
            return "is a shard missing?"
        kind = "prompt-tuning" if found["prompt"] else "LoRA"
        return f"its tensors are those of a {kind} adapter; open its base model"

    def _read_tensor(self, tensor: TensorInfo) -> Bytes:
        return self.files.open(tensor.file).read_bytes(tensor.offset, tensor.nbytes)

    def open_rows(self, tensor: TensorInfo) -> RowSource:
        """Return the bytes of a tensor's rows, of any dtype."""
        return self.files.open(tensor.file).rows_of(tensor)


class FolderStore(Store):
    """The safetensors files in a folder, or one of them."""

    index_name = INDEX  # the name of the index file

    def __init__(self, files: Folder, file: str | None = None) -> None:
        super().__init__(files, file)
        self.kind = files.kind if file is None or files.remote else "safetensors"
        config = files.local_path("config.json")
        self.config = None if path_kind(config) == "missing" else read_config(config)
        self._header = cache(self._read_header)
        self._index: Mapping[str, str] = {}  # file by tensor name
        if file is None and files.has(self.index_name):
            self._index = open_index(files, self.index_name)
        else:
            self._index = self._list_tensors(self._weight_files() if file is None else {file})
        if self.config is None and not self.remote:  # a note is not worth a request
            self.note = self._adapter()

    @cached_property
    def _names(self) -> Mapping[str, None]:
        return dict.fromkeys(map(logical_name, self._index))

    def names(self) -> Collection[str]:
        """Like `Store.names`; a quantized tensor is listed once, under its unquantized name."""
        return self._names.keys()

    def find_first(self, candidates: Sequence[str]) -> str | None:
        if isinstance(index := self._index, PartialIndex):
            hinted = (name for name in candidates if any(map(index.hint, (name, *packed_names(name)))))
            if (name := next(hinted, None)) is not None:
                return name
        return super().find_first(candidates)

    def find(self, name: str) -> TensorInfo:
        """Like `Store.find`; a quantized table is described as one tensor, under its unquantized name."""
        quantized = find_quantized(self, name)
        if quantized is not None:
            return quantized.info
        tensor = self.find_stored(name)
        if tensor is None:
            raise CheckpointError(f"{self.source} has no tensor {quote(name)}")
        return tensor

    def find_stored(self, name: str) -> TensorInfo | None:
        """Return a tensor as it is stored, or None if there is no such name."""
        file = self._index.get(name)
        if file is None:
            return None
        tensor = self._header(file).get(name)
        if tensor is None:
            source = f"{self.source}: the index says tensor {quote(name)} is in {format_path(file)}"
            raise CheckpointError(f"{source}, which does not contain it")
        return tensor

    def _encoding(self, tensor: TensorInfo) -> tuple[np.dtype[Any], None]:
        if tensor.dtype not in SAFETENSORS_DTYPES:
            raise wrong_dtype_error(tensor, "floating-point values")
        return SAFETENSORS_DTYPES[tensor.dtype], None

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        quantized = find_quantized(self, name)
        return super().table(name, padding_idx) if quantized is None else quantized.open(self, padding_idx)

    def read(self, name: str) -> Array:
        return super().read(name) if find_quantized(self, name) is None else self.table(name).weight

    def open_tokenizer(self) -> Tokenizer | None:
        file = self.tokenizer_file or self.files.find_tokenizer()
        return None if file is None else open_tokenizer(file)

    def parameters(self) -> int | None:
        if isinstance(self._index, PartialIndex):
            return self._index.parameters(self.config or {})
        files = set(self._index.values())
        if not all(map(self.files.has, files)):
            return None
        # Tensors at the same offset are counted once: in a PyTorch file, a tied head is a second name for the table.
        distinct = {(file, t.offset, t.shape): t for file in files for t in self._header(file).values()}
        return sum(map(stored_values, distinct.values()))

    def explain_missing_table(self) -> str:
        adapter = self._adapter()
        rule = f"it is {adapter}, which has no table of its own; open its base model"
        return rule if adapter else super().explain_missing_table()

    def _adapter(self) -> str:
        """Describe the files by adapter_config.json ("an adapter (LORA) of" its base model), or return ""."""
        path = self.files.local_path("adapter_config.json")
        if path_kind(path) != "file":
            return ""
        settings = read_config(path)
        kind, base = (printable(str(settings.get(key) or "")[:80]) for key in ("peft_type", "base_model_name_or_path"))
        return f"an adapter{kind and f' ({kind})'}{base and f' of {base}'}"

    def _list_tensors(self, files: Iterable[str]) -> dict[str, str]:
        """Build the index for files that have none."""
        index: dict[str, str] = {}
        for file in sorted(files):
            for name in self._header(file):
                if name in index:
                    files_of_it = f"both {quote(index[name])} and {quote(file)}"
                    hint = "without an index that lists the ones to use; open one of the files instead"
                    raise CheckpointError(f"{self.source}: tensor {quote(name)} is in {files_of_it}, {hint}")
                index[name] = file
        return index

    def _read_header(self, file: str) -> dict[str, TensorInfo]:
        if not self.remote and not self.files.has(file):  # reading a remote file reports it, without another request
            origin = ", which its index names" if self._index else ""
            name = format_path(file)
            raise MissingFileError(f"{self.source} is missing the file {name}{origin}; download it as well")
        return self._read_tensors(file)

    def _read_tensors(self, file: str) -> dict[str, TensorInfo]:
        return read_tensors(self.files.open(file), file)

    def _weight_files(self) -> set[str]:
        """Return the files to use without an index: model.safetensors, or its shards, or all safetensors files."""
        if self.files.has(SINGLE):
            return {SINGLE}
        names = self.files.list_names() or []
        files = {name for name in names if name.endswith(".safetensors")}
        weights = {name for name in files if name.startswith("model")} or files
        if self.remote and len(weights) > MAX_SHARDS:
            raise CheckpointError(f"{self.source} has {len(weights)} safetensors files but no {INDEX}")
        others = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
        if not weights and others:
            hint = "which cannot be read by byte range; download it and open the local file"
            raise CheckpointError(f"{self.source} has no safetensors, only {join_names(others, limit=3)}, {hint}")
        if not weights:
            raise MissingFileError(f"{self.source} has no weights: neither {INDEX} nor {SINGLE} nor other safetensors")
        return weights


class PytorchStore(FolderStore):
    """The tensors of a .bin or .pt file, or of `pytorch_model.bin` or its shards in a folder."""

    index_name = PYTORCH_INDEX

    def __init__(self, files: Folder, file: str | None = None) -> None:
        self._not_contiguous: dict[str, TensorView] = {}
        super().__init__(files, file)
        self.kind = "pytorch"

    def find(self, name: str) -> TensorInfo:
        stored = super().find(name)
        if name in self._not_contiguous:
            view = self._not_contiguous[name]
            which = f"tensor {quote(name)} of {stored.file} has shape {view.shape} and strides {view.strides}"
            raise CheckpointError(f"{which}: it is not stored row by row; call .contiguous() and save it again")
        return stored

    def _read_tensors(self, file: str) -> dict[str, TensorInfo]:
        views, offsets = read_file(check_is_file(self.files.local_path(file)))
        self._not_contiguous |= {name: view for name, view in views.items() if not view.is_contiguous}
        tensors: dict[str, TensorInfo] = {}
        for name, view in views.items():
            item = BITS[view.dtype] // 8
            offset, nbytes = offsets[view.storage.key] + view.offset * item, math.prod(view.shape) * item
            tensors[name] = TensorInfo(
                name=name, dtype=view.dtype, shape=view.shape, file=file, offset=offset, nbytes=nbytes
            )
        return tensors

    def _weight_files(self) -> set[str]:
        """Return the usual file, or its shards, or the only .bin file."""
        files = {name for name in self.files.list_names() or () if name.endswith(".bin")}
        shards = {file for file in files if file.startswith("pytorch_model-")}
        if PYTORCH_WEIGHTS in files or not (shards or len(files) == 1):
            return {PYTORCH_WEIGHTS}
        return shards or files
