"""Reader: the input of `inlayer embed`, read from files, folders, patterns, and standard input.

[files] -> rows of texts -> vectors
- .txt and unknown suffixes (one text per line, or per file), .jsonl, .csv, .tsv, and .parquet; all but .parquet also
  as .gz and .zst
- standard input contains one text per line, or one JSON object per line if a field is named
- a file is read block by block, so memory use does not depend on its size
- a bad row is never dropped silently: `on_bad_row` gets its file, number, and problem, and either raises or counts it
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import sys
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inlayer.encoding.columns import TextRows
from inlayer.encoding.lines import MAX_TEXT_BYTES, READ_BYTES, TOO_LONG, CountedLines, blocks
from inlayer.encoding.source_files import PACKED, file_kind
from inlayer.errors import InlayerError, InputError, needs_package
from inlayer.files import file_errors, format_path, join_names, quote, utf8_problem
from inlayer.render.numbers import pluralize
from inlayer.tokenizers.base import check_text

Record = tuple[str, dict[str, Any]]  # a text, and the other columns of its row
ROWS, ROWS_BYTES = 16_384, 2**25  # read at a time from a table: rows or bytes, whichever is less
FIELD, VECTORS = "text", "embedding"  # columns: the texts (by default), and the vectors of an output
FILE = "file"  # column: a text's source file, if there are several text files
CSV_PROBLEMS = {  # part of a csv.Error's message -> the problem and its fix
    "field limit": f"{TOO_LONG}; is a quote not closed?",
    "end of data": 'a quote is not closed, so the rest of the file is one record; close it, or write "" for a quote '
    "in a field",
    "expected after": 'text follows a closing quote; write "" for a quote in a field',
}


def import_pyarrow(feature: str) -> Any:
    """Import pyarrow, or raise an error that names the feature that needs it."""
    with needs_package(feature, "pyarrow", "'inlayer[embed]'", "pyarrow"):
        import pyarrow
    return pyarrow


@contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Turn a pyarrow error about a file into a one-line message."""
    pa = import_pyarrow(name)
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # a column name may be damaged
        raise InputError(f"{name} is not a readable Parquet file: {str(error).splitlines()[0][:160]}") from None


