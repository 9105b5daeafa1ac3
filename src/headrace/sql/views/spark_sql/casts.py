"""CAST, and the conversions that Spark makes by itself."""

from headrace.sql.records.types import INTEGERS, ColumnType
from headrace.sql.views.spark_sql.moments import date_number, timestamp_of
from headrace.sql.views.spark_sql.typed import (
    DATE,
    STRING,
    TIMESTAMP,
    VOID,
    NotAnswerable,
    Typed,
    is_integer,
    is_numeric,
    number_sql,
)

_DAY = 86_400_000_000
_FLOATING = ("float", "double")


def cast(value: Typed, kind: ColumnType) -> Typed:
    """The value as another type. What does not convert fails when the query runs."""
    source = value.kind
    if source == kind:
        return value
    if source == VOID:
        return Typed("NULL", kind)
    if is_numeric(source) and is_numeric(kind):
        return Typed(_number(value, kind), kind)
    if source.kind == "string":
        return _of_text(value, kind)
    if kind == STRING:
        return Typed(_text(value), kind)
    if source.kind == "boolean" and is_integer(kind):
        return Typed(value.sql, kind)
    if kind.kind == "boolean" and is_integer(source):
        return Typed(f"({value.sql} <> 0)", kind)
    if source == DATE and kind.kind == "timestamp":
        return Typed(f"({value.sql} * {_DAY})", kind)
    if source.kind in ("timestamp", "timestamp_ntz") and kind == DATE:
        return Typed(f"spark_floor_quotient({value.sql}, {_DAY})", kind)
    raise NotAnswerable(f"a view cannot convert {source} to {kind}")


def _number(value: Typed, kind: ColumnType) -> str:
    source, sql = value.kind, value.sql
    if kind.kind == "decimal":
        return f"spark_decimal({number_sql(value)}, {kind.precision}, {kind.scale})"
    if source.kind == "decimal":
        if kind.kind in _FLOATING:
            number = f"CAST({sql} AS REAL)"
            return f"spark_narrowed({number})" if kind.kind == "float" else number
        return f"spark_integer(spark_decimal_whole({sql}), '{kind.kind}')"
    if kind.kind == "double":
        # NaN stays NaN, which a conversion would make 0.
        return sql if source.kind == "float" else f"CAST({sql} AS REAL)"
    if kind.kind == "float":
        return f"spark_narrowed({sql})"
    if is_integer(source) and INTEGERS[source.kind] <= INTEGERS[kind.kind]:
        return sql
    return f"spark_integer({number_sql(value)}, '{kind.kind}')"


def _of_text(value: Typed, kind: ColumnType) -> Typed:
    sql = value.sql
    if is_integer(kind):
        return Typed(f"spark_integer({sql}, '{kind.kind}')", kind)
    if kind.kind == "double":
        return Typed(f"spark_double({sql})", kind, is_stored=True)
    if kind.kind == "decimal":
        return Typed(f"spark_decimal({sql}, {kind.precision}, {kind.scale})", kind)
    if kind.kind == "binary":
        return Typed(f"spark_bytes({sql})", kind)
    if kind in (DATE, TIMESTAMP):
        if value.is_literal:
            read = date_number if kind == DATE else timestamp_of
            found = read(value.constant)
            if found is None:
                raise NotAnswerable(f"{value.constant!r} is no {kind}")
            return Typed(str(found), kind, found)
        name = "spark_must_date" if kind == DATE else "spark_must_timestamp"
        return Typed(f"{name}({sql})", kind)
    raise NotAnswerable(f"a view cannot convert a string to {kind}")


def _text(value: Typed) -> str:
    source, sql = value.kind, value.sql
    if is_integer(source):
        return f"CAST({sql} AS TEXT)"
    if source.kind == "decimal":
        return sql
    if source.kind == "boolean":
        return f"spark_boolean_text({sql})"
    functions = {
        "double": "spark_double_text",
        "float": "spark_float_text",
        "date": "spark_date_text",
        "timestamp": "spark_timestamp_text",
        "timestamp_ntz": "spark_timestamp_text",
        "binary": "spark_text",
    }
    if source.kind not in functions:
        raise NotAnswerable(f"a view cannot convert {source} to string")
    return f"{functions[source.kind]}({sql})"
