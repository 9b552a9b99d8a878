"""Rows of texts with their other columns. Each column has one type throughout a run.

files -> [rows of texts, columns of one type] -> parts -> one file
- a row with a value whose type conflicts with earlier rows is a bad row. It is reported when it is read, not when
  parts are joined
- a type may widen: from null to any type, from integers to floats, or when an object gets new fields
Tested in tests/encoding/test_columns.py and test_commands.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from inlayer.errors import InputError
from inlayer.files import quote


class TextRows(NamedTuple):
    """Texts, the other columns of their rows (one dict per text, or an Arrow table), and their location."""

    texts: list[str]
    others: Any
    place: str  # such as "a.txt, line"
    numbers: Sequence[int]  # line or row numbers

    def slice(self, start: int, end: int) -> TextRows:
        part = slice(start, end)
        return TextRows(self.texts[part], self.others[part], self.place, self.numbers[part])

    def take(self, kept: list[int]) -> TextRows:
        if isinstance(self.others, list):
            others = [self.others[index] for index in kept]
        else:
            others = self.others.take(np.array(kept, np.int64))  # Arrow cannot tell the type of an empty list
        return TextRows(
            [self.texts[index] for index in kept], others, self.place, [self.numbers[index] for index in kept]
        )

    def location(self, index: int) -> str:
        return f"{self.place} {self.numbers[index]}"

    def other_bytes(self) -> bytes:
        """Return the other columns as bytes, for a checksum."""
        if isinstance(self.others, list):
            return repr(self.others).encode(errors="surrogatepass") if any(self.others) else b""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.others.schema) as stream:  # batches lack column names and categories
            stream.write_table(self.others.combine_chunks())
        data: bytes = sink.getvalue().to_pybytes()
        return data


@contextmanager
def column_errors(name: str | None = None, kind: str = "Parquet", instead: str = ".jsonl") -> Iterator[None]:
    """Report a column that cannot be stored, in one line."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError, NotImplementedError, OverflowError, LookupError) as error:  # or pyarrow's errors
        reason = " ".join(str(error).split())[:160]
        column = "a column" if name is None else f"column {quote(name)}"
        raise InputError(
            f"{column} cannot be stored as {kind}: {reason}; remove it, or use --out FILE{instead}"
        ) from None


class ColumnTypes:
    """The types of all columns seen so far, without the vectors.

    Args:
        text_column: The name of the text column.
        on_bad_row: Called with the location and the problem of a row that does not match; may raise.
        schemas: Schemas of the finished parts.
    """

    def __init__(self, text_column: str, on_bad_row: Callable[[str, str], None], schemas: Iterable[Any] = ()) -> None:
        self._text_column, self._on_bad_row = text_column, on_bad_row
        self._types: dict[str, Any] = {}
        for schema in schemas:
            self._types |= {field.name: self._joined(field.name, field.type) for field in schema}

    def fitting(self, rows: TextRows) -> TextRows:
        """Return the rows that match these types, with an Arrow table of all columns, and report the other rows."""
        try:
            return self._convert(rows)
        except InputError:
            fits = [index for index in range(len(rows.texts)) if self._fits(rows.slice(index, index + 1))]
            return self._convert(rows.take(fits))

    def check(self) -> None:
        """Raise InputError if Parquet cannot store one of the types, such as an object that is always empty."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with column_errors():
            pq.ParquetWriter(BytesIO(), pa.schema(self._types)).close()

    def _fits(self, row: TextRows) -> bool:
        try:
            self._convert(row)
        except InputError as error:
            self._on_bad_row(row.location(0), str(error))
            return False
        return True

    def _convert(self, rows: TextRows) -> TextRows:
        """Convert the columns to an Arrow table, whose types become the types of the run."""
        import pyarrow as pa

        columns = {self._text_column: pa.array(rows.texts, pa.large_string())}
        if isinstance(rows.others, list):
            for name in dict.fromkeys(name for row in rows.others for name in row):
                with column_errors(name):
                    columns[name] = pa.array([row.get(name) for row in rows.others])
        else:
            columns |= zip(rows.others.column_names, rows.others.columns, strict=True)
        types = dict(self._types)
        for name, column in columns.items():
            with column_errors(name):
                types[name] = self._joined(name, column.type)
                if column.type != types[name]:  # pyarrow cannot cast a slice of structs whose fields are null
                    columns[name] = column.cast(types[name])
        self._types = types
        return rows._replace(others=pa.table(columns))

    def _joined(self, name: str, kind: Any) -> Any:
        """Return a type that can hold the values of both types."""
        import pyarrow as pa

        schemas = [pa.schema({name: candidate}) for candidate in (self._types.get(name, kind), kind)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