def rows_at_once(metadata: Any, max_rows: int = ROWS) -> int:
    """Return how many rows of a Parquet file to read at a time, given its metadata."""
    size = sum(int(metadata.row_group(index).total_byte_size) for index in range(metadata.num_row_groups))
    return max(1, min(max_rows, ROWS_BYTES * int(metadata.num_rows) // max(size, 1)))


class Reader:
    """Reads rows from sources, and counts bytes (`bytes_read` of `bytes_total`), empty texts, and empty files.

    Args:
        sources: Sources, as returned by `find_sources`.
        field: The column that contains the texts; by default "text", or the only column.
        per_file: Read a text file as one text instead of one text per line.
        on_bad_row: Called with the location and the problem of a bad row; may raise.
        keep_columns: Also read the other columns.
    """

    def __init__(
        self, sources: list[Path | str], *, field: str | None, per_file: bool, on_bad_row: Callable[[str, str], None],
        keep_columns: bool,
    ) -> None:  # fmt: skip
        self.sources, self.field, self.per_file, self.on_bad_row = sources, field, per_file, on_bad_row
        self.keep_columns = keep_columns
        self.text_column = field or FIELD  # the name is also used in the output
        kinds = {self._kind(source) for source in sources}
        if field is not None and kinds and kinds <= {"", ".txt"}:
            raise InputError("--field names a column, but texts and text files do not have columns; omit it")
        if per_file and ".txt" not in kinds:
            raise InputError("--per-file is for text files, but the input does not contain any; omit it")
        self.bytes_total = sum(source.stat().st_size for source in sources if isinstance(source, Path))
        self.bytes_read = self.empty_texts = 0
        self.empty_files: list[str] = []

    def __iter__(self) -> Iterator[TextRows]:
        for number, source in enumerate(self.sources, 1):
            if isinstance(source, str) and source != "-":
                yield self._count(self._rows("text", [(number, source)], lambda text: (check_text(text), {})))
                continue
            name, is_empty = "standard input" if source == "-" else format_path(source), True
            with _read_errors(name):
                for rows in self._file(source, name):
                    is_empty = is_empty and not rows.texts
                    yield self._count(rows)
            if is_empty:
                self.empty_files.append(name)

    def without_reports(self) -> Reader:
        """Return a reader for the same texts that skips bad rows silently and drops other columns."""
        return Reader(
            self.sources, field=self.field, per_file=self.per_file, on_bad_row=lambda *_: None, keep_columns=False
        )

    def _count(self, rows: TextRows) -> TextRows:
        self.empty_texts += rows.texts.count("")
        return rows

    def _kind(self, source: Path | str) -> str:
        """Return the suffix that determines how a source is read, or "" for a text."""
        if isinstance(source, Path):
            return file_kind(source) or ".txt"
        return "" if source != "-" else ".txt" if self.field is None else ".jsonl"

    def _file(self, source: Path | str, name: str) -> Iterator[TextRows]:
        kind, before = self._kind(source), self.bytes_read
        if kind == ".parquet":
            yield from self.parquet_rows(Path(source), name)
            return
        with _open(source) as (stream, position):
            for rows in self._stream(stream, name, kind):
                self.bytes_read = before + position()
                if kind == ".txt" and self.keep_columns and len(self.sources) > 1 and self.text_column != FILE:
                    yield rows._replace(others=[{FILE: str(source)}] * len(rows.texts))
                else:
                    yield rows

    def _stream(self, stream: Any, name: str, kind: str) -> Iterator[TextRows]:
        if kind in {".csv", ".tsv"}:
            with io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
                yield from self._csv(text, name, "\t" if kind == ".tsv" else ",")
        elif kind == ".txt" and self.per_file:
            data = stream.read(MAX_TEXT_BYTES + 1).removeprefix(BOM_UTF8)
            yield self._rows(f"{name}, text", [(1, data)], _decode)
        else:
            read, place = self._lines if kind == ".txt" else self._json, f"{name}, line"
            for number, block in blocks(stream, lambda line: self.on_bad_row(f"{place} {line}", TOO_LONG)):
                yield read(place, number, block)

    def _rows(self, place: str, numbered: Iterable[tuple[int, Any]], parse: Callable[[Any], Record]) -> TextRows:
        """Parse numbered records, and report those for which `parse` raises an error."""
        texts, all_others, numbers = list[str](), list[dict[str, Any]](), list[int]()
        for number, record in numbered:
            try:
                text, others = parse(record)
            except InlayerError as error:  # noqa: PERF203
                self.on_bad_row(f"{place} {number}", str(error))
            else:
                texts.append(text)
                all_others.append(others if self.keep_columns else {})
                numbers.append(number)
        return TextRows(texts, all_others, place, numbers)

    def _lines(self, place: str, number: int, block: bytes) -> TextRows:
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return self._rows(place, enumerate(block.split(b"\n"), number), _decode)
        if b"\r" in block:
            lines = [line.removesuffix("\r") for line in lines]
        return TextRows(lines, [{}] * len(lines), place, range(number, number + len(lines)))

    def _json(self, place: str, number: int, block: bytes) -> TextRows:
        numbered = ((index, line) for index, line in enumerate(block.split(b"\n"), number) if line.strip())
        return self._rows(place, numbered, self._json_record)

    def _json_record(self, line: bytes) -> Record:
        value, field = _parse_json(line), self.text_column
        record = {field: value} if isinstance(value, str) else value
        if not isinstance(record, dict) or field not in record:
            has = f"; it has {join_names(record, in_order=True)}" if isinstance(record, dict) else ""
            raise InputError(f"no field {quote(field)}{has}; choose one with --field")
        self._check_columns(record, "the line")
        return check_text(record.pop(field), f"field {quote(field)}"), record

    def _csv(self, stream: Any, name: str, delimiter: str) -> Iterator[TextRows]:
        csv.field_size_limit(MAX_TEXT_BYTES)
        lines = CountedLines(stream)
        reader = csv.reader(iter(lines.read, ""), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            _check_utf8("".join(header), "the header")
        except (csv.Error, InputError) as error:
            raise InputError(f"{name}, line {lines.number}: {_csv_problem(error)}") from None
        column = self._column(header, name, is_csv=True)

        def parse(row: list[str]) -> Record:
            if len(row) != len(header):
                raise InputError(f"{pluralize(len(row), 'column')} instead of {len(header)}")
            record = dict(zip(header, row, strict=True))
            if not all(map(str.isascii, row)):
                for key, value in record.items():
                    _check_utf8(value, f"column {quote(key)}")
            return record.pop(column), record

        rows, size = list[tuple[int, list[str]]](), 0
        for first, row in self._csv_rows(reader, lines, name):
            rows.append((first, row))
            size += sum(map(len, row))
            if len(rows) == ROWS or size > ROWS_BYTES:
                yield self._rows(f"{name}, line", rows, parse)
                rows, size = [], 0
        yield self._rows(f"{name}, line", rows, parse)

    def _csv_rows(self, reader: Any, lines: CountedLines, name: str) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with its first line; report rows with misplaced quotes, unclosed quotes, or long fields."""
        while True:
            first = lines.number + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                last = lines.number  # a quoted field may span several lines
                place = f"lines {first} to {last}" if last > first else f"line {first}"
                self.on_bad_row(f"{name}, {place}", _csv_problem(error))
                continue
            if row is None:
                return
            if row:
                yield first, row

    def _column(self, names: list[str], source: str, *, is_csv: bool = False) -> str:
        chosen = self.field or (names[0] if len(names) == 1 else FIELD)
        if chosen not in names:
            columns = join_names(names, in_order=True) + " (the first line is taken as the header)" * is_csv
            raise InputError(f"{source} has no column {quote(chosen)}; it has {columns}; choose one with --field")
        for name, times in Counter(names if self.keep_columns else [name for name in names if name == chosen]).items():
            if times > 1:
                raise InputError(f"{source} has more than one column {quote(name)}; rename all but one")
        self._check_columns(names, source)
        return chosen

    def _check_columns(self, names: Iterable[str], source: str) -> None:
        """Check that no column has the name of the output's vectors, because columns keep their names."""
        if self.keep_columns and VECTORS in names:
            raise InputError(
                f"{source} has a column {quote(VECTORS)}, the name of the vectors in the output; rename it, or use "
                "--out FILE.npy, which has no columns"
            )

    def parquet_rows(self, path: Path, name: str, group: int | None = None, max_rows: int = ROWS) -> Iterator[TextRows]:
        """Yield the valid rows of a Parquet file, or of one row group, in batches of `rows_at_once`."""
        before = self.bytes_read
        with parquet_errors(name):
            import pyarrow as pa
            import pyarrow.parquet as pq

            # Read in blocks; otherwise all columns of a row group would be in memory at once.
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES) as file:
                schema, metadata = file.schema_arrow, file.metadata
                column = self._column(schema.names, name)
                kind = schema.field(column).type
                plain = kind.value_type if pa.types.is_dictionary(kind) else kind  # a pandas category
                if plain not in {pa.string(), pa.large_string(), pa.string_view()}:
                    raise InputError(f"{name}: column {quote(column)} has type {kind}, not string")
                groups = range(file.num_row_groups) if group is None else [group]
                number = sum(metadata.row_group(index).num_rows for index in range(group or 0))
                columns = None if self.keep_columns else [column]
                for batch in file.iter_batches(rows_at_once(metadata, max_rows), row_groups=groups, columns=columns):
                    yield self._batch(pa.Table.from_batches([batch]), column, f"{name}, row", number)
                    number += len(batch)
                    self.bytes_read = before + path.stat().st_size * number // metadata.num_rows

    def _batch(self, table: Any, column: str, place: str, number: int) -> TextRows:
        texts, others = table[column], table.drop_columns([column])
        if not others.column_names:  # a table without columns has no rows
            others = [{}] * len(table)
        with suppress(UnicodeDecodeError):
            values = texts.to_pylist()
            if None not in values:
                return TextRows(values, others, place, range(number, number + len(table)))

        def parse(value: Any) -> Record:
            try:
                return check_text(value.as_py(), f"column {quote(column)}"), {}
            except UnicodeDecodeError as error:
                raise InputError(f"column {quote(column)} is {utf8_problem(error)}") from None

        valid = self._rows(place, enumerate(texts, number), parse)
        rows = TextRows([""] * len(table), others, place, range(number, number + len(table)))
        return rows.take([row - number for row in valid.numbers])._replace(texts=valid.texts)


@contextmanager
def _open(source: Path | str) -> Iterator[tuple[Any, Callable[[], int]]]:
    """Open a stream of bytes, with a function that returns how many bytes of the file have been read."""
    if not isinstance(source, Path):
        if sys.stdin is None:
            raise InputError("standard input is closed")
        yield sys.stdin.buffer, lambda: 0
        return
    packing = source.suffix.lower()
    with source.open("rb") as raw:
        if packing in PACKED and not source.stat().st_size:
            raise InputError(f"{format_path(source)} is empty; was the download cut short?")
        if packing == ".gz":
            yield gzip.GzipFile(fileobj=raw), raw.tell
        elif packing == ".zst":
            pa = import_pyarrow(format_path(source))
            yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd")), raw.tell
        else:
            yield raw, raw.tell


@contextmanager
def _read_errors(name: str) -> Iterator[None]:
    try:
        with file_errors(name):
            yield
    except (EOFError, zlib.error) as error:  # a damaged compressed file
        raise InputError(f"{name} cannot be read: {error}") from None


def _decode(data: bytes) -> Record:
    """Return the text in a line or in a whole file."""
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(TOO_LONG)
    try:
        return data.decode().removesuffix("\r"), {}
    except UnicodeDecodeError as error:
        raise InputError(utf8_problem(error)) from None


def _parse_json(line: bytes) -> Any:
    """Parse a line of JSON, or raise InputError if it is not JSON or if a number would become infinity."""
    try:
        return json.loads(line, parse_constant=_not_json, parse_float=_finite)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise InputError(f"not valid JSON ({reason})") from None


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise InputError(f"the number {digits[:40]} is too large for float64")
    return number


def _csv_problem(error: Exception) -> str:
    """Describe the problem with a record and its fix."""
    reason = str(error)
    return next((advice for part, advice in CSV_PROBLEMS.items() if part in reason), reason)


def _check_utf8(value: str, name: str) -> None:
    """Check that a value contains only characters, not bytes preserved by surrogateescape."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} is not valid UTF-8") from None
