"""What the sinks of files and tables accept, and what they refuse with which sentence."""

import json
from collections.abc import Mapping

import pytest

from headrace.connect.plugin import OptionError, TableSink
from headrace.connect.plugins import Plugins
from headrace.connect.secrets import mask
from headrace.connect.validation import parsed, secret_options
from headrace.pipelines.lake.folders import FolderRule
from headrace.pipelines.lake.parquet import ParquetLake

S3 = {
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "s3.bucket.name": "lake",
    "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
    "flush.size": "1000",
    "topics": "orders",
    "name": "c",
}
TIME = {
    "partitioner.class": "TimeBasedPartitioner",
    "path.format": "'year'=YYYY/'month'=MM",
}
KEYS = {"aws.access.key.id": "key", "aws.secret.access.key": "secret"}


def options(config: Mapping[str, str]) -> Mapping[str, str]:
    sink = Plugins().find(config["connector.class"]).kind(config)
    assert isinstance(sink, TableSink)
    return sink.table_options()


def rule(**given: str) -> FolderRule:
    config = {name.replace("_", "."): value for name, value in given.items()}
    return ParquetLake.from_options(options({**S3, **config})).rule


def test_the_configuration_of_confluents_sink_is_valid() -> None:
    config = {
        **S3, **TIME, **KEYS, "s3.region": "eu-central-1", "s3.part.size": "5242880",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "locale": "de-DE", "timezone": "Europe/Zurich", "rotate.interval.ms": "1000",
        "partition.duration.ms": "3600000", "timestamp.extractor": "RecordField",
        "timestamp.field": "at",
    }  # fmt: skip
    assert parsed(Plugins().find(config["connector.class"]), {**config}).errors == []
    found = options(config)
    assert found["path"] == "s3://lake/topics"
    assert found["rowsPerFile"] == "1000"
    assert found["storage.AWS_SECRET_ACCESS_KEY"] == "secret"
    assert ParquetLake.from_options(found).rule == FolderRule(
        time_format="'year'=YYYY/'month'=MM", timezone="Europe/Zurich", time_field="at",
        duration_ms=3_600_000, by_topic=True,
    )  # fmt: skip


def test_partitioners_become_folders() -> None:
    assert rule() == FolderRule(by_partition=True, by_topic=True)
    assert rule(partitioner_class="NoPartitioner") == FolderRule(by_topic=True)
    by_fields = rule(partitioner_class="FieldPartitioner", partition_field_name="a, b")
    assert by_fields == FolderRule(fields=("a", "b"), by_topic=True)
    full = "io.confluent.connect.storage.partitioner.HourlyPartitioner"
    assert rule(partitioner_class=full).time_format == "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    wallclock = rule(partitioner_class="DailyPartitioner", timestamp_extractor="Wallclock")
    assert wallclock.wallclock


