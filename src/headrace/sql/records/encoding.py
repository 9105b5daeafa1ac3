"""Rows as records. A RowWriter is made once for a source, and writes any number of rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from headrace.schemas.client import SchemaClient
from headrace.sql.plans import PSEUDO_COLUMNS, WINDOWEND, WINDOWSTART
from headrace.sql.records.delimited import line_writer
from headrace.sql.records.errors import UnwritableRow, WrongValue
from headrace.sql.records.json_writing import document_writer
from headrace.sql.records.kafka_values import bytes_writer
from headrace.sql.records.parts import Part, key_part, value_part
from headrace.sql.records.types import ColumnType
from headrace.sql.records.values import converter
from headrace.sql.records.window_keys import join_key
from headrace.sql.sources import REGISTERED, Format, SqlSource

Write: TypeAlias = Callable[[Sequence[object]], bytes | None]


class RowWriter:
    """Writes rows of a source. A registry is needed for AVRO, JSON_SR and PROTOBUF only, and is
    asked, and its schemas are registered, when the writer is made."""

    def __init__(self, source: SqlSource, registry: SchemaClient | None = None) -> None:
        key, value = key_part(source), value_part(source)
        self._source = source
        self._names = {each.name.casefold(): each.name for each in source.columns}
        self._convert = {
            name: converter(kind, name) for name, kind in (*key.columns, *value.columns)
        }
        self._keys = [name for name, _ in key.columns]
        self._values = [name for name, _ in value.columns]
        self._write_key = _writer(key, source, registry)
        self._write_value = _writer(value, source, registry)

    def write(self, row: Mapping[str, object]) -> tuple[bytes | None, bytes | None]:
        """The key and the value of a row's record, by names of columns in any case.

        Values have Python's types, or JSON's: a timestamp may be a datetime, ISO 8601 or
        milliseconds. Columns that are left out are null. Raises UnwritableRow.
        """
        cells, window = self._cells(row)
        try:
            values = [cells.get(name) for name in self._values]
            return self._key(cells, window), self._write_value(values)
        except WrongValue as error:
            raise UnwritableRow(f"{self._source.name}: {error}") from None

    def tombstone(self, row: Mapping[str, object]) -> tuple[bytes | None, None]:
        """The key of a row, and no value: deletes the row from a table."""
        return self.key(row), None

    def key(self, row: Mapping[str, object]) -> bytes | None:
        """The key of a row's record."""
        cells, window = self._cells(row)
        try:
            return self._key(cells, window)
        except WrongValue as error:
            raise UnwritableRow(f"{self._source.name}: {error}") from None

    def _key(self, cells: Mapping[str, object], window: Mapping[str, object]) -> bytes | None:
        keys = [cells.get(name) for name in self._keys]
        # A key of which nothing is known is no key.
        octets = None if all(each is None for each in keys) else self._write_key(keys)
        if self._source.window is None or octets is None:
            return octets
        start, end = window.get(WINDOWSTART), window.get(WINDOWEND)
        if not isinstance(start, int) or (
            self._source.window.kind == "SESSION" and not isinstance(end, int)
        ):
            raise WrongValue("the row has no window: WINDOWSTART and WINDOWEND are missing")
        return join_key(octets, self._source.window, start, end if isinstance(end, int) else 0)

    def _cells(self, row: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """The values of the columns, and of pseudo columns."""
        cells: dict[str, object] = {}
        pseudo: dict[str, object] = {}
        for given, value in row.items():
            name = self._names.get(given.casefold())
            if name in self._convert:
                try:
                    cells[name] = None if value is None else self._convert[name](value)
                except WrongValue as error:
                    raise UnwritableRow(f"{self._source.name}: {error}") from None
            elif given.upper() in PSEUDO_COLUMNS:
                pseudo[given.upper()] = value
            elif name is not None:
                raise UnwritableRow(f"{self._source.name}.{name} is a header; rows cannot set it")
            else:
                raise UnwritableRow(f"{self._source.name} has no column {given}")
        return cells, pseudo


def _writer(part: Part, source: SqlSource, registry: SchemaClient | None) -> Write:
    if not part.columns or part.format is Format.NONE:
        # A row of a table without a value would be a tombstone.
        return lambda _: None if part.name == "key" else b""
    if part.format in REGISTERED:
        # With their libraries, which tables of other formats do not need.
        from headrace.sql.records.registered import RegisteredWriting

        return RegisteredWriting(part.registered(source), part.registry(registry)).write
    name, kind = part.columns[0]
    if part.format is Format.KAFKA:
        only = bytes_writer(kind, name)
        return lambda values: None if values[0] is None else only(values[0])
    if part.format is Format.DELIMITED:
        line = line_writer(part.columns, source.delimiter)
        return lambda values: line(values).encode()
    if not part.wrapped:
        single = document_writer(kind)
        return lambda values: b"null" if values[0] is None else single(values[0]).encode()
    names = [name for name, _ in part.columns]
    document = document_writer(ColumnType("struct", fields=part.columns))
    return lambda values: document(dict(zip(names, values, strict=True))).encode()
