"""Converters and transforms in a stream."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.connect.converters.reading import read_records
from headrace.connect.converters.writing import write_records
from headrace.connect.transforms.applying import apply

pytestmark = pytest.mark.spark

APACHE = "org.apache.kafka.connect.transforms."
CONFIG = {
    "topics": "t",
    "value.schema": "id int, name string",
    "transforms": "cast,sql,drop",
    "transforms.cast.type": APACHE + "Cast$Value",
    "transforms.cast.spec": "name:int32",
    "transforms.sql.type": "headrace.Sql",
    "transforms.sql.sql": "select value.id, value.name * 2 as twice from record where value.id < 9",
    "transforms.drop.type": APACHE + "ReplaceField$Value",
    "transforms.drop.renames": "twice:double",
}


def test_a_stream_is_converted_and_transformed(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"id":1,"name":"10"}', '{"id":2,"name":"x"}', "{", '{"id":9,"name":"90"}']
    source = tmp_path / "lines"
    source.mkdir()
    (source / "one.txt").write_text("\n".join(lines))
    rows = spark.readStream.text(str(source)).selectExpr(
        "cast(value as binary) as value",
        "cast('k' as binary) as key",
        "'t' as topic",
        "0 as partition",
        "0L as offset",
        "timestamp '2026-01-02 03:04:05' as timestamp",
    )
    records = apply(read_records(rows, CONFIG, lambda _: None), CONFIG)
    written = write_records(records, CONFIG)
    target = tmp_path / "written"
    query = (
        written.selectExpr("cast(value as string) as value", "_error", "_stage")
        .writeStream.format("json")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(target))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    texts = [file.read_text() for file in target.glob("*.json")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    by_stage = {row.get("_stage"): row for row in found}
    assert by_stage.keys() == {None, "TRANSFORMATION", "VALUE_CONVERTER"}
    assert json.loads(by_stage[None]["value"]) == {"id": 1, "double": 20}
    assert len(found) == 3
