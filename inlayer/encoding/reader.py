"""Reader: the input of `inlayer embed`, texts and other columns of files, folders, patterns and standard input.

[files] -> rows of texts -> vectors
- .txt (one text per line, or per file), .jsonl, .csv, .tsv, .parquet; the first four also as .gz and .zst
- standard input has one text per line, or one JSON object if a field is named
- a file is read block by block: memory does not depend on its size
- a bad row is never dropped silently: `on_bad_row` gets its file, number and problem, and either raises or counts it
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from inlayer.encoding.lines import BLOCK, MAX_TEXT, CountedLines, LongLineError, blocks, check_storable, parse_line
from inlayer.encoding.source_files import PACKED, kind_of
from inlayer.encoding.text_rows import TextRows
from inlayer.errors import InlayerError, InputError, MissingExtraError, TextError
from inlayer.files import format_path, join_names, quote
from inlayer.render.numbers import pluralize
from inlayer.tokenizers.base import check_text

ROWS, ROWS_BYTES = 16_384, 2**25  # read at once from a table: rows or bytes, whichever is less
FIELD, VECTORS = "text", "embedding"  # columns: the texts (by default), and the vectors of an output
TOO_LONG = f"more than {MAX_TEXT:,} bytes, the limit for one text"
FILE = "file"  # column: where a text comes from, if there are several .txt files


@dataclass
class ReadProgress:
    """How many bytes of all files have been read."""

    total: int = 0
    done: int = 0


def import_pyarrow(what: str) -> Any:
    """Import pyarrow; an error names what needs it."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(f"{what} needs pyarrow: pip install 'inlayer[embed]'") from None
    return pyarrow


def unreadable_parquet(name: str, error: Exception) -> InputError:
    """Return the error for a Parquet file that pyarrow cannot read."""
    return InputError(f"{name} is not a readable Parquet file: {str(error).splitlines()[0][:160]}")


