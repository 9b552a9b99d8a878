"""Store: an opened checkpoint of any format. FolderStore: safetensors. PytorchStore: legacy PyTorch files.

source -> [Store] -> Model -> tokenizer, table, embeddings, head
- opening reads only headers. A shard's header is read when one of its tensors is requested, so only the shard with the
  table has to be present
- file names in an index are untrusted: only plain names in the same folder are accepted, and no symbolic link out of
  the folder, except into the blobs of the hub's cache, which consists of such links
- a tensor of a PyTorch file is a range of the file, so its rows are read like safetensors; the pickle is never executed
  (formats/torch_file.py, formats/torch_pickle.py)
- see also: other formats (gguf_store.py, remote/), which tensor is the table (families/tensor_names.py)
Tested in tests/checkpoint/test_folder.py; PyTorch files against torch.load, with hostile ones, in test_pytorch.py.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.find_quantized import find_quantized, logical_name, stored_values
from inlayer.errors import CheckpointError, MissingFileError
from inlayer.families.config_reader import read_config
from inlayer.families.tensor_names import ADAPTER
from inlayer.files import check_is_file, file_errors, format_path, parse_json, path_kind, printable, quote
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.row_reader import Bytes, FileRows, read_bytes
from inlayer.formats.safetensors import BITS, read_header
from inlayer.formats.tensor_info import TensorInfo
from inlayer.formats.torch_file import read_file
from inlayer.formats.torch_pickle import TensorView
from inlayer.tables import RowSource, StoredTable
from inlayer.tables.stored_table import Decoder, check_matrix, wrong_dtype
from inlayer.tokenizers import Tokenizer, open_tokenizer
from inlayer.tokenizers.open import find_in_folder

INDEX = "model.safetensors.index.json"
PYTORCH_WEIGHTS, PYTORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
MAX_INDEX = 64 << 20  # bytes; Kimi-K2's index of 139,644 tensors is about 14 MB
MAX_VALUES = 1_000_000  # a parsed value takes many times more memory than its bytes in the file
MAX_FILES = 4096  # shards; DeepSeek-V3 has 163
INTEGERS: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
PLAIN_FILE = re.compile(r"(?!\.)[^/\\\0:]{1,250}\.(safetensors|bin)")


class Store(ABC):
    """An opened checkpoint. The constructor of a subclass opens it, or raises an error with the reason."""

    kind: str  # "folder", "safetensors", "gguf", "pytorch", "hub"
    source: str  # the source in messages and reports
    config: dict[str, Any] | None  # config.json, or another format's equivalent, or None
    folder: Path  # where local files are
    remote = False  # true if rows are downloaded when they are read
    tokenizer_file: Path | None = None  # if the tokenizer is not next to the weights
    is_static = False  # a model2vec or StaticEmbedding model, which has only a table
    note: str = ""  # shown with the source, for example that it is a sample
    # tokens that `encode` skips: "special", "unknown" (model2vec), or "none" (StaticEmbedding)
    skipped_tokens: str = "special"

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
        """Return the dtype of a tensor's values, and what decodes its rows if the bytes are not the values."""

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        """Return a tensor with two axes as a table; does not read any rows."""
        tensor = self.find(name)
        check_matrix(tensor)
        dtype, decode_rows = self._encoding(tensor)
        return StoredTable(
            self.open_rows(tensor), tensor.shape[1], dtype, decode_rows=decode_rows, padding_idx=padding_idx, name=name
        )

    def read(self, name: str) -> npt.NDArray[Any]:
        """Read a whole tensor as floating-point values: for norms, biases, and position tables."""
        tensor = self.find(name)
        (dtype, decode_rows), raw = self._encoding(tensor), self._read_tensor(tensor)
        rows = math.prod(tensor.shape[:-1])
        values = raw.view(dtype) if decode_rows is None else decode_rows(raw.reshape(rows, -1))
        return values.reshape(tensor.shape)

    def read_integers(self, name: str) -> npt.NDArray[np.int64]:
        """Read a whole tensor of integers."""
        tensor = self.find(name)
        if tensor.dtype not in INTEGERS:
            raise wrong_dtype(tensor, "integers")
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

    def _local_path(self, name: str) -> Path:
        """Return the local path of a file of the checkpoint."""
        return self.folder / name

    def _exists(self, name: str) -> bool:
        """Return whether the checkpoint has this file."""
        return path_kind(self.folder / name) != "missing"

    def _read_tensor(self, tensor: TensorInfo) -> Bytes:
        return self._read_bytes(tensor.file, tensor.offset, tensor.nbytes)

    def _read_bytes(self, file: str, offset: int, nbytes: int) -> Bytes:
        return read_bytes(self._local_path(file), offset, nbytes)

    def open_rows(self, tensor: TensorInfo) -> RowSource:
        """Return the bytes of a tensor's rows, of any dtype."""
        return FileRows.for_tensor(self._local_path(tensor.file), tensor)


