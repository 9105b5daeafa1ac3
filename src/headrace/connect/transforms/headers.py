"""Transforms of headers. The value of a header is written as SimpleHeaderConverter does it."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.connect.converters.java_text import header_text
from headrace.connect.plugin import HEADERS_TYPE
from headrace.connect.transforms.change import (
    Change,
    RecordView,
    fail,
    kept,
    not_a_struct,
    null_fails,
    rebuilt,
)


def no_headers() -> Column:
    return F.array().cast(HEADERS_TYPE)


def present_headers() -> Column:
    """The headers of the record, an empty array instead of null.

    Spark measures an Arrow batch after each row, and walks over all nulls of an array column.
    """
    return F.coalesce(F.col("headers"), no_headers())


def with_headers(*added: Column) -> Column:
    """The headers of the record and these."""
    return F.concat(present_headers(), F.array(*added).cast(HEADERS_TYPE))


def header(name: str, value: Column, kind: DataType) -> Column:
    text = header_text(value, kind).cast("binary")
    return F.struct(F.lit(name).alias("key"), text.alias("value"))


def drop_headers(records: RecordView) -> Change:
    names = records.options.words("headers")
    found = F.filter(present_headers(), lambda one: ~one["key"].isin(*names))
    return Change({"headers": found})


def insert_header(records: RecordView) -> Change:
    name = records.options.text("header")
    text = records.options.text("value.literal")
    value = F.lit(text).cast("binary").alias("value")
    return Change({"headers": with_headers(F.struct(F.lit(name).alias("key"), value))})


def header_from(records: RecordView) -> Change:
    part, options = records.part, records.options
    purpose = f"header {options.text('operation')}"
    fields = records.fields(part)
    if fields is None:
        change = not_a_struct(records, part, purpose)
        return Change(failures=[null_fails(part, purpose), *change.failures])
    names = options.words("fields")
    by_name = {each.name: each for each in fields}
    added = [
        header(wanted, F.col(part)[name], by_name[name].dataType)
        for name, wanted in zip(names, options.words("headers"), strict=True)
        if name in by_name
    ]
    failures = [null_fails(part, purpose)]
    failures += [
        fail(F.col(part).isNotNull(), f"Field does not exist: {name}")
        for name in names
        if name not in by_name
    ]
    columns = {"headers": with_headers(*added)}
    if options.text("operation") == "move":
        rest = [kept(part, each) for each in fields if each.name not in names]
        columns[part] = rebuilt(part, rest)
    return Change(columns, failures=failures)
