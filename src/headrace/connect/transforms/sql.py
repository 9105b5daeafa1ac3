"""headrace.Sql: a query over the records of a batch.

    select topic, key, value.id as id, value.price * 2 as price from record where value.price > 0

The table `record` has the columns topic, partition, offset, timestamp, key, value and headers.
Columns of the result with these names replace those of the record; all others are the fields of
the new value. Records for which the condition does not hold are dropped.
"""

import re
import uuid

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.connect.plugin import OptionError
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
    view = f"record_{uuid.uuid4().hex}"
    hidden = ", ".join(f"record.`{name}`" for name in old.columns)
    condition = f"where not record.__on or ({form['condition']})" if form["condition"] else ""
    old.createOrReplaceTempView(view)
    try:
        found = rows.sparkSession.sql(
            f"select {form['columns']}, {hidden} from {view} as record {condition}"
        )
    except (AnalysisException, ParseException) as error:
        raise OptionError(option, f"{text}: {str(error).splitlines()[0]}") from None
    finally:
        rows.sparkSession.catalog.dropTempView(view)
    count = len(found.columns) - len(old.columns)
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
    found = found.toDF(*(f"__new_{place}" for place in range(count)), *old.columns)
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
