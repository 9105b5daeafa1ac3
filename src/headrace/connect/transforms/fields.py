"""Transforms of the fields of keys and values."""

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.connect_schema import NAME, VERSION
from headrace.connect.transforms.change import (
    Change,
    RecordFailure,
    RecordView,
    fail,
    java_class,
    kept,
    not_a_struct,
    null_fails,
    rebuilt,
)
from headrace.connect.transforms.options import number, renames
from headrace.connect.transforms.paths import field_path

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def extract_field(records: RecordView) -> Change:
    part, options = records.part, records.options
    text = options.text("field")
    path = field_path(f"{options.prefix}.field", text, options.text("field.syntax.version"))
    column, kind = F.col(part), records.type(part)
    metadata: dict[str, object] = {}
    if not isinstance(kind, StructType):
        return not_a_struct(records, part, "field extraction")
    for step in path:
        if not isinstance(kind, StructType) or step not in kind.names:
            unknown = fail(F.col(part).isNotNull(), f"Unknown field: {text}")
            return Change({part: F.lit(None).cast("string")}, failures=[unknown])
        found = kind[step]
        column, kind, metadata = column[step], found.dataType, dict(found.metadata)
    return Change({part: column}, {part: metadata})


def hoist_field(records: RecordView) -> Change:
    part = records.part
    field = F.col(part).alias(records.options.text("field"), metadata=records.schema[part].metadata)
    return Change({part: F.struct(field)})


def insert_field(records: RecordView) -> Change:
    part, options = records.part, records.options
    fields = records.fields(part)
    if fields is None:
        return not_a_struct(records, part, "field insertion")
    inserted = {
        "topic.field": F.col("topic"),
        "partition.field": F.col("partition") if "partition" in records.schema.names else None,
        "offset.field": F.col("offset") if "offset" in records.schema.names else None,
        "timestamp.field": F.col("timestamp") if "timestamp" in records.schema.names else None,
        "static.field": F.lit(options.value("static.value")),
    }
    new: dict[str, Column] = {each.name: kept(part, each) for each in fields}
    failures = []
    for option, column in inserted.items():
        given = options.value(option)
        if given is None:
            continue
        name = str(given).removesuffix("?").removesuffix("!")
        if column is None and option == "offset.field":
            failures.append(
                fail(F.col(part).isNotNull(), "Only SinkRecord supported for [field insertion]")
            )
        value = F.lit(None).cast("string") if column is None else column
        new[name] = value.alias(name)
    return Change({part: rebuilt(part, list(new.values()))}, failures=failures)


def replace_field(records: RecordView) -> Change:
    part, options = records.part, records.options
    fields = records.fields(part)
    if fields is None:
        return not_a_struct(records, part, "field replacement")
    exclude, include = options.words("exclude"), options.words("include")
    names = renames(options)
    rest = [
        F.col(part)[each.name].alias(names.get(each.name, each.name), metadata=each.metadata)
        for each in fields
        if each.name not in exclude and (not include or each.name in include)
    ]
    return Change({part: rebuilt(part, rest)}, {part: records.schema[part].metadata})


def flatten(records: RecordView) -> Change:
    part = records.part
    kind = records.type(part)
    if not isinstance(kind, StructType):
        return not_a_struct(records, part, "flattening")
    failures: list[RecordFailure] = []
    found = list(_flat(F.col(part), kind, "", records.options.text("delimiter"), part, failures))
    return Change({part: rebuilt(part, found)}, failures=failures)


def _flat(
    column: Column,
    kind: StructType,
    prefix: str,
    delimiter: str,
    part: str,
    failures: list[RecordFailure],
) -> Iterator[Column]:
    for each in kind.fields:
        name = f"{prefix}{delimiter}{each.name}" if prefix else each.name
        if isinstance(each.dataType, StructType):
            yield from _flat(column[each.name], each.dataType, name, delimiter, part, failures)
            continue
        if isinstance(each.dataType, MapType):
            message = (
                "Flatten transformation does not support MAP for record with schemas "
                f"(for field {name})."
            )
            failures.append(fail(F.col(part).isNotNull(), message))
        yield column[each.name].alias(name, metadata=each.metadata)


def mask_field(records: RecordView) -> Change:
    part, options = records.part, records.options
    fields = records.fields(part)
    if fields is None:
        change = not_a_struct(records, part, "mask fields")
        return Change(failures=[null_fails(part, "mask fields"), *change.failures])
    masked = options.words("fields")
    replacement = options.value("replacement")
    failures = [null_fails(part, "mask fields")]
    new = []
    for each in fields:
        if each.name not in masked:
            new.append(kept(part, each))
            continue
        old = F.col(part)[each.name]
        value, why = _mask(each.dataType, None if replacement is None else str(replacement))
        if value is None:
            failures.append(fail(old.isNotNull(), why))
            new.append(kept(part, each))
        else:
            hidden = F.when(old.isNotNull(), value.cast(each.dataType))
            new.append(hidden.alias(each.name, metadata=each.metadata))
    return Change({part: rebuilt(part, new)}, failures=failures)


def _mask(kind: DataType, replacement: str | None) -> tuple[Column | None, str]:
    """The value that hides others of a type, or why there is none."""
    if replacement is not None:
        return _replacement(kind, replacement)
    if isinstance(kind, BooleanType):
        return F.lit(False), ""
    if isinstance(kind, IntegralType | FractionalType):
        return F.lit(0), ""
    if isinstance(kind, StringType):
        return F.lit(""), ""
    if isinstance(kind, DateType):
        return F.date_from_unix_date(F.lit(0)), ""
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.timestamp_millis(F.lit(0)), ""
    if isinstance(kind, ArrayType):
        return F.array(), ""
    if isinstance(kind, MapType):
        return F.create_map(), ""
    return None, f"Cannot mask value of type: class {java_class(kind)}"


def _replacement(kind: DataType, text: str) -> tuple[Column | None, str]:
    if isinstance(kind, StringType):
        return F.lit(text), ""
    if not isinstance(kind, IntegralType | FractionalType):
        return None, f"Cannot mask value of type class {java_class(kind)} with custom replacement."
    found = number(text)
    if found is None:
        return None, f"Unable to convert {text} (class java.lang.String) to a number"
    if isinstance(kind, IntegralType):
        bits = _BITS[kind.simpleString()]
        low = int(found) & ((1 << bits) - 1)
        return F.lit(low - (1 << bits) if low >> (bits - 1) else low), ""
    if isinstance(kind, DecimalType):
        return F.lit(text).try_cast(kind), ""
    return F.lit(float(found)), ""


def set_schema_metadata(records: RecordView) -> Change:
    part, options = records.part, records.options
    metadata: dict[str, object] = dict(records.schema[part].metadata)
    for option, key in (("schema.name", NAME), ("schema.version", VERSION)):
        if (value := options.value(option)) is not None:
            metadata[key] = value
    return Change({part: F.col(part)}, {part: metadata})


def value_to_key(records: RecordView) -> Change:
    purpose = "copying fields from value to key"
    fields = records.fields("value")
    if fields is None:
        change = not_a_struct(records, "value", purpose)
        return Change(failures=[null_fails("value", purpose), *change.failures])
    by_name = {each.name: each for each in fields}
    names = records.options.words("fields")
    failures = [null_fails("value", purpose)]
    failures += [
        fail(F.col("value").isNotNull(), f"Field does not exist: {name}")
        for name in names
        if name not in by_name
    ]
    found = [kept("value", by_name[name]) for name in names if name in by_name]
    return Change({"key": F.struct(*found)} if found else {}, failures=failures)
