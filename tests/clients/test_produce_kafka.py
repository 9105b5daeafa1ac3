"""The same batches, right and wrong, for Headrace and Apache Kafka: both give the same answers."""

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from headrace.errors import ErrorCode
from headrace.wire.records import Record, encode_batch
from tests.support import raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.messages import item, part
from tests.support.raw_producer import PRODUCE, request, response
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

NOW = int(time.time() * 1000)
YEAR_MS = 365 * 24 * 3_600_000
COMPACTED = {"cleanup.policy": "compact"}
PLAIN: dict[str, str] = {}

_Broker: TypeAlias = HeadraceBroker | ApacheKafka


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, apache_kafka: ApacheKafka
) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("headrace")
    with HeadraceBroker(folder) as ours:
        yield ours.bootstrap, apache_kafka.bootstrap


# ------------------------------------------------------------------------------- record errors


@dataclass(frozen=True)
class Answer:
    """What a Produce response says of one batch, without the wording of its messages."""

    code: ErrorCode
    base_offset: int
    has_message: bool
    records: tuple[tuple[int, bool], ...]


def asked(
    bootstrap: str, config: dict[str, str], batch: bytes | bytearray, name: str, version: int
) -> Answer:
    """Produce one batch into a new topic."""
    topic = create_topic(bootstrap, name, config=config)
    kind = type(part(PRODUCE, version, "topic_data"))
    partition = item(kind, "partition_data", index=0, records=bytes(batch))
    data = part(PRODUCE, version, "topic_data", name=topic, partition_data=(partition,))
    sent = request(
        PRODUCE, version,
        transactional_id=None, acks=-1, timeout=datetime.timedelta(seconds=30), topic_data=(data,),
    )  # fmt: skip
    with raw.RawClient(bootstrap) as client:
        answer = response(PRODUCE, version, client.ask(sent))
    (found,) = answer.responses[0].partition_responses
    return Answer(
        ErrorCode(found.error_code),
        found.base_offset,
        bool(found.error_message),
        tuple(
            (record.batch_index, bool(record.batch_index_error_message))
            for record in found.record_errors
        ),
    )


def records(*fields: tuple[bytes | None, int], codec: int = 0) -> bytearray:
    """A batch of records with these keys and timestamps."""
    return encode_batch([Record(0, at, key, b"v") for key, at in fields], codec=codec)


FAR = NOW + YEAR_MS
NO_KEYS = ((b"a", NOW), (None, NOW), (b"b", NOW), (None, NOW))
REFUSED_RECORDS = {
    "no-keys": (COMPACTED, NO_KEYS, (1, 3)),
    "times": (PLAIN, ((b"a", NOW), (b"b", FAR), (None, NOW), (b"c", FAR)), (1, 3)),
    "both": (COMPACTED, ((b"a", FAR), (None, NOW), (None, FAR), (b"b", NOW)), (0, 1, 2)),
    "none": (COMPACTED, ((b"a", NOW), (b"b", NOW)), ()),
}


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("case", REFUSED_RECORDS)
def test_both_name_the_records_that_they_refuse(
    brokers: tuple[str, str], case: str, version: int, codec: int
) -> None:
    config, fields, places = REFUSED_RECORDS[case]
    name = f"refused-{case}-{version}-{codec}"
    ours, theirs = (
        asked(bootstrap, config, records(*fields, codec=codec), name, version)
        for bootstrap in brokers
    )
    assert ours == theirs
    assert tuple(place for place, _ in ours.records) == places
