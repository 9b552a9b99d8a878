"""The other columns of the input, as Arrow: each column keeps one type throughout a run.

rows of texts -> [columns of one type] -> parts -> one file
- a row whose value does not fit the earlier rows is bad. It is reported when it is read, not when parts are joined
- a type may widen: from null to any type, from integers to floats, and by new fields of an object
Tested in tests/encoding/test_columns.py and test_commands.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from inlayer.encoding.text_rows import TextRows
from inlayer.errors import InputError
from inlayer.files import quote


@contextmanager
def storable_columns(name: str | None = None) -> Iterator[None]:
    """Report a column that cannot be stored, in one line. Without a name, pyarrow's reason contains it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:160]
        what = "a column other than the text" if name is None else f"column {quote(name)}"
        raise InputError(
            f"{what} cannot be stored as Parquet, because its values differ in type, are too large or are not valid "
            f"text: {reason}; remove it, or use --out FILE.jsonl"
        ) from None


def as_schema(table: Any, schema: Any) -> Any:
    """Return the table with the columns of the schema; columns that the table lacks are null."""
    import pyarrow as pa

    columns = []
    for field in schema:
        with storable_columns(field.name):
            column = table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
            # only if needed: pyarrow cannot cast a slice of structs whose fields are null
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)


class ColumnTypes:
    """The types of the other columns so far.

    Args:
        schemas: Those of the parts that are finished.
        on_bad_row: Called with the location of a row that does not fit and its problem; may raise.
    """

    def __init__(self, schemas: Iterable[Any], on_bad_row: Callable[[str, str], None]) -> None:
        self._types: dict[str, Any] = {}
        self._on_bad_row = on_bad_row
        for schema in schemas:
            self._types |= {field.name: self._joined(field.name, field.type) for field in schema}

    def fitting(self, rows: TextRows) -> TextRows:
        """Return the rows whose other columns fit these types, as an Arrow table, and report the rest."""
        if rows.others is None or not rows.texts:
            return rows
        if not isinstance(rows.others, list):  # rows of Parquet files, where a column has one type
            try:
                self._convert(rows.others)
            except InputError as error:
                raise InputError(f"{rows.location(0)}: {error}") from None
            return rows
        if not any(rows.others):  # a table without columns would have no rows
            return rows._replace(others=None)
        try:
            return rows._replace(others=self._convert(rows.others))
        except InputError:
            rows = rows.take([index for index in range(len(rows.texts)) if self._fits(rows, index)])
            return rows._replace(others=self._convert(rows.others) if rows.texts else None)

    def check(self) -> None:
        """Raise InputError if Parquet cannot store one of the types, such as an object that is always empty."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with storable_columns():
            pq.ParquetWriter(BytesIO(), pa.schema(self._types)).close()

    def _fits(self, rows: TextRows, index: int) -> bool:
        try:
            self._convert([rows.others[index]])
        except InputError as error:
            self._on_bad_row(rows.location(index), str(error))
            return False
        return True

    def _convert(self, others: Any) -> Any:
        """Return an Arrow table of these columns, and make its types the types of the run."""
        import pyarrow as pa

        is_list = isinstance(others, list)
        names = dict.fromkeys(name for row in others for name in row) if is_list else others.column_names
        types, columns = dict(self._types), dict[str, Any]()
        for name in names:
            with storable_columns(name):
                values = [row.get(name) for row in others] if is_list else others[name]
                column: Any = pa.array(values) if is_list else values
                types[name] = self._joined(name, column.type)
                if column.type != types[name]:
                    column = pa.array(values, types[name]) if is_list else column.cast(types[name])
                columns[name] = column
        self._types = types
        return pa.table(columns)

    def _joined(self, name: str, kind: Any) -> Any:
        """Return a type that holds the values of both types."""
        import pyarrow as pa

        schemas = [pa.schema({name: one}) for one in (self._types.get(name, kind), kind)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
