"""EmbedJob: a resumable run of `inlayer embed`. Rows are embedded in parts, so a killed run can resume.

rows of texts -> [parts] -> one file
- parts are in a folder next to the output, `.NAME.part`. Parts are renamed into place when complete, and a part's name
  contains the range of input rows that it covers, a checksum of all rows so far, and the number of rows that the model
  could encode. A killed run loses at most one part, and no part is written twice
- running the same command again checks the rows against the checksum and continues; different settings are an error
- the output is renamed into place once all rows are written, and the folder is removed
Tested with killed processes in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inlayer.encoding.columns import ColumnTypes, TextRows
from inlayer.encoding.encode import BATCH, TEXT_ERRORS, Encoder, EncodeSettings
from inlayer.encoding.outputs import check_output, join_parts, write_part
from inlayer.encoding.reader import VECTORS, Reader
from inlayer.errors import InputError
from inlayer.files import atomic_path, file_errors, format_path, join_names, locked, sync, write_atomic
from inlayer.ragged import Ragged
from inlayer.shapes import Array

PART_BYTES = 2**26  # size of the vectors in one part
PART_NAME = r"(\d{12})-(\d{12})-([0-9a-f]{8})-(\d{12})"
JOB_FILE = re.compile(rf"lock|job\.json|joined\.\w+|{PART_NAME}|\.(job\.json|{PART_NAME})\.saving")


class Part(NamedTuple):
    """The fields in a part's name."""

    start: int  # index of the first input row; with Ray, of the slice
    end: int  # index after the last input row; with Ray, index of the row group
    checksum: int  # checksum of all input rows so far; with Ray, the input file's version
    rows: int  # number of rows in the part

    @property
    def name(self) -> str:
        return f"{self.start:012d}-{self.end:012d}-{self.checksum:08x}-{self.rows:012d}"


def embed_rows(
    encoder: Encoder, settings: EncodeSettings, rows: TextRows, on_bad_row: Callable[[str, str], None],
    types: ColumnTypes | None = None,
) -> tuple[TextRows, Array]:  # fmt: skip
    """Return rows and their vectors; report rows whose types conflict or that the model cannot encode."""
    if types is not None:
        rows = types.fitting(rows)
    rows, ids = tokenize_rows(encoder, rows, on_bad_row)
    return rows, encoder.pooled(ids, settings)


def tokenize_rows(encoder: Encoder, rows: TextRows, on_bad_row: Callable[[str, str], None]) -> tuple[TextRows, Ragged]:
    """Return rows and the ids of their texts; report rows that the model cannot encode."""
    try:
        return rows, encoder.ids(rows.texts)
    except TEXT_ERRORS:
        kept = []
        for index, text in enumerate(rows.texts):
            try:
                encoder.ids([text])
                kept.append(index)
            except TEXT_ERRORS as error:  # noqa: PERF203
                on_bad_row(rows.location(index), str(error))
        rows = rows.take(kept)
        return rows, encoder.ids(rows.texts)


