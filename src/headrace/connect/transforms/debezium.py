"""Debezium's transforms of change events: ExtractNewRecordState and the outbox EventRouter.

A change event has `before`, `after`, `source`, `op` and `ts_ms`. Values without `after` and `op`
are no change events and pass unchanged.
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from headrace.connect.converters.connect_schema import NAME
from headrace.connect.converters.moments import timestamp_of_millis
from headrace.connect.plugin import OptionError
from headrace.connect.transforms.change import Change, RecordFailure, RecordView, fail
from headrace.connect.transforms.headers import header, with_headers
from headrace.connect.transforms.options import Configured
from headrace.connect.transforms.routing import routed

DELETED = "__deleted"
_OF_TRANSACTION = ("id", "data_collection_order", "total_order")
_OF_ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns")
_MICRO = "io.debezium.time.MicroTimestamp"
_NANO = "io.debezium.time.NanoTimestamp"


@dataclass(frozen=True, slots=True)
class _Deletes:
    """What becomes of deletes and of the tombstones after them."""

    mode: str
    """drop, tombstone or rewrite"""
    keeps_tombstones: bool


def _deletes(options: Configured) -> _Deletes:
    mode = options.value("delete.tombstone.handling.mode")
    if mode is None:
        dropped, older = options.value("drop.tombstones"), options.value("delete.handling.mode")
        if dropped is None and older is None:
            return _Deletes("tombstone", False)
        kind = {"none": "tombstone", "rewrite": "rewrite"}.get(str(older), "drop")
        return _Deletes(kind, dropped is False)
    if mode == "rewrite-with-tombstone":
        return _Deletes("rewrite", True)
    return _Deletes("tombstone" if mode == "delete-to-tombstone" else str(mode), False)


def _envelope(records: RecordView) -> StructType | None:
    kind = records.type("value")
    if not isinstance(kind, StructType) or not {"after", "op"} <= set(kind.names):
        return None
    return kind if isinstance(kind["after"].dataType, StructType) else None


def extract_new_record_state(records: RecordView) -> Change:
    kind, options = _envelope(records), records.options
    if kind is None:
        return Change()
    deletes = _deletes(options)
    after = kind["after"].dataType
    assert isinstance(after, StructType), "`after` of a change event is a struct"
    value = F.col("value")
    is_delete = value.isNotNull() & value["after"].isNull()
    added = [
        (name, column.alias(name)) for name, column, _ in _references(options, "add.fields", kind)
    ]
    row = _row(value["after"], after, added)
    if deletes.mode == "rewrite":
        row = row.withField(DELETED, F.lit("false"))
        if "before" in kind.names and isinstance(kind["before"].dataType, StructType):
            before = _row(value["before"], after, added).withField(DELETED, F.lit("true"))
            row = F.when(is_delete, before).otherwise(row)
    is_tombstone = value.isNull()
    dropped = F.lit(False) if deletes.keeps_tombstones else is_tombstone
    if deletes.mode == "drop":
        dropped = dropped | is_delete
    columns = {"value": row}
    headers = _added_headers(options, kind)
    if headers is not None:
        columns["headers"] = headers
    if field := options.text("route.by.field"):
        routed_by = value["after"][field] if field in after.names else F.lit(None)
        columns["topic"] = F.coalesce(routed_by.cast("string"), F.col("topic"))
    return Change(columns, dropped=dropped)


def _row(struct: Column, kind: StructType, added: list[tuple[str, Column]]) -> Column:
    fields = [struct[each.name].alias(each.name, metadata=each.metadata) for each in kind.fields]
    return F.when(struct.isNotNull(), F.struct(*fields, *(column for _, column in added)))


def _references(
    options: Configured, option: str, kind: StructType
) -> list[tuple[str, Column, DataType]]:
    """The fields of the envelope that an option names, with their new names."""
    prefix = options.text(f"{option}.prefix")
    found = []
    for word in options.words(option):
        source, colon, alias = word.partition(":")
        parent, dot, name = source.partition(".")
        if not dot:
            parent, name = _parent(source), source
        new = prefix + (alias if colon else f"{parent}_{name}" if dot else name)
        field = _at(kind, parent, name)
        if field is not None:
            column, each = field
            found.append((new, column, each.dataType))
    return found


def _parent(name: str) -> str:
    if name in _OF_ENVELOPE:
        return ""
    return "transaction" if name in _OF_TRANSACTION else "source"


def _at(kind: StructType, parent: str, name: str) -> tuple[Column, StructField] | None:
    value = F.col("value")
    if parent in kind.names:
        inner = kind[parent].dataType
        if isinstance(inner, StructType) and name in inner.names:
            return value[parent][name], inner[name]
    return (value[name], kind[name]) if name in kind.names else None


def _added_headers(options: Configured, kind: StructType) -> Column | None:
    added = _references(options, "add.headers", kind)
    if not added:
        return None
    all_of_them = with_headers(*(header(name, column, each) for name, column, each in added))
    # A tombstone has no envelope: only its operation is known.
    prefix = options.text("add.headers.prefix")
    of_tombstone = [
        header(name, F.lit("d"), kind["op"].dataType)
        for name, _, _ in added
        if name == f"{prefix}op"
    ]
    return F.when(F.col("value").isNotNull(), all_of_them).otherwise(with_headers(*of_tombstone))


def event_router(records: RecordView) -> Change:
    kind, options = _envelope(records), records.options
    if kind is None:
        return Change(dropped=F.col("value").isNull())
    after = kind["after"].dataType
    assert isinstance(after, StructType), "`after` of a change event is a struct"
    value = F.col("value")
    missing = [
        (option, options.text(option))
        for option in ("table.field.event.id", "table.field.event.payload", "route.by.field")
        if options.text(option) not in after.names
    ]
    is_event = value.isNotNull() & value["op"].isin("c", "r")
    failures = [
        fail(is_event, f"Unable to find the field {name} of {option} in event")
        for option, name in missing
    ]
    if options.text("table.op.invalid.behavior") == "fatal":
        update = value["op"].eqNullSafe("u")
        failures.append(fail(update, "Unexpected update message received"))
        dropped = ~is_event & ~update
    else:
        dropped = ~is_event
    if missing:
        return Change(failures=failures, dropped=dropped)
    return Change(
        _event_columns(options, kind, after, failures), failures=failures, dropped=dropped
    )


def _event_columns(
    options: Configured, kind: StructType, after: StructType, failures: list[RecordFailure]
) -> dict[str, Column]:
    row = F.col("value")["after"]
    event_id = options.text("table.field.event.id")
    added = [header("id", row[event_id], after[event_id].dataType)]
    payload = row[options.text("table.field.event.payload")]
    in_envelope = [payload.alias("payload")]
    columns: dict[str, Column] = {}
    for field, placement, alias in _placements(options):
        if field not in after.names:
            known = F.col("value").isNotNull()
            failures.append(fail(known, f"Unable to find field {field} in event"))
        elif placement == "header":
            added.append(header(alias, row[field], after[field].dataType))
        elif placement == "envelope":
            in_envelope.append(row[field].alias(alias))
        else:
            columns["partition"] = row[field].try_cast("int")
            wrong = row[field].isNotNull() & columns["partition"].isNull()
            failures.append(fail(wrong, f"The field {field} is not the number of a partition"))
    new_value = payload if len(in_envelope) == 1 else F.struct(*in_envelope)
    if options.value("route.tombstone.on.empty.payload"):
        empty = payload.isNull() | (F.trim(payload.cast("string")) == "")
        new_value = F.when(~empty, new_value)
    keys = [
        row[str(name)]
        for name in (
            options.value("table.field.event.key"),
            options.value("table.field.payload.id"),
        )
        if name in after.names
    ]
    topic = routed(
        row[options.text("route.by.field")].cast("string"),
        options.text("route.topic.regex"),
        options.text("route.topic.replacement"),
    )
    return columns | {
        "topic": topic,
        "key": F.coalesce(*keys) if keys else F.lit(None).cast("string"),
        "value": new_value,
        "headers": with_headers(*added),
        "timestamp": _event_time(options, kind, after),
    }


def _placements(options: Configured) -> list[tuple[str, str, str]]:
    option = "table.fields.additional.placement"
    found = []
    for word in options.words(option):
        field, _, rest = word.partition(":")
        placement, _, alias = rest.partition(":")
        if placement not in ("header", "envelope", "partition"):
            raise OptionError(
                f"{options.prefix}.{option}",
                f"{word}: expected COLUMN:header, COLUMN:envelope or COLUMN:partition",
            )
        found.append((field, placement, alias or field))
    return found


def _event_time(options: Configured, kind: StructType, after: StructType) -> Column:
    default = F.col("timestamp")
    if "ts_ms" in kind.names:
        default = F.coalesce(timestamp_of_millis(F.col("value")["ts_ms"].cast("bigint")), default)
    name = options.value("table.field.event.timestamp")
    if name not in after.names:
        return default
    found, column = after[str(name)], F.col("value")["after"][str(name)]
    if not isinstance(found.dataType, LongType):
        return F.coalesce(column.try_cast("timestamp"), default)
    unit = found.metadata.get(NAME)
    if unit == _MICRO:
        moment = F.timestamp_micros(column)
    elif unit == _NANO:
        moment = F.timestamp_micros(F.call_function("div", column, F.lit(1000).cast("bigint")))
    else:
        moment = timestamp_of_millis(column)
    return F.coalesce(moment, default)