class FolderStore(Store):
    """The safetensors of a folder, or the single file `path`."""

    index_name = INDEX  # the name of the index file

    def __init__(self, path: Path) -> None:
        single = path_kind(path) == "file"
        self.kind, self.source = "safetensors" if single else "folder", format_path(path)
        self.folder = path.parent if single else path
        self._open(path.name if single else None)
        if self.config is None:
            self.note = self._adapter()

    def _open(self, file: str | None) -> None:
        """Read the config, and list the tensors of one file, or those of the folder."""
        config = self._local_path("config.json")
        self.config = None if path_kind(config) == "missing" else read_config(config)
        self._header = cache(self._read_header)
        self._index: Mapping[str, str] = {}  # file by tensor name
        if file is None and self._exists(self.index_name):
            self._index = self._read_index()
        else:
            self._index = self._list_tensors(self._weight_files() if file is None else {file})

    @cached_property
    def _names(self) -> Mapping[str, None]:
        return dict.fromkeys(map(logical_name, self._index))

    def names(self) -> Collection[str]:
        """Like `Store.names`; a quantized tensor is listed once, under its unquantized name."""
        return self._names.keys()

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
            raise wrong_dtype(tensor, "floating-point values")
        return SAFETENSORS_DTYPES[tensor.dtype], None

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        quantized = find_quantized(self, name)
        return super().table(name, padding_idx) if quantized is None else quantized.open(self, padding_idx)

    def read(self, name: str) -> npt.NDArray[Any]:
        return super().read(name) if find_quantized(self, name) is None else self.table(name).weight

    def open_tokenizer(self) -> Tokenizer | None:
        if self.tokenizer_file is not None:
            return open_tokenizer(self.tokenizer_file)
        for path in self.folder.iterdir():
            if path.suffix in {".json", ".model", ".tiktoken", ".txt"}:
                self._local_path(path.name)
        file = find_in_folder(self.folder)
        return None if file is None else open_tokenizer(file)

    def parameters(self) -> int | None:
        files = set(self._index.values())
        if not all(map(self._exists, files)):
            return None
        # Tensors at the same offset are counted once: in a PyTorch file, a tied head is a second name for the table.
        distinct = {(file, t.offset, t.shape): t for file in files for t in self._header(file).values()}
        return sum(map(stored_values, distinct.values()))

    def explain_missing_table(self) -> str:
        adapter = self._adapter()
        rule = f"it is {adapter}, which has no table of its own; open its base model"
        return rule if adapter else super().explain_missing_table()

    def _adapter(self) -> str:
        """Return what adapter_config.json calls the files: "an adapter (LORA) of" its base model; "" without one."""
        path = self._local_path("adapter_config.json")
        if path_kind(path) != "file":
            return ""
        settings = read_config(path)
        kind, base = (printable(str(settings.get(key) or "")[:80]) for key in ("peft_type", "base_model_name_or_path"))
        return f"an adapter{kind and f' ({kind})'}{base and f' of {base}'}"

    def _local_path(self, name: str) -> Path:
        return check_link(self.folder / name)

    def _list_tensors(self, files: Iterable[str]) -> dict[str, str]:
        """Build the index of files that have none."""
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
        path = self._local_path(file)
        if path_kind(path) == "missing":
            origin = ", which its index names" if self._index else ""
            name = format_path(file)
            raise MissingFileError(f"{self.source} is missing the file {name}{origin}; download it as well")
        return self._parse_header(path)

    def _parse_header(self, path: Path) -> dict[str, TensorInfo]:
        return read_header(path)

    def _weight_files(self) -> set[str]:
        """Return the files to use without an index: model.safetensors, or its shards, or all safetensors files."""
        files = {path.name for path in self.folder.glob("*.safetensors")}
        return {"model.safetensors"} & files or {file for file in files if file.startswith("model")} or files

    def _read_index(self) -> Mapping[str, str]:
        path = self._local_path(self.index_name)
        with file_errors(check_is_file(path), kind=CheckpointError), path.open("rb") as stream:
            data = stream.read(MAX_INDEX + 1)
        return parse_index(data, format_path(path))


class PytorchStore(FolderStore):
    """The tensors of a .bin or .pt file, or of `pytorch_model.bin` or its shards in a folder."""

    index_name = PYTORCH_INDEX

    def __init__(self, path: Path) -> None:
        self._not_contiguous: dict[str, TensorView] = {}
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
        if PYTORCH_WEIGHTS in files or not (shards or len(files) == 1):
            return {PYTORCH_WEIGHTS}
        return shards or files


def check_link(path: Path) -> Path:
    """Return a path in a checkpoint's folder, checked not to be a link out of it or out of the hub's cache."""
    if not path.is_symlink():
        return path
    try:
        real, home = path.resolve(), path.parent.resolve()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{format_path(path)} is a broken symbolic link") from error
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    if not any(real.is_relative_to(allowed) for allowed in (home, *blobs)):
        problem = "is a symbolic link that points outside its folder; copy its target into the folder"
        raise CheckpointError(f"{format_path(path)} {problem}")
    return path


def parse_index(data: bytes, source: str) -> dict[str, str]:
    """Return the file of every tensor."""
    if len(data) > MAX_INDEX:
        raise CheckpointError(f"{source} is {len(data):,} bytes; the limit for an index is {MAX_INDEX:,}")
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise CheckpointError(f"{source} has more than {MAX_VALUES:,} values; no model has that many tensors")
    weight_map: Any = parse_json(data, source, CheckpointError).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{source} has no weight_map, which gives the file of every tensor")
    for name, file in weight_map.items():
        check_file(file, name, source)
    if len(set(weight_map.values())) > MAX_FILES:
        raise CheckpointError(f"{source} names more than {MAX_FILES:,} files; no model has that many shards")
    return weight_map


def check_file(file: object, name: str, source: str) -> str:
    """Check that the name of a shard is a plain file name, not a path that could lead out of the folder."""
    if not isinstance(file, str) or not PLAIN_FILE.fullmatch(file) or not file.isprintable():
        raise CheckpointError(
            f"{source} maps tensor {quote(name)} to {quote(file)}; a shard must be a plain file name in the same folder"
        )
    return file