def rows_at_once(metadata: Any, max_rows: int = ROWS) -> int:
    """Return how many rows of a Parquet file to read at once, given its metadata."""
    size = sum(int(metadata.row_group(index).total_byte_size) for index in range(metadata.num_row_groups))
    return max(1, min(max_rows, ROWS_BYTES * int(metadata.num_rows) // max(size, 1)))


class Reader:
    """Reads rows from sources.

    Args:
        sources: What `find_sources` returned.
        field: The column of the texts; by default "text", or the only one.
        per_file: Read a .txt file as one text instead of one text per line.
        on_bad_row: Called with the location of a bad row and its problem; may raise.
        keep: Also read the other columns.
        for_parquet: Their values must be of kinds that Parquet can store.
    """

    def __init__(
        self, sources: list[Path | str], *, field: str | None, per_file: bool, on_bad_row: Callable[[str, str], None],
        keep: bool, for_parquet: bool = False,
    ) -> None:  # fmt: skip
        self.sources, self.field, self.per_file, self.on_bad_row = sources, field, per_file, on_bad_row
        self.keep, self.for_parquet = keep, for_parquet
        self.text_column = field or FIELD  # the name is also used in the output
        kinds = {self._kind(source) for source in sources}
        if field is not None and kinds and kinds <= {"", ".txt"}:
            raise InputError("--field names a column, but texts and .txt files do not have columns; omit it")
        if per_file and ".txt" not in kinds:
            raise InputError("--per-file is for .txt files, but the input has none; omit it")
        for source in sources if for_parquet and len(sources) > 1 else ():
            if isinstance(source, Path) and kind_of(source) == ".txt" and not _is_text(str(source)):
                raise InputError(
                    f"{format_path(source)} has a name that is not valid UTF-8; rename it, or use --out FILE.jsonl"
                )
        sizes = [source.stat().st_size if isinstance(source, Path) else 0 for source in sources]
        self.meter, self._sizes = ReadProgress(sum(sizes)), sizes

    def __iter__(self) -> Iterator[TextRows]:
        before = 0
        for number, (source, size) in enumerate(zip(self.sources, self._sizes, strict=True), 1):
            if isinstance(source, str) and source != "-":
                yield self._checked([source], "text", number)
            else:
                name = "standard input" if source == "-" else format_path(source)
                with _read_errors(name):
                    yield from self._file(source, name, before)
            before += size
            self.meter.done = before

    def _kind(self, source: Path | str) -> str:
        """Say how a source is read; empty for a text."""
        if isinstance(source, Path):
            return kind_of(source)
        return "" if source != "-" else ".txt" if self.field is None else ".jsonl"

    def _file(self, source: Path | str, name: str, before: int) -> Iterator[TextRows]:
        kind = self._kind(source)
        if kind == ".parquet":
            yield from self._parquet(Path(source), name, before)
            return
        with _open(source) as (stream, raw):
            reader = {".txt": self._lines, ".jsonl": self._json}.get(kind)
            if reader is None:
                rows = self._csv(stream, name, "\t" if kind == ".tsv" else ",")
            elif self.per_file and kind == ".txt":
                rows = self._whole(stream, name)
            else:
                numbered = blocks(stream, lambda line: self.on_bad_row(f"{name}, line {line}", TOO_LONG))
                rows = (reader(name, number, block) for number, block in numbered)
            with closing(rows):  # close them before the file, if the caller stops early
                for batch in rows:
                    if raw is not None:
                        self.meter.done = before + raw.tell()
                    if batch.texts:
                        yield self._with_file(batch, source) if kind == ".txt" else batch

    def _with_file(self, rows: TextRows, source: Path | str) -> TextRows:
        """Return rows of a .txt file with the file's name, which distinguishes them from the rows of other files."""
        if not self.keep or len(self.sources) == 1 or self.text_column == FILE:
            return rows
        return rows._replace(others=[{FILE: str(source)}] * len(rows.texts))

    def _lines(self, name: str, number: int, block: bytes) -> TextRows:
        where = f"{name}, line"
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return self._checked(block.split(b"\n"), where, number)
        if b"\r" in block:
            lines = [line.removesuffix("\r") for line in lines]
        return TextRows(lines, None, where, range(number, number + len(lines)))

    def _whole(self, stream: Any, name: str) -> Generator[TextRows, None, None]:
        data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            self.on_bad_row(name, TOO_LONG)
            return
        yield self._checked([data.removeprefix(BOM_UTF8)], name, None)

    def _checked(self, values: list[Any], where: str, number: int | None) -> TextRows:
        """Check the texts of these values; report bad ones by their number."""
        texts, numbers = list[str](), list[int]()
        for index, value in enumerate(values):
            location = where if number is None else f"{where} {number + index}"
            try:
                text = value.decode("utf-8").removesuffix("\r") if isinstance(value, bytes) else value
                texts.append(check_text(text))
                numbers.append((number or 0) + index)
            except UnicodeDecodeError as error:
                self.on_bad_row(location, f"not valid UTF-8: byte 0x{value[error.start]:02x} at offset {error.start:,}")
            except TextError as error:
                self.on_bad_row(location, str(error))
        return TextRows(texts, None, where, None if number is None else numbers)

    def _json(self, name: str, number: int, block: bytes) -> TextRows:
        field = self.text_column
        texts: list[str] = []
        others: list[dict[str, Any]] = []
        numbers: list[int] = []
        for index, line in enumerate(block.split(b"\n")):
            if not line.strip():
                continue
            try:
                value = parse_line(line)
                record = {field: value} if isinstance(value, str) else value
                if not isinstance(record, dict) or field not in record:
                    has = f"; it has {join_names(record)}" if isinstance(record, dict) else ""
                    raise InputError(f"no field {quote(field)}{has}; choose one with --field")
                self._check_columns(record, "the line")
                if record[field] is None:
                    raise InputError(f"field {quote(field)} is null, not a text")
                text = check_text(record.pop(field), f"field {quote(field)}")
                if self.for_parquet:
                    check_storable(record, line)
                texts.append(text)
                others.append(record)
                numbers.append(number + index)
            except (InlayerError, ValueError, RecursionError) as error:
                reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
                problem = str(error) if isinstance(error, InlayerError) else f"not valid JSON ({reason})"
                self.on_bad_row(f"{name}, line {number + index}", problem)
        return TextRows(texts, others if self.keep else None, f"{name}, line", numbers)

    def _csv(self, stream: Any, name: str, delimiter: str) -> Generator[TextRows, None, None]:
        csv.field_size_limit(MAX_TEXT)
        decoded = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        lines = CountedLines(decoded)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            if not _is_text("".join(header)):
                raise InputError(f"{_lines_of(name, 1, lines.number)}: not valid UTF-8")
            text_column = header.index(self._column(header, name))
            size, texts, others, numbers = 0, list[str](), list[dict[str, Any]](), list[int]()
            for first, row in self._csv_rows(reader, lines, name):
                if len(row) != len(header):
                    if row:
                        problem = f"{pluralize(len(row), 'column')} instead of {len(header)}"
                        self.on_bad_row(_lines_of(name, first, lines.number), problem)
                    continue
                if not _is_text("".join(row)):
                    bad = next(key for key, value in zip(header, row, strict=True) if not _is_text(value))
                    self.on_bad_row(_lines_of(name, first, lines.number), f"column {quote(bad)} is not valid UTF-8")
                    continue
                texts.append(row[text_column])
                others.append(
                    {
                        key: value
                        for index, (key, value) in enumerate(zip(header, row, strict=True))
                        if index != text_column
                    }
                )
                numbers.append(first)
                size += sum(map(len, row))
                if len(texts) == ROWS or size > ROWS_BYTES:
                    yield TextRows(texts, others if self.keep else None, f"{name}, line", numbers)
                    size, texts, others, numbers = 0, [], [], []
            yield TextRows(texts, others if self.keep else None, f"{name}, line", numbers)
        except (csv.Error, LongLineError) as error:
            raise InputError(f"{name}, line {lines.number}: {_csv_problem(error)}") from None
        finally:
            decoded.detach()  # the stream belongs to the caller

    def _csv_rows(self, reader: Any, lines: CountedLines, name: str) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with its first line; report rows with misplaced or unclosed quotes or long fields."""
        while True:
            first = lines.number + 1
            try:
                row = next(reader, None)
            except (csv.Error, LongLineError) as error:
                self.on_bad_row(_lines_of(name, first, lines.number), _csv_problem(error))
                continue
            if row is None:
                return
            yield first, row

    def _column(self, names: list[str], where: str) -> str:
        chosen = self.field or (names[0] if len(names) == 1 else FIELD)
        if chosen not in names:
            raise InputError(
                f"{where} has no column {quote(chosen)}; it has {join_names(names)}; choose one with --field"
            )
        for name, times in Counter(names if self.keep else [name for name in names if name == chosen]).items():
            if times > 1:
                raise InputError(f"{where} has more than one column {quote(name)}; rename all but one")
        self._check_columns(names, where)
        return chosen

    def _check_columns(self, names: Iterable[str], where: str) -> None:
        """Check that no column has the name of the output's vectors, because columns keep their names."""
        if self.keep and VECTORS in names:
            raise InputError(
                f"{where} has a column {quote(VECTORS)}, the name of the vectors in the output; rename it, or use "
                "--out FILE.npy, which has no columns"
            )

    def row_group(self, path: Path, name: str, group: int, max_rows: int) -> Iterator[TextRows]:
        """Yield the rows of one row group of a Parquet file; a batch has `rows_at_once`, or fewer if some are bad."""
        with _read_errors(name):
            yield from self._parquet(path, name, 0, group, max_rows)

    def _parquet(
        self, path: Path, name: str, before: int, group: int | None = None, max_rows: int = ROWS
    ) -> Iterator[TextRows]:
        pa = import_pyarrow(name)
        import pyarrow.parquet as pq

        try:
            # in blocks: otherwise all columns of a row group are in memory
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=BLOCK) as file:
                schema = file.schema_arrow
                column = self._column(schema.names, name)
                kind = schema.field(column).type
                plain = kind.value_type if pa.types.is_dictionary(kind) else kind  # a category of pandas
                if plain not in {pa.string(), pa.large_string(), pa.string_view()}:
                    raise InputError(f"{name}: column {quote(column)} has type {kind}, not string")
                groups = range(file.num_row_groups) if group is None else [group]
                number = sum(file.metadata.row_group(index).num_rows for index in range(group or 0))
                size, columns = path.stat().st_size, None if self.keep else [column]
                batch_rows = rows_at_once(file.metadata, max_rows)
                for batch in file.iter_batches(batch_rows, row_groups=groups, columns=columns):
                    yield self._batch(pa.Table.from_batches([batch]), column, name, number)
                    number += len(batch)
                    self.meter.done = before + size * number // max(file.metadata.num_rows, 1)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # UnicodeDecodeError concerns a column name
            raise unreadable_parquet(name, error) from None

    def _batch(self, table: Any, column: str, name: str, number: int) -> TextRows:
        others, where = table.drop_columns([column]) if self.keep else None, f"{name}, row"
        numbers = range(number, number + len(table))
        with suppress(UnicodeDecodeError):
            values = table[column].to_pylist()
            if None not in values:
                return TextRows(values, others, where, numbers)
        texts, valid = [""] * len(table), []
        for index, value in enumerate(table[column]):
            try:
                text = value.as_py()
                if text is None:
                    raise TextError("the text is null")
                texts[index] = text
                valid.append(index)
            except (TextError, UnicodeDecodeError) as error:  # noqa: PERF203
                problem = str(error) if isinstance(error, TextError) else "not valid UTF-8"
                self.on_bad_row(f"{where} {number + index}", problem)
        return TextRows(texts, others, where, numbers).take(valid)


@contextmanager
def _open(source: Path | str) -> Iterator[tuple[Any, IO[bytes] | None]]:
    """A stream of bytes, and the file behind it, whose position shows the progress."""
    if not isinstance(source, Path):
        if sys.stdin is None:
            raise InputError("standard input is closed")
        yield sys.stdin.buffer, None
        return
    with source.open("rb") as raw:
        if source.suffix.lower() in PACKED and not source.stat().st_size:
            raise InputError(f"{format_path(source)} is empty; was the download cut short?")
        if source.suffix.lower() == ".gz":
            yield gzip.GzipFile(fileobj=raw), raw
        elif source.suffix.lower() == ".zst":
            yield import_pyarrow(format_path(source)).CompressedInputStream(raw, "zstd"), raw
        else:
            yield raw, raw


def _lines_of(name: str, first: int, last: int) -> str:
    """Say where a record is: a quoted field may span several lines."""
    return f"{name}, lines {first} to {last}" if last > first else f"{name}, line {first}"


def _csv_problem(error: Exception) -> str:
    """Say what is wrong with a record, and what to do about it."""
    reason = str(error)
    if isinstance(error, LongLineError) or "field limit" in reason:
        return f"{TOO_LONG}; is a quote not closed?"
    if "end of data" in reason:
        return (
            'a quote is not closed, so the rest of the file is one record; close it, or write "" for a quote in a field'
        )
    if "expected after" in reason:
        return 'text follows a closing quote; write "" for a quote in a field'
    return reason


def _is_text(value: str) -> bool:
    """Return whether a value has only characters, and no bytes that surrogateescape kept."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InlayerError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name} cannot be read: {reason}") from None
