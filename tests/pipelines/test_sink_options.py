import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.client.errors import ClientError
from headrace.pipelines.sink.columns import check_schema
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TopicSink, make_sink

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ONCE = {"query": "q", "epoch": "3", "topic": "t", "delivery": "exactly-once"}
VALUE = StructField("value", BinaryType())
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def test_what_sparks_own_sink_takes_is_understood() -> None:
    options = parse_options(
        SERVERS
        | {
            "topic": "orders",
            "checkpointLocation": "/tmp/c",
            "kafka.compression.type": "lz4",
            "kafka.linger.ms": "5",
            "kafka.batch.size": "16384",
            "kafka.acks": "all",
        }
    )
    assert (options.topic, options.exactly_once, options.codec) == ("orders", False, 3)
    assert options.batch_bytes == 16384
    assert parse_options(SERVERS | {"delivery": "exactly-once"}).exactly_once


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deliver": "exactly-once"}, "no option deliver; did you mean delivery"),
        ({"delivery": "at-most-once"}, "delivery=at-most-once: expected one of at-least-once"),
        ({"kafka.compresion.type": "lz4"}, "did you mean kafka.compression.type"),
        ({"kafka.compression.type": "rar"}, "expected one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.acks": "1"}, "always waits for all in-sync replicas"),
        ({"kafka.transactional.id": "x"}, "see transactionalIdPrefix"),
        ({"kafka.batch.size": "many"}, "kafka.batch.size=many"),
        ({"ledger": "old"}, "ledger=old: expected one of keep, new"),
        ({"epoch": "3"}, "the option epoch needs the option query"),
        ({"query": "q"}, "the option query needs the option epoch"),
        ({"query": "q", "epoch": "3"}, "with delivery=exactly-once only"),
        (ONCE | {"epoch": "-1"}, "epoch=-1: expected the number that foreachBatch passes"),
        (ONCE | {"epoch": "9" * 20}, "expected the number that foreachBatch passes"),
        (ONCE | {"query": ""}, "query='': expected 1 to 200 printable characters"),
        (ONCE | {"query": "q" * 201}, "expected 1 to 200 printable characters"),
        (ONCE | {"query": "q.17"}, "must not end in a dot and a number"),
        (ONCE | {"query": "q.more-1"}, "must not end in a dot and a number"),
        (ONCE | {"ledgerOwner": "me"}, "ledgerOwner is for streams"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        parse_options(SERVERS | given)


def test_the_address_of_the_cluster_must_be_there() -> None:
    with pytest.raises(ClientError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_options({"topic": "orders"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([StructField("key", StringType())], "no column 'value'.*its columns are: key"),
        ([StructField("value", LongType())], "'value' is bigint; expected string or binary"),
        ([VALUE, StructField("key", IntegerType())], "'key' is int; expected string or binary"),
        ([VALUE, StructField("topic", BinaryType())], "'topic' is binary; expected string"),
        ([VALUE, StructField("partition", LongType())], "'partition' is bigint; expected int"),
        ([VALUE, StructField("headers", ArrayType(StringType()))], "'headers' is array<string>"),
        ([VALUE, StructField("record_timestamp", LongType())], "is bigint; expected timestamp"),
    ],
)
def test_a_wrong_column_is_refused_by_its_name(fields: list[StructField], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        check_schema(StructType(fields), "orders")


def test_columns_of_sparks_own_sink_and_others_beside_them_are_taken() -> None:
    fields = [
        VALUE,
        StructField("key", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("record_timestamp", TimestampType()),
        StructField("offset", LongType()),
        StructField("timestamp", LongType()),
    ]
    check_schema(StructType(fields), None)


def test_rows_must_say_their_topic_somehow() -> None:
    with pytest.raises(ClientError, match=r'set \.option\("topic", \.\.\.\) or a column'):
        check_schema(StructType([VALUE]), None)


def test_exactly_once_needs_a_topic_for_its_ledger() -> None:
    schema = StructType([VALUE, StructField("topic", StringType())])
    options = parse_options(SERVERS | {"delivery": "exactly-once"})
    with pytest.raises(ClientError, match="ledgerTopic"):
        TopicSink(options, schema)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ClientError, match="only be appended to"):
        make_sink(SERVERS | {"topic": "t"}, StructType([VALUE]), overwrite=True)


def test_a_batch_write_has_the_name_of_its_query_and_topic() -> None:
    assert parse_options(SERVERS | ONCE).epoch == Epoch("t:q", 3)
    elsewhere = SERVERS | ONCE | {"ledgerTopic": "l"}
    assert parse_options(elsewhere).epoch == Epoch("l:q", 3)
    assert parse_options(SERVERS).epoch is None


def test_a_stream_has_its_epochs_from_spark() -> None:
    with pytest.raises(ClientError, match="are for batch writes in foreachBatch"):
        make_sink(SERVERS | ONCE, StructType([VALUE]), overwrite=False, streaming=True)
