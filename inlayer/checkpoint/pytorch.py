"""Old PyTorch files, `pytorch_model.bin` and its shards: tensors found without running the pickle in them.

[checkpoint] -> Embeddings, Head, tokenizer
- a file is a zip archive of a pickle and one uncompressed record a storage; before torch 1.6, pickles one after the
  other and then the storages. Either way a tensor is a span of the file, so that its rows are read as safetensors' are
- checked before anything is believed: records are uncompressed and within the file, as long as their storages, and
  named once; the archive's directory and the pickle are of a sane size
- a tensor whose values do not lie row by row (a transposed one) is named, and an error when it is asked for
- not here: the pickle (formats/torch_pickle.py); what a folder is (checkpoint/folder.py)
Checked against torch.load, and with hostile and damaged files, in tests/checkpoint/test_pytorch.py.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from pathlib import Path

from inlayer.checkpoint.folder import FolderStore
from inlayer.errors import CheckpointError, InlayerError
from inlayer.files import not_a_file, path_kind, printable, quoted, shown
from inlayer.formats.safetensors import BITS, TensorInfo
from inlayer.formats.torch_pickle import MAX_PICKLE, View, find_views, read_pickle, unreadable

__all__ = ["PytorchStore"]

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
ZIP, PICKLE, LFS_POINTER = b"PK\x03\x04", b"\x80", b"version https://git-lfs"
MAX_DIRECTORY = 4 << 20  # bytes of an archive's list of records; a record takes some 90
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, and the lengths of the name and of the extra field after it
ENCRYPTED = 1
MAGIC = 0x1950A86A20F9469CFC6C  # the first value of a file from before torch 1.6
STORAGE_LENGTH = struct.Struct("<q")

Places = dict[str, int]  # where in the file the values of each storage begin, by its key


class PytorchStore(FolderStore):
    """The tensors of a .bin or .pt file, or of the `pytorch_model.bin` or its shards in a folder."""

    index = INDEX

    def __init__(self, path: Path) -> None:
        self._scattered: dict[str, View] = {}
        super().__init__(path)
        self.kind = "pytorch"
        if self._index is None:
            self.names()  # an error belongs to the opening

    def find(self, name: str) -> TensorInfo:
        """As for any folder; of tensors that share their values each has its own entry, at the same place."""
        stored = super().find(name)
        if name in self._scattered:
            view = self._scattered[name]
            raise CheckpointError(
                f"tensor {quoted(name)} of {stored.file} has shape {view.shape} and strides {view.strides}: its values "
                "do not lie row by row; save it again from .contiguous()"
            )
        return stored

    def _read_header(self, path: Path) -> dict[str, TensorInfo]:
        if (kind := path_kind(path)) != "file":
            raise not_a_file(path, kind)
        views, places = read_file(path)
        self._scattered |= {name: view for name, view in views.items() if not view.by_rows}
        return {name: describe_view(name, view, places, path.name) for name, view in views.items()}

    def _weight_files(self) -> set[str]:
        """The usual file, or its shards, or the only one there is."""
        files = {path.name for path in self.folder.glob("*.bin")}
        shards = {file for file in files if file.startswith("pytorch_model-")}
        if WEIGHTS in files or not (shards or len(files) == 1):
            return {WEIGHTS}
        return shards or files


def describe_view(name: str, view: View, places: Places, file: str) -> TensorInfo:
    item = BITS[view.dtype] // 8
    return TensorInfo(
        name=name,
        dtype=view.dtype,
        shape=view.shape,
        file=file,
        offset=places[view.storage.key] + view.offset * item,
        nbytes=math.prod(view.shape) * item,
    )


def read_file(path: Path) -> tuple[dict[str, View], Places]:
    """The tensors of a file, and where their storages begin."""
    where = shown(path)
    try:
        with BoundedFile(path) as stream:
            start = stream.read(len(LFS_POINTER))
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            if start.startswith(ZIP):
                return read_archive(stream, size, where)
            if start.startswith(PICKLE):
                return read_pickles(stream, size, where)
    except OSError as error:
        raise CheckpointError(f"{where} cannot be read: {error.strerror}") from error
    if start.startswith(LFS_POINTER):
        raise unreadable(where, "it is a git-lfs pointer; fetch the file with `git lfs pull`")
    raise unreadable(where, "it is neither a zip archive nor a pickle" if size else "it is empty", cut=not size)


class BoundedFile(io.FileIO):
    """A file that gives no more at once than a directory or a pickle has; `zipfile` asks for what the file claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > max(MAX_DIRECTORY, MAX_PICKLE):
            raise unreadable(shown(str(self.name)), f"it claims a list of records of {size:,} bytes")
        return super().read(size) or b""


