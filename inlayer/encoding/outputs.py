"""Outputs of `inlayer embed`: .npy, .safetensors, .parquet, and .jsonl, written in parts and joined at the end.

rows of texts, vectors -> parts -> [file]
- a part is complete or absent; the output is a single file, renamed into place once all parts are complete
- the parts of a Parquet file are Arrow files, which are written and read at the speed of a memory copy
- .safetensors and .parquet also store how the vectors were made, which `inlayer search` uses
- `open_vectors` opens an output for an exact search, without reading it into memory
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inlayer.encoding.columns import TextRows, column_errors
from inlayer.encoding.reader import FIELD, FILE, VECTORS, import_pyarrow, parquet_errors
from inlayer.encoding.weighting import parse_settings
from inlayer.errors import InputError
from inlayer.files import check_is_file, file_errors, format_path, path_kind, quote
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.row_reader import FileRows, RowSource
from inlayer.formats.safetensors import read_header
from inlayer.render.numbers import pluralize
from inlayer.shapes import Array, Bytes, Ids
from inlayer.tables import StoredTable

FORMATS = (".npy", ".safetensors", ".parquet", ".jsonl")
TENSOR = "embeddings"
CUT_SHORT = re.compile(r"EOF: |mmap length is greater than file size")  # errors for truncated files
METADATA = "inlayer"  # key of the settings in a file's metadata
JOINED_BYTES = 2**24  # bytes copied at a time


def check_output(path: Path, dtype: np.dtype[Any], *, overwrite: bool = False) -> None:
    """Check an output's suffix and dtype, and that no existing file is replaced unless `overwrite` is set."""
    if path.suffix not in FORMATS:
        raise InputError(f"--out is {format_path(path)}; its suffix must be one of {', '.join(FORMATS)}")
    if path.suffix in {".npy", ".parquet"} and dtype.name not in {"float16", "float32", "float64"}:
        raise InputError(f"{path.suffix} cannot store {dtype.name}; use float16, float32, or float64, or .safetensors")
    kind = path_kind(path)
    if (kind != "missing" or path.is_symlink()) and not (overwrite and kind == "file"):
        advice = "" if kind != "file" else ", or use --overwrite to replace it"
        raise InputError(f"{format_path(path)} already exists; choose another name{advice}")
    if path_kind(path.parent) != "folder":
        raise InputError(f"{format_path(path.parent)} is not a folder; create it first")
    if path.suffix == ".parquet":
        import_pyarrow(format_path(path))


def write_part(path: Path, kind: str, rows: list[TextRows], vectors: Array, text_column: str = FIELD) -> None:
    """Write one part; `text_column` is the name of its text column."""
    if kind in {".npy", ".safetensors"}:
        path.write_bytes(vectors.view(np.uint8).data)  # unlike tofile, this raises an error if the disk is full
    elif kind == ".jsonl":
        values = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float32)
        with path.open("w", encoding="utf-8") as file:
            records = ((text, other) for part in rows for text, other in zip(part.texts, _dicts(part), strict=True))
            for (text, other), vector in zip(records, values, strict=True):
                file.write(_json_line({text_column: text} | other | {VECTORS: vector.tolist()}))
    else:
        import pyarrow as pa

        with column_errors():
            table = pa.concat_tables([part.others for part in rows], promote_options="permissive")
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        table = table.append_column(VECTORS, column).unify_dictionaries()  # an Arrow file has one dictionary per column
        with pa.ipc.new_file(path, table.schema) as file:  # ten times faster than Parquet, written once at the end
            file.write_table(table)


def _json_line(row: dict[str, Any]) -> str:
    """Return a row as a line of JSON. NaN and infinity become null, because JSON does not have them."""
    line = json.dumps(row, default=str)
    if "NaN" in line or "Infinity" in line:  # the word may also be part of a text
        line = json.dumps(json.loads(line, parse_constant=lambda _: None))
    return line + "\n"


