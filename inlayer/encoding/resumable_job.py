"""EmbedJob: the resumable run of `inlayer embed`. Rows become vectors in parts that survive a kill.

rows of texts -> [parts] -> one file
- parts are in a folder next to the output, `.NAME.part`. A part appears by renaming, and its name has the range of
  input rows that it covers, a checksum of all rows so far, and how many of them the model could encode. So a killed run
  has lost at most one part, and none is written twice
- running the same command again checks the rows against the checksum and continues; other settings are an error
- the output appears by renaming when all rows are there, and the folder is removed
Tested with killed processes in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.encoding.columns import ColumnTypes
from inlayer.encoding.encode import BATCH, TEXT_ERRORS, Encoder, EncodeSettings
from inlayer.encoding.outputs import check_output, join_parts, write_part
from inlayer.encoding.reader import VECTORS, Reader
from inlayer.encoding.text_rows import TextRows
from inlayer.errors import InlayerError, InputError
from inlayer.files import atomic_path, format_path, join_names, locked, path_kind, sync, write_atomic

PART_BYTES = 2**26  # size of the vectors in one part
PART = re.compile(r"(\d{12})-(\d{12})-([0-9a-f]{8})-(\d{12})")  # the last number is the number of rows in the part
JOB_FILE_PATTERN = re.compile(rf"lock|job\.json|joined\.\w+|{PART.pattern}|\.(job\.json|{PART.pattern})\.saving")


def embed_rows(
    encoder: Encoder, settings: EncodeSettings, rows: TextRows, on_bad_row: Callable[[str, str], None]
) -> tuple[TextRows, npt.NDArray[Any]]:
    """Return rows and their vectors. Rows that the model cannot encode are left out and reported."""
    try:
        return rows, np.asarray(encoder.batch(rows.texts, settings))
    except TEXT_ERRORS:
        kept = []
        for index, text in enumerate(rows.texts):
            try:
                encoder.batch([text], settings)
                kept.append(index)
            except TEXT_ERRORS as error:  # noqa: PERF203
                on_bad_row(rows.location(index), str(error))
        rows = rows.take(kept)
        return rows, np.asarray(encoder.batch(rows.texts, settings))


class EmbedJob:
    """Embeds the rows of a reader into a file.

    Args:
        encoder: The model's encoder.
        settings: Checked settings.
        reader: The rows.
        out: The file to write.
        vector_settings: How the vectors are made; stored in the output.
        input_settings: Which rows are read. A run can only be resumed with the same settings of both kinds.
    """

    def __init__(
        self, encoder: Encoder, settings: EncodeSettings, reader: Reader, out: Path,
        vector_settings: dict[str, Any], input_settings: dict[str, Any],
    ) -> None:  # fmt: skip
        check_output(out, settings.dtype)
        self.encoder, self.settings, self.reader, self.out = encoder, settings, reader, out
        self.vector_settings = vector_settings = vector_settings | {"column": reader.text_column}
        arguments = vector_settings | input_settings | {"version": encoder.version()}
        self._arguments = json.dumps(arguments, sort_keys=True).encode()
        self.folder = out.with_name(f".{out.name}.part")
        self.width = settings.dim or encoder.width

    def run(self, progress: Callable[[int], None]) -> int:
        """Embed everything that is not done yet; returns the number of rows of the output.

        Raises:
            InputError: If the input has changed since the interrupted run, or the output cannot be written.
        """
        try:
            self._check_folder()
            self.folder.mkdir(exist_ok=True)
            with locked(self.folder / "lock", "another inlayer embed process is writing this output"):
                try:
                    self._check_settings()
                    rows = self._write_parts(progress)
                    if rows == 0:
                        self._remove()
                        raise InputError("the input has no texts")
                    self._join(rows)
                finally:
                    if not self.parts():
                        self._remove()
        except InlayerError:
            raise
        except OSError as error:
            raise InputError(f"{format_path(self.out)} cannot be written: {error.strerror or error}") from error
        return rows

    def parts(self) -> list[Path]:
        """Return the finished parts, in order."""
        return sorted(file for file in self.folder.glob("*-*-*-*") if PART.fullmatch(file.name))

    def _check_settings(self) -> None:
        file, arguments = self.folder / "job.json", self._arguments
        if not self.parts():
            write_atomic(file, arguments)
        elif not file.exists() or file.read_bytes() != arguments:
            raise InputError(
                f"{format_path(self.folder)} has the parts of an interrupted run with different arguments, or a "
                "different "
                "version of the model or the weighting; run it again with the same ones, or delete that folder"
            )

    def _finished(self) -> tuple[int, int]:
        """Return how many input rows the finished parts cover, and the checksum of these rows."""
        end = crc = 0
        for part in self.parts():
            first, last, checksum, _ = PART.fullmatch(part.name).groups()  # type: ignore[union-attr]
            if int(first) != end:
                raise InputError(f"{format_path(self.folder)} is missing the part from row {end:,}; delete that folder")
            end, crc = int(last), int(checksum, 16)
        return end, crc

    def _write_parts(self, progress: Callable[[int], None]) -> int:
        (finished, expected), seen, crc, size = self._finished(), 0, 0, 0
        done = finished
        pending: list[TextRows] = []
        types = self._column_types()
        vectors: list[npt.NDArray[Any]] = []
        for rows in self._slices(finished):
            data = ("\0".join(rows.texts) + "\0").encode() + rows.other_bytes()
            crc, seen, size = zlib.crc32(data, crc), seen + len(rows.texts), size + len(data)
            if seen <= finished:
                if seen == finished and crc != expected:
                    raise self._changed()
                size = 0
                continue
            fitting = rows if types is None else types.fitting(rows)
            kept, values = embed_rows(self.encoder, self.settings, fitting, self.reader.on_bad_row)
            pending.append(kept)
            vectors.append(values)
            if sum(batch.nbytes for batch in vectors) + size >= PART_BYTES:
                self._write_part(done, seen, crc, pending, vectors)
                done, pending, vectors, size = seen, [], [], 0
            progress(seen)
        if seen < finished:
            raise self._changed()
        if types is not None:
            types.check()
        if pending:
            self._write_part(done, seen, crc, pending, vectors)
        return sum(int(part.name.rpartition("-")[2]) for part in self.parts())  # rows in the finished parts

    def _column_types(self) -> ColumnTypes | None:
        """Return the types of the other columns, if the output has typed columns."""
        if self.out.suffix != ".parquet":
            return None
        import pyarrow as pa

        schemas = [pa.ipc.open_file(part).schema for part in self.parts()]
        own = {self.reader.text_column, VECTORS}
        others = [pa.schema([field for field in schema if field.name not in own]) for schema in schemas]
        return ColumnTypes(others, self.reader.on_bad_row)

    def _slices(self, boundary: int) -> Iterator[TextRows]:
        """Yield the rows in slices of bounded size, with a cut at row `boundary`."""
        max_rows, position = max(1, min(BATCH, PART_BYTES // (4 * self.width))), 0
        for rows in self.reader:
            start = 0
            while start < len(rows.texts):
                end = min(start + max_rows, len(rows.texts))
                if position < boundary:
                    end = min(end, start + boundary - position)
                yield rows.slice(start, end)
                position, start = position + end - start, end

    def _write_part(
        self, start: int, end: int, crc: int, rows: list[TextRows], vectors: list[npt.NDArray[Any]]
    ) -> None:
        count = sum(len(batch.texts) for batch in rows)
        with atomic_path(self.folder / f"{start:012d}-{end:012d}-{crc:08x}-{count:012d}") as path:
            write_part(path, self.out.suffix, rows, np.concatenate(vectors), self.reader.text_column)

    def _join(self, rows: int) -> None:
        joined = self.folder / f"joined{self.out.suffix}"
        try:
            join_parts(self.parts(), joined, (rows, self.width), self.settings.dtype, self.vector_settings)
            sync(joined)
            check_output(self.out, self.settings.dtype)  # it may have been created in the meantime
            joined.replace(self.out)
        finally:
            joined.unlink(missing_ok=True)
        sync(self.out.parent)
        self._remove()

    def _check_folder(self) -> None:
        """Reject a folder that contains files not written by this job."""
        if path_kind(self.folder) != "folder":
            return
        if foreign := [path.name for path in self.folder.iterdir() if not JOB_FILE_PATTERN.fullmatch(path.name)]:
            raise InputError(
                f"{format_path(self.folder)} was not created by inlayer embed: it contains "
                f"{join_names(foreign, 3)}; choose another --out, or move that folder"
            )

    def _remove(self) -> None:
        """Remove the folder with its parts; files that are not parts stay, and the folder with them."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                if JOB_FILE_PATTERN.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            self.folder.rmdir()

    def _changed(self) -> InputError:
        return InputError(
            "the input has changed since the interrupted run: the first rows differ; delete "
            f"{format_path(self.folder)} to start over"
        )
