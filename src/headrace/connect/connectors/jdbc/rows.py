"""Records as rows of a table: which columns are the key, which rows are written and deleted.

No database here: everything is columns of Arrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.plugin import PermanentError, RecordError

KAFKA_COLUMNS = ("__connect_topic", "__connect_partition", "__connect_offset")


@dataclass(frozen=True, slots=True)
class RowRule:
    """How records become rows; the names are those of Confluent's options."""

    pk_mode: str
    pk_fields: Sequence[str]
    insert_mode: str
    delete_enabled: bool
    fields: Sequence[str]
    """The fields of the value that are columns; all if there are none here."""
    ignores_tombstones: bool = False
    unwraps: bool = False
    """Values are Debezium's change events; their `after` is the row."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What the records of a batch do to a table."""

    rows: pa.Table
    """The columns of all records, those of the key first."""
    keys: Sequence[str]
    deleted: Sequence[int]
    """The rows whose key is deleted before others are written."""
    written: Sequence[int]
    """The rows that are written: the last one of each key, if the key has to be unique."""


def changes(batch: pa.RecordBatch, rule: RowRule) -> TableChanges:
    """The changes of records of one topic; RecordError for those that are none."""
    value = _unwrapped(batch.column("value")) if rule.unwraps else batch.column("value")
    is_tombstone = pc.is_null(value)
    if not pa.types.is_struct(value.type) and not pa.types.is_null(value.type):
        _refuse(pc.invert(is_tombstone), "the value has no fields; use a converter with a schema")
        value = pa.nulls(len(value))
    keys = _keys(batch, value, rule)
    nested = [name for name, column in keys.items() if pa.types.is_nested(column.type)]
    if nested:
        raise PermanentError(
            f"{', '.join(nested)} cannot be part of the primary key, because it is nested; set "
            "pk.fields to others, or flatten it with a transform"
        )
    columns = dict(keys)
    if pa.types.is_struct(value.type):
        for field, column in zip(value.type, value.flatten(), strict=True):
            if field.name not in columns and (not rule.fields or field.name in rule.fields):
                columns[field.name] = column
    rows = pa.table(columns)
    if rule.delete_enabled:
        deletes = is_tombstone.to_pylist()
    else:
        if not rule.ignores_tombstones:
            _refuse(is_tombstone, "the value is null; set delete.enabled=true to delete its row")
        deletes = [False] * len(rows)
        if pc.any(is_tombstone).as_py():
            kept = pc.indices_nonzero(pc.invert(is_tombstone)).to_pylist()
            return _planned(rows, list(keys), rule, kept, deletes)
    return _planned(rows, list(keys), rule, range(len(rows)), deletes)


def _refuse(mask: pa.Array, why: str) -> None:
    rows = pc.indices_nonzero(mask).to_pylist()
    if rows:
        raise RecordError(dict.fromkeys(rows, why))


def _unwrapped(value: pa.Array) -> pa.Array:
    """The `after` of change events; null for a deletion. Other values stay as they are."""
    if not pa.types.is_struct(value.type):
        return value
    names = {field.name for field in value.type}
    if not {"before", "after", "op"} <= names:
        return value
    return pc.struct_field(value, "after")


def _keys(batch: pa.RecordBatch, value: pa.Array, rule: RowRule) -> dict[str, pa.Array]:
    match rule.pk_mode:
        case "none":
            return {}
        case "kafka":
            names = rule.pk_fields or KAFKA_COLUMNS
            found = [batch.column(name) for name in ("topic", "partition", "offset")]
            return dict(zip(names, found, strict=True))
        case "record_key":
            key = batch.column("key")
            _refuse(pc.is_null(key), "the key is null, but pk.mode=record_key needs it")
            if pa.types.is_struct(key.type):
                return _fields(key, rule.pk_fields, "key")
            if len(rule.pk_fields) != 1:
                raise PermanentError(
                    "the keys of the records have no fields, so that pk.fields needs exactly one "
                    "name: that of the column for the key"
                )
            return {rule.pk_fields[0]: key}
    if not pa.types.is_struct(value.type):
        return {}
    return _fields(value, rule.pk_fields, "value")


def _fields(found: pa.Array, names: Sequence[str], where: str) -> dict[str, pa.Array]:
    columns = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
    missing = [name for name in names if name not in columns]
    if missing:
        raise PermanentError(
            f"pk.fields has {', '.join(missing)}, but the {where} has only {', '.join(columns)}"
        )
    return {name: columns[name] for name in names or columns}


def _planned(
    rows: pa.Table,
    keys: Sequence[str],
    rule: RowRule,
    among: Sequence[int],
    deletes: Sequence[bool],
) -> TableChanges:
    if not keys or (rule.insert_mode == "insert" and not any(deletes)):
        return TableChanges(rows, keys, [], among)
    if not any(deletes):
        return TableChanges(rows, keys, [], _last_of_each(rows, keys, among))
    last_delete: dict[tuple[object, ...], int] = {}
    names = list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))
    for row in among:
        if deletes[row]:
            last_delete[names[row]] = row
    written = [row for row in among if row > last_delete.get(names[row], -1)]
    if rule.insert_mode != "insert":
        written = _last_of_each(rows, keys, written)
    return TableChanges(rows, keys, sorted(last_delete.values()), written)


def _last_of_each(rows: pa.Table, keys: Sequence[str], among: Sequence[int]) -> list[int]:
    """The last row of each key, in the order of the rows."""
    numbers = pa.array(among, pa.int64())
    chosen = rows.select(list(keys)).take(numbers).append_column("", numbers)
    groups = chosen.group_by(list(keys), use_threads=False).aggregate([("", "max")])
    last: list[int] = sorted(groups.column("_max").to_pylist())
    return last