def _dicts(rows: TextRows) -> list[dict[str, Any]]:
    """Return the other columns of each row."""
    if isinstance(rows.others, list):
        return rows.others
    columns = {}
    for name in rows.others.column_names:
        with column_errors(name, "JSON", ".parquet"):  # such as a date that Python cannot represent
            columns[name] = rows.others[name].to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def join_parts(
    parts: list[Path], target: Path, shape: tuple[int, int], dtype: np.dtype[Any], vector_settings: Any
) -> None:
    if target.suffix == ".parquet":
        _join_parquet(parts, target, vector_settings)
        return
    with target.open("wb") as file:
        if target.suffix == ".npy":
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        elif target.suffix == ".safetensors":
            (name,) = [name for name, stored in SAFETENSORS_DTYPES.items() if stored == dtype]
            tensor = {"dtype": name, "shape": shape, "data_offsets": [0, shape[0] * shape[1] * dtype.itemsize]}
            metadata = {METADATA: json.dumps(vector_settings)}
            header_bytes = json.dumps({"__metadata__": metadata, TENSOR: tensor}).encode()
            header_bytes += b" " * (-len(header_bytes) % 8)
            file.write(len(header_bytes).to_bytes(8, "little") + header_bytes)
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file, JOINED_BYTES)


def _join_parquet(parts: list[Path], target: Path, vector_settings: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with column_errors():
        schema = pa.unify_schemas([pa.ipc.open_file(part).schema for part in parts], promote_options="permissive")
        schema = schema.with_metadata({METADATA: json.dumps(vector_settings)})
        with pq.ParquetWriter(target, schema) as writer:
            for part in parts:
                with pa.memory_map(str(part)) as file:
                    tables = [schema.empty_table(), pa.ipc.open_file(file).read_all()]
                    writer.write_table(pa.concat_tables(tables, promote_options="permissive"))


def open_vectors(path: Path) -> tuple[StoredTable, dict[str, Any], Callable[[int], dict[str, str]]]:
    """Open an output for a search: its vectors, their settings, and a function that returns a row's text and file."""
    check_is_file(path)
    if path.suffix == ".parquet":
        rows = ParquetRows(path)
        settings = parse_settings(rows.metadata)
        origin = partial(rows.origin, str(settings.get("column", FIELD)))
        return StoredTable(rows, rows.width, rows.dtype, name=VECTORS), settings, origin
    metadata = None
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        tensors = [
            tensor for tensor in read_header(path).values() if tensor.is_matrix and tensor.dtype in SAFETENSORS_DTYPES
        ]
        if len(tensors) != 1:
            raise InputError(
                f"{format_path(path)} must contain exactly one tensor of vectors (n, D); it contains {len(tensors)}"
            )
        with safe_open(path, framework="numpy") as opened:
            metadata = (opened.metadata() or {}).get(METADATA)
        offset, shape, dtype = tensors[0].offset, tensors[0].shape, SAFETENSORS_DTYPES[tensors[0].dtype]
    elif path.suffix == ".npy":
        array = map_array(path)
        offset, shape, dtype = array.offset, array.shape, array.dtype
        if len(shape) != 2 or dtype.kind != "f" or not dtype.isnative or not array.flags.c_contiguous:
            raise InputError(f"{format_path(path)} is not an array of vectors (n, D): dtype {dtype}, shape {shape}")
    elif path.suffix == ".jsonl":
        lines = JsonlRows(path)
        return StoredTable(lines, lines.width, np.dtype(np.float32), name=VECTORS), {}, lines.origin
    else:
        raise InputError(f"{format_path(path)} cannot be searched; use .npy, .safetensors, .parquet, or .jsonl")
    source = FileRows(path, offset, shape[0], shape[1] * dtype.itemsize)
    return StoredTable(source, shape[1], dtype), parse_settings(metadata), lambda _: {}


def map_array(path: Path) -> np.memmap[Any, Any]:
    """Map the array in a .npy file. Pickled objects are not loaded, and the array's size is limited by its file."""
    try:
        with file_errors(path):
            return np.lib.format.open_memmap(path, mode="r")
    except InputError:
        raise
    except Exception as error:  # numpy parses the header as a Python literal; an untrusted header may raise anything
        cause = "; was the download cut short?" if CUT_SHORT.search(str(error)) else ""
        raise InputError(f"{format_path(path)} is not a .npy file of numbers: {str(error)[:160]}{cause}") from None


class ParquetRows(RowSource):
    """The vectors in a Parquet file as rows. Only one row group at a time is in memory."""

    def __init__(self, path: Path) -> None:
        self.name = format_path(path)
        with parquet_errors(self.name):
            import pyarrow as pa
            import pyarrow.parquet as pq

            self._file = pq.ParquetFile(path)
            schema = self._file.schema_arrow
        kind = schema.field(VECTORS).type if VECTORS in schema.names else None
        if kind is None or not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
            raise InputError(f"{self.name} has no column {quote(VECTORS)} of vectors; write it with inlayer embed")
        self.width, self.dtype = kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())
        self.metadata = (schema.metadata or {}).get(METADATA.encode())
        groups = [self._file.metadata.row_group(index).num_rows for index in range(self._file.num_row_groups)]
        self._starts = np.append(0, np.cumsum(groups)).astype(np.int64)
        self.rows, self.row_bytes = int(self._starts[-1]), self.width * self.dtype.itemsize
        self._group: tuple[int, Array] = (-1, np.empty(0))

    def read(self, ids: Ids, out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of checked ids."""
        groups = np.searchsorted(self._starts, ids, side="right") - 1
        for group in np.unique(groups).tolist():
            if self._group[0] != group:
                with parquet_errors(self.name):
                    column = self._file.read_row_group(group, columns=[VECTORS])[VECTORS].combine_chunks()
                flat = np.ascontiguousarray(column.flatten().to_numpy(zero_copy_only=False), self.dtype)
                if len(flat) != len(column) * self.width:
                    raise InputError(f"{self.name} has rows without a vector; write it with inlayer embed")
                self._group = group, flat.reshape(-1, self.width).view(np.uint8)
            in_group = groups == group
            out[in_group] = self._group[1][ids[in_group] - self._starts[group]]

    def origin(self, text_column: str, row: int) -> dict[str, str]:
        """Return the text and the file of a row, if they are stored."""
        columns = {"text": text_column} | ({} if text_column == FILE else {"file": FILE})
        columns = {name: column for name, column in columns.items() if column in self._file.schema_arrow.names}
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        with parquet_errors(self.name):
            table = self._file.read_row_group(group, columns=[*columns.values()])
            values = {name: table[at][row - int(self._starts[group])].as_py() for name, at in columns.items()}
        return {name: str(value) for name, value in values.items() if value is not None}


class JsonlRows(RowSource):
    """The vectors in a .jsonl file as float32 rows. Only the offsets of its lines are in memory."""

    def __init__(self, path: Path) -> None:
        self._path, self.name = path, format_path(path)
        with file_errors(path), path.open("rb") as file:
            self._ends = np.cumsum(np.fromiter(map(len, file), np.int64))
        if not len(self._ends):
            raise InputError(f"{self.name} is empty; write it with inlayer embed")
        self.rows, self.width = len(self._ends), 0
        self.width = len(self._record(0)[1])
        self.row_bytes = 4 * self.width

    def read(self, ids: Ids, out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of checked ids."""
        for row, row_id in zip(out.view(np.float32), ids.tolist(), strict=True):
            row[:] = self._record(row_id)[1]

    def origin(self, row: int) -> dict[str, str]:
        """Return the text and the file of a row; inlayer embed writes the text first."""
        record = self._record(row)[0]
        text_column = next(iter(record))
        columns = {"text": text_column} | ({} if text_column == FILE else {"file": FILE})
        return {name: str(record[at]) for name, at in columns.items() if record.get(at) is not None}

    def _record(self, row: int) -> tuple[dict[str, Any], Array]:
        """Return a line and its vector, where null means NaN."""
        with file_errors(self._path), self._path.open("rb") as file:
            file.seek(self._ends[row - 1] if row else 0)
            line = file.readline()
        try:
            record = json.loads(line)
            vector: Array = np.array(record[VECTORS], np.float32)
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            vector = np.empty(0)
        if vector.ndim != 1 or not vector.size or vector.size != (self.width or vector.size):
            needed = pluralize(self.width, "number") if self.width else "numbers"
            problem = f"needs {needed} in the field {quote(VECTORS)}"
            raise InputError(f"{self.name}, line {row + 1}: {problem}; write the file with inlayer embed")
        return record, vector