class EmbedJob:
    """Embeds the rows of a reader into a file.

    Args:
        encoder: The model's encoder.
        settings: Validated settings.
        reader: Reads the rows.
        out: The file to write.
        vector_settings: Settings that determine the vectors; stored in the output.
        input_settings: Settings that determine which rows are read. A run can resume only if both sets of settings are
            unchanged.
        overwrite: Replace an existing file, once the new one is complete.
    """

    def __init__(
        self, encoder: Encoder, settings: EncodeSettings, reader: Reader, out: Path,
        vector_settings: dict[str, Any], input_settings: dict[str, Any], *, overwrite: bool = False,
    ) -> None:  # fmt: skip
        check_output(out, settings.dtype, overwrite=overwrite)
        self.encoder, self.settings, self.reader, self.out = encoder, settings, reader, out
        self.overwrite = overwrite
        self.vector_settings = vector_settings = vector_settings | {"column": reader.text_column}
        arguments = vector_settings | input_settings | {"version": encoder.version()}
        self._arguments = json.dumps(arguments, sort_keys=True).encode()
        self.folder = out.with_name(f".{out.name}.part")
        self.width = settings.dim or encoder.width

    def run(self, progress: Callable[[int], None]) -> int:
        """Embed all remaining rows, and return the number of rows in the output.

        Raises:
            InputError: If the input has changed since the interrupted run, or the output cannot be written.
        """
        with file_errors(self.out, "cannot be written"):
            self._check_folder()
            self.folder.mkdir(exist_ok=True)
            with locked(self.folder / "lock", "another inlayer embed process is writing this output"):
                try:
                    self._check_settings()
                    rows = self._write_parts(progress)
                    if rows == 0:
                        self._remove()
                        raise InputError("the input contains no text")
                    self._join(rows)
                finally:
                    if not self.parts():
                        self._remove()
        return rows

    def parts(self) -> list[Part]:
        names = (re.fullmatch(PART_NAME, path.name) for path in self.folder.glob("*-*-*-*"))
        return sorted(Part(int(name[1]), int(name[2]), int(name[3], 16), int(name[4])) for name in names if name)

    def _files(self) -> list[Path]:
        return [self.folder / part.name for part in self.parts()]

    def _check_settings(self) -> None:
        file, arguments = self.folder / "job.json", self._arguments
        if not self.parts():
            write_atomic(file, arguments)
        elif not file.exists() or file.read_bytes() != arguments:
            problem = "contains the parts of an interrupted run with different arguments, or a different version"
            advice = "repeat the original command, or delete that folder"
            raise self._error(f"{problem} of the model or the weighting; {advice}")

    def _write_parts(self, progress: Callable[[int], None]) -> int:
        finished = expected = 0  # number of input rows that the finished parts cover, and the checksum of these rows
        for part in self.parts():
            if part.start != finished:
                raise self._error(f"is missing the part from row {finished:,}; delete that folder")
            finished, expected = part.end, part.checksum
        types = self._column_types()
        start, seen, crc, size = finished, 0, 0, 0
        pending: list[tuple[TextRows, Array]] = []
        for rows in self._slices(finished):
            data = ("\0".join(rows.texts) + "\0").encode() + rows.other_bytes()
            crc, seen = zlib.crc32(data, crc), seen + len(rows.texts)
            if seen <= finished:
                if seen == finished and crc != expected:
                    raise self._input_changed_error()
                continue
            pending.append(embed_rows(self.encoder, self.settings, rows, self.reader.on_bad_row, types))
            size += len(data) + pending[-1][1].nbytes
            if size >= PART_BYTES:
                self._write_part(start, seen, crc, pending)
                start, pending, size = seen, [], 0
            progress(seen)
        if seen < finished:
            raise self._input_changed_error()
        if types is not None:
            types.check()
        if pending:
            self._write_part(start, seen, crc, pending)
        return sum(part.rows for part in self.parts())

    def _column_types(self) -> ColumnTypes | None:
        """Return the types of the finished parts' columns, or None if the output does not have typed columns."""
        if self.out.suffix != ".parquet":
            return None
        import pyarrow as pa

        schemas = [pa.ipc.open_file(file).schema for file in self._files()]
        others = [schema.remove(schema.get_field_index(VECTORS)) for schema in schemas]
        return ColumnTypes(self.reader.text_column, self.reader.on_bad_row, others)

    def _slices(self, boundary: int) -> Iterator[TextRows]:
        """Yield the rows in slices of bounded size, with a slice boundary at row `boundary`."""
        max_rows, position = max(1, min(BATCH, PART_BYTES // (4 * self.width))), 0
        for rows in self.reader:
            start = 0
            while start < len(rows.texts):
                end = min(start + max_rows, len(rows.texts))
                if position < boundary:
                    end = min(end, start + boundary - position)
                yield rows.slice(start, end)
                position, start = position + end - start, end

    def _write_part(self, start: int, end: int, crc: int, pending: list[tuple[TextRows, Array]]) -> None:
        rows, vectors = [rows for rows, _ in pending], np.concatenate([vectors for _, vectors in pending])
        with atomic_path(self.folder / Part(start, end, crc, len(vectors)).name) as path:
            write_part(path, self.out.suffix, rows, vectors, self.reader.text_column)

    def _join(self, rows: int) -> None:
        joined = self.folder / f"joined{self.out.suffix}"
        try:
            join_parts(self._files(), joined, (rows, self.width), self.settings.dtype, self.vector_settings)
            sync(joined)
            check_output(self.out, self.settings.dtype, overwrite=self.overwrite)  # it may have been created meanwhile
            joined.replace(self.out)
        finally:
            joined.unlink(missing_ok=True)
        sync(self.out.parent)
        self._remove()

    def _check_folder(self) -> None:
        """Reject a folder that contains files not written by this job."""
        if foreign := [path.name for path in self.folder.glob("*") if not JOB_FILE.fullmatch(path.name)]:
            problem = f"was not created by inlayer embed: it contains {join_names(foreign, 3)}"
            raise self._error(f"{problem}; choose another --out, or move that folder")

    def _remove(self) -> None:
        """Remove the parts and their folder. Other files are kept, and so is a folder that contains them."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                if JOB_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            self.folder.rmdir()

    def _input_changed_error(self) -> InputError:
        problem = "the input has changed since the interrupted run: the first rows differ"
        return InputError(f"{problem}; delete {format_path(self.folder)} to start over")

    def _error(self, problem: str) -> InputError:
        return InputError(f"{format_path(self.folder)} {problem}")
