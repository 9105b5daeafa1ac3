"""Options have the meaning of Spark's own source; invalid ones fail with an explanation."""

import pickle

import pytest

from headrace.client.offsets import COMMITTED
from headrace.pipelines.source.options import (
    COLUMNS,
    SourceOptionError,
    parse_columns,
    parse_options,
)
from headrace.types import TopicPartition

PLACE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def test_names_are_read_without_regard_to_case() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.servers": "a:1",
            "SUBSCRIBE": "t, u,t",
            "startingoffsets": "EARLIEST",
            "maxoffsetspertrigger": "5",
            "kafka.Isolation.Level": "read_committed",
        },
        streaming=True,
    )
    assert options.selection.topics == ("t", "u")
    assert options.starting.kind == "earliest"
    assert options.max_offsets_per_trigger == 5
    assert options.isolation == COMMITTED


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse_options(PLACE, streaming=True).starting.kind == "latest"
    batch = parse_options(PLACE, streaming=False)
    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")


def test_a_time_goes_before_offsets() -> None:
    given = {
        **PLACE,
        "startingTimestamp": "17",
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
    }
    starting = parse_options(given, streaming=True).starting
    assert (starting.kind, starting.time_ms) == ("time", 17)
    del given["startingTimestamp"]
    starting = parse_options(given, streaming=True).starting
    assert (starting.kind, starting.each) == ("times", {TopicPartition("t", 0): 5})


def test_offsets_may_be_copied_from_a_checkpoint() -> None:
    stored = '{"t":{"0":5,"id":"an-id","initial":{"0":1}}}'
    starting = parse_options({**PLACE, "startingOffsets": stored}, streaming=True).starting
    assert (starting.kind, starting.each) == ("offsets", {TopicPartition("t", 0): 5})


def test_columns_may_be_left_out() -> None:
    assert parse_columns(PLACE) == COLUMNS[:-1]
    assert parse_columns({**PLACE, "includeHeaders": "true"}) == COLUMNS
    assert parse_columns({**PLACE, "columns": "Value, headers"}) == ("value", "headers")


def test_a_group_is_named_by_either_option() -> None:
    for name in ("group.id", "kafka.group.id"):
        group = parse_options({**PLACE, name: "g"}, streaming=True).group
        assert group is not None
        assert (group.name, group.instance_id) == ("g", "spark-g")


def test_properties_of_the_java_consumer_are_taken() -> None:
    given = {**PLACE, "kafka.max.poll.records": "7", "kafka.ssl.cipher.suites": "x"}
    options = parse_options({**given, "kafka.fetch.max.bytes": "99"}, streaming=False)
    assert options.fetch_bytes == 99
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:1"}, "exactly one of subscribe"),
        ({**PLACE, "assign": '{"t":[0]}'}, "subscribe and assign"),
        ({**PLACE, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({**PLACE, "key": "x"}, "no option key"),
        ({**PLACE, "kafka.isolaton.level": "x"}, "did you mean kafka.isolation.level"),
        ({**PLACE, "kafka.isolation.level": "x"}, "read_committed"),
        ({**PLACE, "kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({**PLACE, "kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({**PLACE, "kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
        ({**PLACE, "startingOffsets": "newest"}, "earliest, latest, or JSON"),
        ({**PLACE, "startingOffsets": '{"t":{"0":-3}}'}, "-2"),
        ({**PLACE, "startingOffsets": '{"t":[0]}'}, "startingOffsets"),
        ({**PLACE, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0"),
        ({**PLACE, "maxTriggerDelay": "soon"}, "15m"),
        ({**PLACE, "failOnDataLoss": "maybe"}, "true, false"),
        ({**PLACE, "columns": "value,vlaue"}, "unknown column vlaue"),
        ({**PLACE, "columns": "value", "includeHeaders": "true"}, "does not contain headers"),
        ({**PLACE, "group.id": "a", "kafka.group.id": "b"}, "different values"),
        ({**PLACE, "endingOffsets": "latest"}, "it reads up to there, and waits"),
        ({**PLACE, "endingOffsets": '{"t":{"0":-1}}'}, "it reads up to there, and waits"),
        ({**PLACE, "endingTimestamp": "5"}, "a stream has endingOffsets only"),
        ({**PLACE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "regular expression"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t":"0"}'}, "assign"),
    ],
)
def test_what_a_stream_cannot_use_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(SourceOptionError) as caught:
        parse_options(given, streaming=True)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "read nothing"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "-1 (latest) is for streams"),
        ({"endingOffsets": "earliest"}, "read nothing"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "read nothing"),
        ({"maxOffsetsPerTrigger": "5"}, "for streams"),
        ({"group.id": "g"}, "commits no offsets"),
    ],
)
def test_what_a_batch_cannot_use_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(SourceOptionError) as caught:
        parse_options({**PLACE, **given}, streaming=False)
    assert said in str(caught.value)
