"""Applies the transforms of a configuration to records.

Records with an `_error` or with an `_offset` pass unchanged. A record that a transform cannot
change gets an `_error` and the `_stage` TRANSFORMATION, and passes all later transforms.

If a transform with a predicate changes the fields, all records get the fields of both forms, and
those that a record does not have are null.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.connect.plugin import PermanentError
from headrace.connect.transforms import debezium, fields, headers, predicates, routing, timestamps
from headrace.connect.transforms.casting import cast
from headrace.connect.transforms.change import Change, RecordView, fitted, merged, type_of
from headrace.connect.transforms.options import (
    APACHE,
    OUTBOX,
    SQL,
    UNWRAP,
    TransformStep,
    steps,
)
from headrace.connect.transforms.sql import apply_sql

ERROR, STAGE, OFFSET = "_error", "_stage", "_offset"
TRANSFORMATION = "TRANSFORMATION"
_ON, _FAILURE = "__on", "__failure"

_FUNCTIONS: Mapping[str, Callable[[RecordView], Change]] = {
    "Cast": cast,
    "DropHeaders": headers.drop_headers,
    "ExtractField": fields.extract_field,
    "Filter": lambda _: Change(dropped=F.lit(True)),
    "Flatten": fields.flatten,
    "HeaderFrom": headers.header_from,
    "HoistField": fields.hoist_field,
    "InsertField": fields.insert_field,
    "InsertHeader": headers.insert_header,
    "MaskField": fields.mask_field,
    "RegexRouter": routing.regex_router,
    "ReplaceField": fields.replace_field,
    "SetSchemaMetadata": fields.set_schema_metadata,
    "TimestampConverter": timestamps.timestamp_converter,
    "TimestampRouter": routing.timestamp_router,
    "ValueToKey": fields.value_to_key,
}


def apply(rows: DataFrame, config: Mapping[str, str]) -> DataFrame:
    """The records after all transforms, in the order of the option `transforms`."""
    chain = steps(config)
    for name in (ERROR, STAGE):
        if chain and name not in rows.columns:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
    for step in chain:
        rows = _applied(rows, step)
    return rows


def _applied(rows: DataFrame, step: TransformStep) -> DataFrame:
    records = RecordView(rows.schema, step.transform)
    on = F.col(ERROR).isNull()
    if OFFSET in rows.columns:
        on = on & F.col(OFFSET).isNull()
    if step.predicate is not None:
        holds = F.coalesce(predicates.condition(step.predicate), F.lit(False))
        on = on & (~holds if step.negate else holds)
    if step.transform.class_name == SQL:
        if step.predicate is not None:
            raise PermanentError(
                f"{step.transform.prefix}: headrace.Sql has no predicate; use where or case"
            )
        return apply_sql(rows, step.transform, on)
    change = _change(records)
    columns = rows.columns
    rows = rows.withColumn(_ON, on)
    if change.dropped is not None:
        rows = rows.where(~(F.col(_ON) & F.coalesce(change.dropped, F.lit(False))))
    failed: Column = F.lit(None).cast("string")
    if change.failures:
        failed = F.coalesce(*(F.when(one.condition, one.message) for one in change.failures))
    rows = rows.withColumn(_FAILURE, F.when(F.col(_ON), failed))
    is_new = F.col(_ON) & F.col(_FAILURE).isNull()
    new = {name: _either(rows, step, name, is_new, change) for name in change.columns}
    new[ERROR] = F.coalesce(F.col(ERROR), F.col(_FAILURE)).alias(ERROR)
    stage = F.when(F.col(_FAILURE).isNotNull(), F.lit(TRANSFORMATION)).otherwise(F.col(STAGE))
    new[STAGE] = stage.alias(STAGE)
    return rows.select(*(new.get(name, F.col(name)) for name in columns))


def _change(records: RecordView) -> Change:
    name = records.options.class_name
    if name == UNWRAP:
        return debezium.extract_new_record_state(records)
    if name == OUTBOX:
        return debezium.event_router(records)
    return _FUNCTIONS[name.removeprefix(APACHE).partition("$")[0]](records)


def _either(
    rows: DataFrame, step: TransformStep, name: str, is_new: Column, change: Change
) -> Column:
    """The new column of the records that change, the old one of the others."""
    old = rows.schema[name]
    new_column = change.columns[name]
    new = type_of(rows, new_column)
    same = old.dataType == new.dataType
    metadata = change.metadata.get(name, old.metadata if same else {})
    if same:
        return (
            F.when(is_new, new_column).otherwise(F.col(name)).alias(name, metadata=dict(metadata))
        )
    if step.predicate is None:
        # The others have an error or a source offset: their key and value are not used.
        return F.when(is_new, new_column).alias(name, metadata=dict(metadata))
    both = merged(old.dataType, new.dataType)
    if both is None:
        raise PermanentError(
            f"{step.transform.prefix}: the {name} of records that match the predicate would be "
            f"{new.dataType.simpleString()}, that of others {old.dataType.simpleString()}; "
            "remove the predicate, or use connectors for both kinds of records"
        )
    return (
        F.when(is_new, fitted(new_column, new.dataType, both))
        .otherwise(fitted(F.col(name), old.dataType, both))
        .alias(name, metadata=dict(metadata))
    )
