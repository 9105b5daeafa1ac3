"""Records as rows. A RowReader is made once for a source, and reads any number of records."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias, cast

from headrace.schemas.client import SchemaClient
from headrace.sql.records.delimited import fields_reader
from headrace.sql.records.errors import UnreadableRecord, WrongValue
from headrace.sql.records.json_reading import document_reader
from headrace.sql.records.kafka_values import bytes_reader
from headrace.sql.records.parts import Part, key_part, value_part
from headrace.sql.records.rowtime import RowTime, row_time
from headrace.sql.records.types import ColumnType
from headrace.sql.records.window_keys import split_key
from headrace.sql.sources import REGISTERED, ColumnRole, Format, SqlColumn, SqlSource
from headrace.wire.records import Record, RecordHeader

Cells: TypeAlias = Sequence[object]
ReadAll: TypeAlias = Callable[[Sequence[bytes]], Sequence[Cells | WrongValue]]


class Row(NamedTuple):
    """A row of a stream or table."""

    values: tuple[object, ...]
    """In the order of the source's columns."""
    rowtime: int
    partition: int
    offset: int
    window_start: int | None
    window_end: int | None
    is_deleted: bool
    """The record has no value: a tombstone of a table. All columns but the keys are null."""


class BadRow(NamedTuple):
    """A record that is not a row."""

    record: Record
    partition: int
    reason: str


class RowReader:
    """Reads the records of a source. A registry is needed for AVRO, JSON_SR and PROTOBUF only.

    Reading may ask the registry for schemas, and so wait; its errors are raised.
    """

    def __init__(self, source: SqlSource, registry: SchemaClient | None = None) -> None:
        self._window = source.window
        key, value = key_part(source), value_part(source)
        self._read_keys = _reader(key, source, registry)
        self._read_values = _reader(value, source, registry)
        self._no_key: Cells = (None,) * len(key.columns)
        self._no_value: Cells = (None,) * len(value.columns)
        headers = source.of_role(ColumnRole.HEADER)
        self._headers = [_header_reader(each) for each in headers]
        read = [*(name for name, _ in (*key.columns, *value.columns)), *(c.name for c in headers)]
        order = [read.index(column.name) for column in source.columns]
        self._arrange = _arranged(order)
        self._row_time: RowTime | None = row_time(source)

    def read(self, record: Record, partition: int = 0) -> Row:
        """The row of one record; raises UnreadableRecord."""
        rows, bad = self.read_many((record,), partition)
        if bad:
            raise UnreadableRecord(bad[0].reason)
        return rows[0]

    def read_many(
        self, records: Sequence[Record], partition: int
    ) -> tuple[list[Row], list[BadRow]]:
        """The rows of records of one partition, and those that are none."""
        rows: list[Row] = []
        bad: list[BadRow] = []
        windows = self._windows(records) if self._window is not None else None
        keys = self._cells(
            self._read_keys,
            [each.key for each in records] if windows is None else [each[0] for each in windows],
            self._no_key,
        )
        values = self._cells(self._read_values, [each.value for each in records], self._no_value)
        headers, arrange, at_time = self._headers, self._arrange, self._row_time
        for place, (record, key, value) in enumerate(zip(records, keys, values, strict=True)):
            try:
                if isinstance(key, WrongValue):
                    raise UnreadableRecord(f"key: {key}")
                if isinstance(value, WrongValue):
                    raise UnreadableRecord(f"value: {value}")
                start, end = _NO_WINDOW if windows is None else _bounds(windows[place])
                cells = arrange((*key, *value, *(header(record.headers) for header in headers)))
                deleted = record.value is None
                moment = record.timestamp
                if at_time is not None and not deleted:
                    moment = at_time(cells)
            except UnreadableRecord as error:
                bad.append(BadRow(record, partition, error.reason))
            else:
                rows.append(Row(cells, moment, partition, record.offset, start, end, deleted))
        return rows, bad

    def _windows(self, records: Iterable[Record]) -> "list[_SplitKey]":
        assert self._window is not None, "only windowed keys are split"
        found: list[_SplitKey] = []
        for record in records:
            try:
                split = None if record.key is None else split_key(record.key, self._window)
            except UnreadableRecord as error:
                found.append((None, error))
            else:
                bounds = _NO_WINDOW if split is None else (split.start_ms, split.end_ms)
                found.append((None if split is None else split.key, bounds))
        return found

    @staticmethod
    def _cells(
        read_all: ReadAll, octets: Sequence[bytes | None], nothing: Cells
    ) -> Sequence[Cells | WrongValue]:
        if None not in octets:
            return read_all(cast(Sequence[bytes], octets))
        found = iter(read_all([each for each in octets if each is not None]))
        return [nothing if each is None else next(found) for each in octets]


_SplitKey: TypeAlias = "tuple[bytes | None, tuple[int | None, int | None] | UnreadableRecord]"
_NO_WINDOW: tuple[int | None, int | None] = (None, None)


def _bounds(split: _SplitKey) -> tuple[int | None, int | None]:
    if isinstance(split[1], UnreadableRecord):
        raise split[1]
    return split[1]


def _arranged(order: Sequence[int]) -> Callable[[tuple[object, ...]], tuple[object, ...]]:
    """Puts cells into the order of the columns."""
    if list(order) == list(range(len(order))):
        return tuple
    if len(order) == 1:
        (only,) = order
        return lambda cells: (cells[only],)
    return cast("Callable[[tuple[object, ...]], tuple[object, ...]]", itemgetter(*order))


def _header_reader(column: SqlColumn) -> Callable[[Sequence[RecordHeader]], object]:
    if column.header is None:
        return lambda headers: [{"key": name, "value": octets} for name, octets in headers]
    wanted = column.header
    return lambda headers: next(
        (octets for name, octets in reversed(headers) if name == wanted), None
    )


def _reader(part: Part, source: SqlSource, registry: SchemaClient | None) -> ReadAll:
    """The function that reads many keys or values."""
    if not part.columns or part.format is Format.NONE:
        nothing: Cells = (None,) * len(part.columns)
        return lambda octets: [nothing] * len(octets)
    if part.format in REGISTERED:
        # With their libraries, which tables of other formats do not need.
        from headrace.sql.records.registered import RegisteredReading

        return RegisteredReading(part.registered(source), part.registry(registry)).read
    return _one_by_one(_single(part, source.delimiter))


def _single(part: Part, delimiter: str) -> Callable[[bytes], Cells]:
    first_name, first_kind = part.columns[0]
    if part.format is Format.KAFKA:
        only = bytes_reader(first_kind, first_name)
        return lambda octets: (only(octets),)
    if part.format is Format.DELIMITED:
        split = fields_reader(part.columns, delimiter)
        return lambda octets: split(_text(octets))
    if not part.wrapped:
        single = document_reader(first_kind, first_name)
        return lambda octets: (single(_text(octets)),)
    document = document_reader(ColumnType("struct", fields=tuple(part.columns)), part.name)
    nothing: Cells = (None,) * len(part.columns)

    def read(octets: bytes) -> Cells:
        found = cast("dict[str, object] | None", document(_text(octets)))
        return nothing if found is None else tuple(found.values())

    return read


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise WrongValue(f"not UTF-8 at byte {error.start}") from None


def _one_by_one(read: Callable[[bytes], Cells]) -> ReadAll:
    def read_all(octets: Sequence[bytes]) -> list[Cells | WrongValue]:
        found: list[Cells | WrongValue] = []
        add = found.append
        for each in octets:
            try:
                add(read(each))
            except WrongValue as error:
                add(error)
        return found

    return read_all
