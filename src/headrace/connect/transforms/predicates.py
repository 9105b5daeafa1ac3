"""Predicates: for which records a transform is used."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.connect.transforms.options import APACHE, Configured


def condition(predicate: Configured) -> Column:
    name = predicate.class_name.removeprefix(f"{APACHE}predicates.")
    if name == "HasHeaderKey":
        wanted = predicate.text("name")
        return F.exists(F.col("headers"), lambda header: header["key"] == wanted)
    if name == "RecordIsTombstone":
        return F.col("value").isNull()
    return whole_match(F.col("topic"), predicate.text("pattern"))


def whole_match(text: Column, regex: str) -> Column:
    """Whether a Java regular expression matches the whole text."""
    return F.rlike(text, F.lit(rf"\A(?:{regex})\z"))
