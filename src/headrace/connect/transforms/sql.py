"""headrace.Sql: a query over the records of a batch.

    select topic, key, value.id as id, value.price * 2 as price from record where value.price > 0

The table `record` has the columns topic, partition, offset, timestamp, key, value and headers.
Columns of the result with these names replace those of the record; all others are the fields of
the new value. Records for which the condition does not hold are dropped. A record for which an
expression fails, such as a cast or a division by zero, gets an `_error`.
"""

import re
import uuid
from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.connect.plugin import OptionError
from headrace.connect.transforms.attempts import attempted, projection
from headrace.connect.transforms.options import Configured

_FORM = re.compile(
    r"\s*select\s+(?P<columns>.+?)\s+from\s+record(?:\s+where\s+(?P<condition>.+?))?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
RECORD = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def apply_sql(rows: DataFrame, options: Configured, on: Column) -> DataFrame:
    """The records after the query; those that are not `on` pass unchanged."""
    option, text = f"{options.prefix}.sql", options.text("sql")
    form = _FORM.fullmatch(text)
    if form is None:
        raise OptionError(option, f"{text}: expected select ... from record [where ...]")
    old = rows.withColumn("__on", on)
    found = _selected(old, option, text, form["columns"], form["condition"] or "true")
    count = len(found.columns) - len(old.columns) - 1
    kind = found.schema.fields[count].dataType.simpleString()
    if kind != "boolean":
        raise OptionError(option, f"{text}: the condition is {kind}, not boolean")
    names = found.columns[:count]
    chosen = {
        name: f"__new_{place}"
        for place, name in enumerate(names)
        if not name.startswith("_") or name not in old.columns
    }
    fields = [name for name in chosen if name not in RECORD]
    if fields and "value" in chosen:
        raise OptionError(
            option,
            f"the query has the column value and also {', '.join(fields)}: select either the "
            "value or its fields",
        )
    found = _attempted(found, old.columns, [*names, "where"], option)
    new = {name: F.col(chosen[name]) for name in chosen if name in RECORD}
    if fields:
        new["value"] = F.struct(*(F.col(chosen[name]).alias(name) for name in fields))
    types = {each.name: each.dataType for each in found.schema.fields}
    selected = []
    for name in rows.columns:
        if name not in new:
            selected.append(F.col(name))
            continue
        whole = F.when(F.col("__on"), new[name])
        if found.select(new[name].alias("it")).schema["it"].dataType == types[name]:
            whole = whole.otherwise(F.col(name))
        selected.append(whole.alias(name))
    return found.select(*selected)


def _selected(old: DataFrame, option: str, text: str, columns: str, condition: str) -> DataFrame:
    """The columns of the query, its condition, and the old columns."""
    view = f"record_{uuid.uuid4().hex}"
    hidden = ", ".join(f"record.`{name}`" for name in old.columns)
    old.createOrReplaceTempView(view)
    try:
        return old.sparkSession.sql(
            f"select {columns}, ({condition}) as __holds, {hidden} from {view} as record"
        )
    except (AnalysisException, ParseException) as error:
        raise OptionError(option, f"{text}: {str(error).splitlines()[0]}") from None
    finally:
        old.sparkSession.catalog.dropTempView(view)


def _attempted(
    found: DataFrame, old: Sequence[str], items: Sequence[str], option: str
) -> DataFrame:
    """The new columns as `__new_0` and so on, with an `_error` for records that fail.

    `items` are the names of the new columns, and the condition, for messages.
    """
    parts = projection(found)
    if parts is None:
        raise OptionError(option, "expected a plain select, without distinct and without groups")
    below, columns = parts
    on = F.col("__on")
    tries, values, problems = [], [], []
    for place, (item, (column, may_fail)) in enumerate(zip(items, columns, strict=False)):
        name, attempt = f"__new_{place}", f"__try_{place}"
        if not may_fail:
            tries.append(column.alias(name))
            values.append(F.col(name))
            continue
        tries.append(attempted(column, on).alias(attempt))
        values.append(F.col(attempt)["it"].alias(name))
        problem = f"{option}: {item} cannot be computed for this record"
        problems.append(F.when(on & F.col(attempt).isNull(), F.lit(problem)))
    tried = below.select(*tries, *old)
    error = F.coalesce(F.col("_error"), *problems)
    stage = F.coalesce(F.col("_stage"), F.when(error.isNotNull(), F.lit("TRANSFORMATION")))
    rest = [name for name in old if name not in ("_error", "_stage", "__on")]
    result = tried.select(
        *values,
        error.alias("_error"),
        stage.alias("_stage"),
        (on & error.isNull()).alias("__on"),
        *rest,
    )
    holds = F.coalesce(F.col(f"__new_{len(items) - 1}"), F.lit(False))
    return result.where(~F.col("__on") | holds)