def read_archive(stream: BoundedFile, size: int, where: str) -> tuple[dict[str, View], Places]:
    """A zip archive `name/data.pkl`, `name/data/0`, ..."""
    records = list_records(stream, where)
    pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise unreadable(where, f"its archive has {len(pickles)} records data.pkl, not one")
    folder = pickles[0].removesuffix("/data.pkl")
    start, length = locate(stream, records[pickles[0]], size, where)
    if length > MAX_PICKLE:
        raise unreadable(where, f"its pickle has {length:,} bytes, past the {MAX_PICKLE:,} that are read")
    stream.seek(start)
    value, storages = read_pickle(io.BytesIO(stream.read(length)), where)
    views = find_views(value, where)
    if f"{folder}/byteorder" in records:
        start, length = locate(stream, records[f"{folder}/byteorder"], size, where)
        stream.seek(start)
        if stream.read(min(length, 16)) != b"little":
            raise unreadable(where, "its values are not little-endian")
    places: Places = {}
    for storage in storages.values():
        record = records.get(f"{folder}/data/{storage.key}")
        if record is None:
            raise unreadable(where, f"its archive lacks the record data/{printable(storage.key[:40])}")
        places[storage.key], length = locate(stream, record, size, where)
        if length != storage.nbytes:
            raise unreadable(
                where,
                f"record data/{printable(storage.key[:40])} has {length:,} bytes; its storage has {storage.nbytes:,}",
            )
    return views, places


def list_records(stream: BoundedFile, where: str) -> dict[str, zipfile.ZipInfo]:
    """The records of an archive by name, none of them opened."""
    try:
        with zipfile.ZipFile(stream) as archive:
            listed = archive.infolist()
    except InlayerError:
        raise
    except Exception as error:  # on a damaged directory zipfile raises whatever its parsing runs into
        raise unreadable(where, f"its zip directory is damaged ({printable(str(error))[:80]})", cut=True) from None
    records = {record.filename: record for record in listed}
    if len(records) != len(listed):
        raise unreadable(where, "its archive has two records of one name")
    return records


def locate(stream: BoundedFile, record: zipfile.ZipInfo, size: int, where: str) -> tuple[int, int]:
    """Where a record's bytes begin, and how many there are; an error where they cannot be read as they lie."""
    name = printable(record.filename[:80])
    if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & ENCRYPTED:
        raise unreadable(where, f"its record {name} is compressed or encrypted; PyTorch stores values as they are")
    within = 0 <= record.header_offset <= size  # zipfile adds up what the directory says, and may end anywhere
    stream.seek(record.header_offset if within else size)
    header = stream.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(ZIP):
        raise unreadable(where, f"its record {name} is not where its directory says", cut=True)
    _, name_length, extra_length = LOCAL_HEADER.unpack(header)
    start = record.header_offset + LOCAL_HEADER.size + name_length + extra_length
    if record.file_size != record.compress_size or start + record.file_size > size:
        raise unreadable(where, f"its record {name} ends past the file's {size:,} bytes", cut=True)
    return start, record.file_size


def read_pickles(stream: BoundedFile, size: int, where: str) -> tuple[dict[str, View], Places]:
    """The form before torch 1.6: magic number, version, platform, state dict, keys; then a length and values each."""
    front = io.BytesIO(stream.read(MAX_PICKLE))
    if read_pickle(front, where)[0] != MAGIC:
        raise unreadable(where, "it is a pickle, but none that torch.save wrote")
    read_pickle(front, where)  # the version, which never changed
    platform, _ = read_pickle(front, where)
    if not isinstance(platform, dict) or platform.get("little_endian") is not True:
        raise unreadable(where, "its values are not little-endian")
    value, storages = read_pickle(front, where)
    keys, _ = read_pickle(front, where)
    views = find_views(value, where)
    places: Places = {}
    at = front.tell()
    for key in keys if isinstance(keys, list) else []:
        storage = storages.get(key) if isinstance(key, str) else None
        stream.seek(at)
        said = stream.read(STORAGE_LENGTH.size)
        if storage is None or key in places or len(said) < STORAGE_LENGTH.size:
            raise unreadable(where, "its list of storages does not fit its tensors", cut=True)
        end = at + STORAGE_LENGTH.size + storage.nbytes
        if STORAGE_LENGTH.unpack(said)[0] != storage.length or end > size:
            raise unreadable(where, f"storage {printable(key[:40])} is not whole", cut=True)
        places[key], at = at + STORAGE_LENGTH.size, end
    if places.keys() != storages.keys():
        raise unreadable(where, "its list of storages does not fit its tensors", cut=True)
    return views, places
