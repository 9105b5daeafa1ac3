"""Columns of tables and DataFrames: converts types, compares schemas, finds new columns."""

import pyarrow as pa


class ColumnsDiffer(ValueError):
    """A DataFrame does not match a table. The message has the column and what to do."""


def plain(schema: pa.Schema, *, widen: bool = False) -> pa.Schema:
    """The schema in types that all readers of Parquet support, with all columns nullable.

    Times become microseconds in UTC. `widen` also converts smaller integers to 32 bits, because
    Iceberg does not have them.
    """
    return pa.schema([_field(field, widen) for field in schema])


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with the types of `schema`."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def additions(table: pa.Schema, data: pa.Schema, name: str) -> list[pa.Field]:
    """The columns of `data` that the table lacks; ColumnsDiffer if a type changed.

    Both schemas are `plain`. A column that the data lacks is null in the new rows.
    """
    known = {field.name.lower(): field for field in table}
    added = []
    for field in data:
        there = known.get(field.name.lower())
        if there is None:
            added.append(field)
        elif there.name != field.name:
            raise ColumnsDiffer(
                f"the table {name} has the column {there.name!r} and the DataFrame {field.name!r}; "
                "rename the DataFrame's column to match"
            )
        elif not there.type.equals(field.type):
            raise ColumnsDiffer(
                f"the column {field.name!r} is {there.type} in the table {name} and {field.type} "
                "in the DataFrame; cast it, or write to another column: only new columns are "
                "added automatically"
            )
    return added


def _field(field: pa.Field, widen: bool) -> pa.Field:
    return pa.field(field.name, _type(field.type, widen), nullable=True)


def _type(kind: pa.DataType, widen: bool) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _type(kind.value_type, widen)
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", _type(kind.value_type, widen)))
    if types.is_map(kind):
        item = pa.field("value", _type(kind.item_type, widen))
        return pa.map_(_type(kind.key_type, widen), item)
    if types.is_struct(kind):
        return pa.struct([_field(kind.field(i), widen) for i in range(kind.num_fields)])
    if widen and (types.is_int8(kind) or types.is_int16(kind)):
        return pa.int32()
    return kind
