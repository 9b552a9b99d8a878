"""Legacy PyTorch files: the tensors in a file, and where their values are.

[file] -> header -> tables, checkpoint
- a zip archive of a pickle and one uncompressed record per storage; before torch 1.6, a sequence of pickles followed by
  the storages. Either way, a tensor is a byte range of the file
- see also: the pickle (formats/torch_pickle.py)
Tested against torch.load, and with malicious and damaged files, in tests/checkpoint/test_pytorch.py.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

from inlayer.errors import CheckpointError, InlayerError
from inlayer.files import LFS_POINTER, file_errors, format_path, printable
from inlayer.formats.torch_pickle import MAX_PICKLE, TensorView, file_error, find_views, read_pickle

ZIP, PICKLE = b"PK\x03\x04", b"\x80"  # the first bytes of a file
MAX_DIRECTORY = 4 << 20  # bytes of an archive's list of records, which needs about 90 per record
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra field
ENCRYPTED = 1
MAGIC = 0x1950A86A20F9469CFC6C  # the first value of a file written before torch 1.6
STORAGE_LENGTH = struct.Struct("<q")

Offsets = dict[str, int]  # where each storage's values start in the file, by the storage's key


def read_file(path: Path) -> tuple[dict[str, TensorView], Offsets]:
    """Return the tensors of a file, and the offsets of their storages."""
    source = format_path(path)
    with file_errors(path, kind=CheckpointError), BoundedFile(path) as stream:
        start = stream.read(len(LFS_POINTER))
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if start.startswith(ZIP):
            return read_archive(stream, size, source)
        if start.startswith(PICKLE):
            return read_pickles(stream, size, source)
    if start.startswith(LFS_POINTER):
        raise file_error(source, "it is a git-lfs pointer; download the file with `git lfs pull`")
    raise file_error(source, "it is neither a zip archive nor a pickle" if size else "it is empty", cut=not size)


class BoundedFile(io.FileIO):
    """A file that limits the size of one read because `zipfile` reads as much as the archive claims to need."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > max(MAX_DIRECTORY, MAX_PICKLE):
            raise file_error(format_path(str(self.name)), f"its list of records is {size:,} bytes")
        return super().read(size) or b""


def read_archive(stream: BoundedFile, size: int, source: str) -> tuple[dict[str, TensorView], Offsets]:
    """Read a zip archive: `name/data.pkl`, `name/data/0`, ..."""
    try:
        with zipfile.ZipFile(stream) as archive:
            listed = archive.infolist()
    except InlayerError:
        raise
    except Exception as error:  # zipfile raises all kinds of errors for a damaged directory
        raise file_error(source, f"its zip directory is damaged ({printable(str(error))[:80]})", cut=True) from None
    records = {record.filename: record for record in listed}
    if len(records) != len(listed):
        raise file_error(source, "its archive has two records with the same name")
    pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise file_error(source, f"its archive has {len(pickles)} data.pkl records instead of one")
    folder = pickles[0].removesuffix("/data.pkl")
    start, length = locate(stream, records[pickles[0]], size, source)
    if length > MAX_PICKLE:
        raise file_error(source, f"its pickle is {length:,} bytes; the maximum is {MAX_PICKLE:,}")
    stream.seek(start)
    value, storages = read_pickle(io.BytesIO(stream.read(length)), source)
    views = find_views(value, source)
    if f"{folder}/byteorder" in records:
        start, length = locate(stream, records[f"{folder}/byteorder"], size, source)
        stream.seek(start)
        if stream.read(min(length, 16)) != b"little":
            raise file_error(source, "its values are not little-endian")
    offsets: Offsets = {}
    for storage in storages.values():
        record, name = records.get(f"{folder}/data/{storage.key}"), printable(storage.key[:40])
        if record is None:
            raise file_error(source, f"its archive does not have the record data/{name}")
        offsets[storage.key], length = locate(stream, record, size, source)
        if length != storage.nbytes:
            raise file_error(source, f"record data/{name} is {length:,} bytes; its storage is {storage.nbytes:,}")
    return views, offsets


def locate(stream: BoundedFile, record: zipfile.ZipInfo, size: int, source: str) -> tuple[int, int]:
    """Return the offset and length of a record's bytes, checked to be stored uncompressed inside the file."""
    name = printable(record.filename[:80])
    if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & ENCRYPTED:
        raise file_error(source, f"its record {name} is compressed or encrypted; PyTorch stores values uncompressed")
    within = 0 <= record.header_offset <= size  # offsets from the directory may point anywhere
    stream.seek(record.header_offset if within else size)
    header = stream.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(ZIP):
        raise file_error(source, f"its record {name} is not at the offset in its directory", cut=True)
    _, name_length, extra_length = LOCAL_HEADER.unpack(header)
    start = record.header_offset + LOCAL_HEADER.size + name_length + extra_length
    if record.file_size != record.compress_size or start + record.file_size > size:
        raise file_error(source, f"its record {name} ends after the end of the file ({size:,} bytes)", cut=True)
    return start, record.file_size


def read_pickles(stream: BoundedFile, size: int, source: str) -> tuple[dict[str, TensorView], Offsets]:
    """Read the format before torch 1.6: magic, version, platform, state dict, keys; then storages with lengths."""
    front = io.BytesIO(stream.read(MAX_PICKLE))
    if read_pickle(front, source)[0] != MAGIC:
        raise file_error(source, "it is a pickle, but not one written by torch.save")
    read_pickle(front, source)  # skip the version, which is always the same
    platform, _ = read_pickle(front, source)
    if not isinstance(platform, dict) or platform.get("little_endian") is not True:
        raise file_error(source, "its values are not little-endian")
    value, storages = read_pickle(front, source)
    keys, _ = read_pickle(front, source)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(storages):
        raise file_error(source, "its list of storages does not match its tensors", cut=True)
    views = find_views(value, source)
    offsets: Offsets = {}
    at = front.tell()
    for key in keys:
        stream.seek(at)
        length = stream.read(STORAGE_LENGTH.size)
        offsets[key], at = at + STORAGE_LENGTH.size, at + STORAGE_LENGTH.size + storages[key].nbytes
        if length != STORAGE_LENGTH.pack(storages[key].length) or at > size:
            raise file_error(source, f"storage {printable(key[:40])} is incomplete", cut=True)
    return views, offsets
