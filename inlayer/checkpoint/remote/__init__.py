"""A repository on the hub, opened from afar: config, tokenizer, index, one header, and then the rows asked for.

[checkpoint] -> Embeddings, Head, tokenizer
- `org/name`, or `org/name@revision`. Everything is asked of the one commit that was meant when it was opened
- small files (config.json, the tokenizer) are downloaded by huggingface_hub: its cache, tokens, endpoint and offline
  mode are the ones its users know. Weights are read by byte ranges, which are kept beside (hub/ranges.py): the second
  time needs no network
- weights that were downloaded before, by whatever library, are read from huggingface_hub's cache
- nothing of the repository is ever executed; names of files it gives are plain names or an error
- not here: GGUF and pickled weights of a repository, which cannot be read in parts: the error says how to get them
Checked against a server on this machine in tests/checkpoint/remote/test_hub.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.remote.parts import RemoteIndex
from inlayer.checkpoint.remote.ranges import RangeCache, RemoteFile, cache_folder
from inlayer.checkpoint.remote.remote import RemoteRows
from inlayer.checkpoint.remote.revision import pin, split_id
from inlayer.checkpoint.remote.transfer import AbsentError, Place, explain, hub_errors, require_hub
from inlayer.checkpoint.shards import INDEX, PLAIN_FILE, merge_headers
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, DtypeError, MissingFileError
from inlayer.families.fields import read_config
from inlayer.files import listing, printable
from inlayer.formats.dtypes import FLOAT_DTYPES, SAFETENSORS_DTYPES
from inlayer.formats.row_file import FileRows
from inlayer.formats.safetensors import LENGTH_BYTES, TensorInfo, header_length, parse_header
from inlayer.tables import StoredTable
from inlayer.tables.stored import check_table
from inlayer.tokenizers import Tokenizer, open_tokenizer
from inlayer.tokenizers.open import NAMES, OTHERS

__all__ = ["HubStore"]

SINGLE = "model.safetensors"
BESIDE_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "pat_str.txt")
FIRST_OF_HEADER = 64 << 10  # bytes; the whole header of most files
MAX_FILES = 256  # whose headers are read where no index says what is in them


class HubStore(Store):
    """A model repository on the hub at one commit."""

    kind = "hub"
    remote = True

    def __init__(self, repo_id: str, revision: str | None = None) -> None:
        require_hub()
        self.repo_id, self.revision = split_id(repo_id, revision)
        self.where = self.repo_id if self.revision is None else f"{self.repo_id}@{self.revision}"
        self.commit = pin(self.repo_id, self.revision)
        config = self._download("config.json")
        self.config = read_config(config) if config is not None else None
        self._cache = RangeCache(cache_folder(self.repo_id, self.commit))
        self._headers: dict[str, dict[str, TensorInfo]] = {}
        self._index: RemoteIndex | None = None
        try:
            self._index = RemoteIndex(self._open(INDEX), self._header)
        except AbsentError:
            self._tensors = self._read_headers()

    def names(self) -> Collection[str]:
        """The names of all tensors; reads all of the index, which `first_of` avoids."""
        return (self._index.files() if self._index is not None else self._tensors).keys()

    def first_of(self, candidates: Sequence[str]) -> str | None:
        """One of these names that a tensor has, the preferred ones first; reads no more of the index than it takes."""
        if self._index is None:
            return next((name for name in candidates if name in self._tensors), None)
        found = self._index.first_of(candidates)
        return found[0] if found is not None else None

    def find(self, name: str) -> TensorInfo:
        """Where a tensor lies, by the header of its file."""
        if self._index is None:
            if name not in self._tensors:
                raise CheckpointError(f"{self.where} holds no tensor {name!r}")
            return self._tensors[name]
        found = self._index.first_of([name])
        if found is None:
            raise CheckpointError(f"{self.where} holds no tensor {name!r}")
        stored = self._header(found[1]).get(name)
        if stored is None:
            raise CheckpointError(
                f"{self.where}: the index puts tensor {name!r} into {found[1]}, which does not hold it"
            )
        return stored

    def read(self, name: str) -> npt.NDArray[Any]:
        """A whole tensor in memory."""
        stored = self.find(name)
        if stored.dtype not in SAFETENSORS_DTYPES:
            raise DtypeError(f"tensor {name!r} of {stored.file} has dtype {stored.dtype}; its values are no floats")
        data = self._open(stored.file).read(stored.offset, stored.offset + stored.nbytes)
        return np.frombuffer(bytearray(data), SAFETENSORS_DTYPES[stored.dtype]).reshape(stored.shape)

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        """A tensor of two axes as a table, none of whose rows is read yet."""
        stored = check_table(self.find(name))
        rows, width = stored.shape
        file, place = self._open(stored.file), (stored.offset, rows, stored.nbytes // rows)
        source = FileRows(file.local, *place) if file.local is not None else RemoteRows(file, *place)
        return StoredTable(source, width, SAFETENSORS_DTYPES[stored.dtype], padding_idx=padding_idx, name=name)

    def open_tokenizer(self) -> Tokenizer | None:
        """The repository's tokenizer, or None where it has none; only its files are downloaded."""
        file = self._tokenizer_file()
        if file is None:
            return None
        for name in BESIDE_TOKENIZER:
            self._download(name)
        return open_tokenizer(file)

    def parameters(self) -> int | None:
        """How many parameters the model has, where headers or the part of the index that was read say so."""
        if self._index is None:
            return sum(prod(stored.shape) for stored in self._tensors.values())
        said = self._index.number("total_parameters")
        total = self._index.number("total_size")
        config = self.config or {}
        dtype = FLOAT_DTYPES.get(str(config.get("dtype") or config.get("torch_dtype")))
        if said is not None or total is None or dtype is None or "quantization_config" in config:
            return said
        return total // dtype.itemsize

    def _open(self, file: str) -> RemoteFile:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo_id, file, revision=self.commit)
        return RemoteFile(self._place(file), self._cache, Path(found) if isinstance(found, str) else None)

    def _place(self, file: str) -> Place:
        return Place(repo_id=self.repo_id, commit=self.commit, file=file)

    def _header(self, file: str) -> dict[str, TensorInfo]:
        """The tensors of one file, by two requests at most."""
        if file not in self._headers:
            remote = self._open(file)
            start, where = remote.read(0, FIRST_OF_HEADER), str(remote.place)
            stop = LENGTH_BYTES + header_length(start, remote.size, where)
            data = (start + remote.read(len(start), stop))[LENGTH_BYTES:stop]
            self._headers[file] = parse_header(data, remote.size, where, file=file)
        return self._headers[file]

    def _read_headers(self) -> dict[str, TensorInfo]:
        """All tensors of a repository that has no index."""
        try:
            return self._header(SINGLE)
        except AbsentError:
            files = self._weight_files(self._list_files())
        return merge_headers(map(self._header, files), self.where)

    def _weight_files(self, files: Iterable[str]) -> list[str]:
        """The safetensors files of the repository, or an error that names what it has instead."""
        plain = sorted(file for file in files if "/" not in file)
        found = [file for file in plain if file.endswith(".safetensors") and PLAIN_FILE.fullmatch(file)]
        if len(found) > MAX_FILES:
            raise CheckpointError(f"{self.where} has {len(found)} safetensors files and no {INDEX} that orders them")
        if found:
            return found
        others = [file for file in plain if file.endswith((".gguf", ".bin", ".pt", ".pth"))]
        if others:
            raise CheckpointError(
                f"{self.where} has no safetensors, only {printable(listing(others, limit=3))}, which cannot be read in "
                f"parts; download it (`hf download {self.repo_id} {printable(others[0])}`) and open the file"
            )
        raise MissingFileError(f"{self.where} holds no weights: no {INDEX}, no {SINGLE}, no other safetensors file")

    def _tokenizer_file(self) -> Path | None:
        for name in NAMES:
            file = self._download(name)
            if file is not None:
                return file
        plain = sorted(file for file in self._list_files() if "/" not in file)
        found = [file for pattern in OTHERS for file in plain if fnmatchcase(file, pattern)]
        return self._download(found[0]) if found else None

    def _download(self, file: str) -> Path | None:
        """A small file of the commit on disk; None where the commit has no such file."""
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        kept = try_to_load_from_cache(self.repo_id, file, revision=self.commit)
        if kept is not None:
            return Path(kept) if isinstance(kept, str) else None  # the third answer: known not to be there
        try:
            return Path(hf_hub_download(self.repo_id, file, revision=self.commit))
        except hub_errors() as error:
            explained = explain(error, str(self._place(file)))
            if isinstance(explained, AbsentError):
                return None
            raise explained from error

    def _list_files(self) -> list[str]:
        """The names of all files of the commit; asked once."""
        from huggingface_hub import HfApi

        key, span = "", (0, 0)  # no file has this name
        kept = self._cache.get(key, [span])
        if kept:
            return list(json.loads(kept[span]))
        try:
            files = HfApi().list_repo_files(self.repo_id, revision=self.commit)
        except hub_errors() as error:
            raise explain(error, f"the list of files of {self.where}") from error
        self._cache.put(key, {span: json.dumps(files).encode()})
        return files