@pytest.mark.parametrize(
    ("change", "option", "message"),
    [
        ({**TIME, "path.format": "'d'=d"}, "path.format", "d in 'd'=d is not supported"),
        ({"partitioner.class": "TimeBasedPartitioner"}, "path.format", "needs a path.format"),
        ({"partitioner.class": "FieldPartitioner"}, "partition.field.name", "at least one field"),
        ({"partitioner.class": "FieldPartitioner", "partition.field.name": "a.b"},
         "partition.field.name", "use Flatten"),
        ({"partitioner.class": "Mine"}, "partitioner.class", "expected one of"),
        ({**TIME, "timezone": "Mars/Base"}, "timezone", "no time zone Mars/Base"),
        ({**TIME, "path.format": "MMM", "locale": "de-DE"}, "locale", "are English"),
        ({"format.class": "io.confluent.connect.s3.format.avro.AvroFormat"}, "format.class",
         "AvroFormat is not supported"),
        ({"flush.size": "0"}, "flush.size", "at least 1"),
        ({"aws.access.key.id": "k"}, "aws.secret.access.key", "Set both"),
        ({"store.url": "minio:9000"}, "store.url", "expected an address"),
        ({"connector.class": "ParquetSink", "path": "ftp://x/y"}, "path", "expected a folder"),
        ({"connector.class": "HdfsSink", "hdfs.url": "http://x:1",
          "format.class": "io.confluent.connect.hdfs3.json.JsonFormat"}, "hdfs.url",
         "expected hdfs://host:port"),
        ({"connector.class": "IcebergSink", "table.name": "a.b", "warehouse": "hdfs://x/y"},
         "warehouse", "Iceberg tables in HDFS are not supported"),
        ({"connector.class": "IcebergSink", "table.name": "a.b",
          "catalog.options": '{"type": "rest", "warehouse": "hdfs://x/y"}'},
         "catalog.options", "Iceberg tables in HDFS are not supported"),
        ({"connector.class": "ApacheIcebergSink", "iceberg.tables": "a.b",
          "iceberg.catalog.type": "hive", "iceberg.catalog.warehouse": "hdfs://x/y"},
         "iceberg.catalog.warehouse", "Iceberg tables in HDFS are not supported"),
        ({"connector.class": "IcebergSink", "table.name": "a.b", "warehouse": "s3://x/y"},
         "catalog.options", "The catalog cannot be a file in s3://x/y"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_sentence(
    change: dict[str, str], option: str, message: str
) -> None:
    with pytest.raises(OptionError) as refused:
        options({**S3, **change})
    assert refused.value.option == option
    assert message in str(refused.value)


def test_options_that_are_not_supported_are_errors() -> None:
    config = {**S3, "s3.acl.canned": "private", "s3.bucket.tagging": "true"}
    found = parsed(Plugins().find(S3["connector.class"]), {**config}).errors
    assert len(found) == 2
    assert "s3.acl.canned" in found[0]


@pytest.mark.parametrize("kind", ["ParquetSink", "S3Sink", "DeltaSink", "IcebergSink"])
def test_keys_of_s3_are_hidden(kind: str) -> None:
    config = {**KEYS, "aws.session.token": "token", "topics": "t"}
    hidden = secret_options(Plugins().find(kind), config)
    assert set(mask(config, hidden).values()) == {"[hidden]", "t"}
    shown = repr(ParquetLake.from_options({"path": "s3://a/b", "storage.AWS_SECRET": "secret"}))
    assert "secret" not in shown


def test_delta_and_iceberg_get_the_keys_of_s3() -> None:
    s3 = {**KEYS, "store.url": "http://minio:9000", "s3.region": "x", "topics": "t"}
    delta = options({**s3, "connector.class": "DeltaSink", "table.path": "s3://b/t"})
    assert delta["storage.AWS_ENDPOINT_URL"] == "http://minio:9000"
    assert delta["storage.AWS_ALLOW_HTTP"] == "true"
    iceberg = options(
        {
            **s3, "connector.class": "IcebergSink", "table.name": "a.b", "warehouse": "s3://b/w",
            "catalog.options": json.dumps({"type": "rest", "s3.region": "y"}),
        }
    )  # fmt: skip
    assert iceberg["catalog.s3.secret-access-key"] == "secret"
    assert iceberg["catalog.s3.region"] == "y"


APACHE = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "name": "c",
    "iceberg.tables": "sales.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.com",
    "iceberg.catalog.credential": "id:secret",
    "iceberg.catalog.s3.endpoint": "http://minio:9000",
    "iceberg.control.commit.interval-ms": "60000",
}


def test_the_configuration_of_apaches_iceberg_sink_is_valid() -> None:
    plugin = Plugins().find(APACHE["connector.class"])
    assert parsed(plugin, {**APACHE}).errors == []
    assert options({**APACHE, "iceberg.tables.default-partition-by": "day"}) == {
        "table": "sales.orders",
        "catalog": "iceberg",
        "partitionBy": "day",
        "catalog.type": "rest",
        "catalog.uri": "https://catalog.example.com",
        "catalog.credential": "id:secret",
        "catalog.s3.endpoint": "http://minio:9000",
    }
    assert mask(APACHE, secret_options(plugin, APACHE))["iceberg.catalog.credential"] == "[hidden]"


@pytest.mark.parametrize(
    ("change", "option", "message"),
    [
        ({"iceberg.tables": "a.b,a.c"}, "iceberg.tables", "Several tables"),
        ({"iceberg.tables": "orders"}, "iceberg.tables", "namespace.name"),
        ({"iceberg.catalog.type": ""}, "iceberg.catalog.type", "rest, hive or glue"),
        ({"iceberg.catalog.type": "hadoop"}, "iceberg.catalog.type", "expected one of"),
        ({"iceberg.tables.evolve-schema-enabled": "false"},
         "iceberg.tables.evolve-schema-enabled", "Only true"),
        ({"iceberg.tables.default-partition-by": "day(ts)"},
         "iceberg.tables.default-partition-by", "not functions of them"),
    ],
)  # fmt: skip
def test_what_apaches_iceberg_sink_can_and_ours_cannot_is_refused(
    change: dict[str, str], option: str, message: str
) -> None:
    with pytest.raises(OptionError) as refused:
        options({**APACHE, **change})
    assert refused.value.option == option
    assert message in str(refused.value)
