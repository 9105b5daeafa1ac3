"""Values as Java's toString and as Connect's header converter write them."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_JAVA_DATE = "EEE MMM dd HH:mm:ss 'UTC' yyyy"
_TIME = "HH:mm:ss.SSS'Z'"
_DAY_MS = 86_400_000


def java_text(column: Column, kind: DataType) -> Column:
    """The value as Java's toString writes it: `Struct{id=1,name=a}`; bytes are base64."""
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, StructType):
        parts = [
            F.concat(F.lit(f"{field.name}="), java_text(column[field.name], field.dataType))
            for field in kind.fields
        ]
        inner = F.array_join(F.array(*parts), ",") if parts else F.lit("")
        return F.when(column.isNotNull(), F.concat(F.lit("Struct{"), inner, F.lit("}")))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        items = F.transform(
            column, lambda item: F.coalesce(java_text(item, element), F.lit("null"))
        )
        return F.concat(F.lit("["), F.array_join(items, ", "), F.lit("]"))
    if isinstance(kind, MapType):
        keys, values = kind.keyType, kind.valueType
        pairs = F.transform(
            F.map_entries(column),
            lambda pair: F.concat(
                java_text(pair["key"], keys),
                F.lit("="),
                F.coalesce(java_text(pair["value"], values), F.lit("null")),
            ),
        )
        return F.concat(F.lit("{"), F.array_join(pairs, ", "), F.lit("}"))
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.date_format(column, _JAVA_DATE)
    return column.cast("string")


def header_text(column: Column, kind: DataType, embedded: bool = False) -> Column:
    """The value as Connect's SimpleHeaderConverter writes it: structs are like JSON."""
    if isinstance(kind, StringType):
        if not embedded:
            return column
        escaped = F.regexp_replace(F.regexp_replace(column, r"\\", r"\\\\"), '"', r'\\"')
        return F.concat(F.lit('"'), escaped, F.lit('"'))
    null = F.lit("null")
    if isinstance(kind, StructType):
        parts = [
            F.concat(
                F.lit(f'"{field.name}":'),
                F.coalesce(header_text(column[field.name], field.dataType, True), null),
            )
            for field in kind.fields
        ]
        inner = F.concat_ws(",", *parts) if parts else F.lit("")
        return F.when(column.isNotNull(), F.concat(F.lit("{"), inner, F.lit("}")))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        items = F.transform(column, lambda item: F.coalesce(header_text(item, element, True), null))
        return F.concat(F.lit("["), F.array_join(items, ","), F.lit("]"))
    if isinstance(kind, MapType):
        keys, values = kind.keyType, kind.valueType
        pairs = F.transform(
            F.map_entries(column),
            lambda pair: F.concat(
                header_text(pair["key"], keys, True),
                F.lit(":"),
                F.coalesce(header_text(pair["value"], values, True), null),
            ),
        )
        return F.concat(F.lit("{"), F.array_join(pairs, ","), F.lit("}"))
    if isinstance(kind, BinaryType):
        text = F.base64(column)
        return F.concat(F.lit('"'), text, F.lit('"')) if embedded else text
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return date_text(column, kind)
    return column.cast("string")


def date_text(column: Column, kind: DataType) -> Column:
    """A date or timestamp as Connect writes it: without a part that is zero.

    Connect leaves out the date of everything before 1970-01-02; here it does only of times of day
    in a timestamp.
    """
    if isinstance(kind, DateType):
        return F.date_format(column, "yyyy-MM-dd")
    moment = column.cast("timestamp")
    is_day = F.pmod(F.unix_millis(moment), F.lit(_DAY_MS)) == 0
    return (
        F.when(F.unix_millis(moment).between(0, _DAY_MS - 1), F.date_format(moment, _TIME))
        .when(is_day, F.date_format(moment, "yyyy-MM-dd"))
        .otherwise(F.date_format(moment, f"yyyy-MM-dd'T'{_TIME}"))
    )
