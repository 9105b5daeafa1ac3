"""Where a source without a checkpoint begins: at its newest offsets in the offsets topic."""

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.committed_records import (
    RecordsBehindOpenTransaction,
    TopicRecord,
    committed_records,
)
from headrace.client.config import client_config
from headrace.client.fetching import FetchPlan, fetch_range
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.connect.host.work import partition_key
from headrace.connect.storage.records import MalformedRecord, decode_offset
from headrace.types import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def source_offsets(
    client: Mapping[str, str], topic: str, name: str
) -> dict[str, Mapping[str, Any]]:
    """The newest committed offset of each partition of a source, by partition key.

    An open transaction of another source does not hide what this source has committed behind it.
    """
    found: dict[str, Mapping[str, Any]] = {}
    with Cluster(client_config(dict(client))) as cluster:
        known = cluster.topics([topic])
        if topic not in known:
            return {}
        partitions = [TopicPartition(topic, n) for n in range(len(known[topic].leaders))]
        start = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), READ_COMMITTED)
        stable = list_offsets(cluster, dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        end = list_offsets(cluster, dict.fromkeys(partitions, LATEST), READ_UNCOMMITTED)
        for each in partitions:
            for record in _records(cluster, each, start[each], stable[each]):
                _take(found, name, record)
            for record in _behind(cluster, each, stable[each], end[each]):
                _take(found, name, record)
    return found


def _take(found: dict[str, Mapping[str, Any]], name: str, record: TopicRecord) -> None:
    try:
        change = decode_offset(record.key, record.value)
    except MalformedRecord:
        # Another program has written it; the service logs it.
        return
    if change.connector != name:
        return
    key = partition_key(change.partition)
    if change.offset is None:
        found.pop(key, None)
    else:
        found[key] = change.offset


def _records(cluster: Cluster, at: TopicPartition, start: int, stop: int) -> Iterator[TopicRecord]:
    if start >= stop:
        return
    for fetched in fetch_range(cluster, FetchPlan(at, READ_COMMITTED), start, stop):
        bounds = [*fetched.positions, fetched.end]
        yield from committed_records(fetched.data, bounds, fetched.aborted, start)


def _behind(cluster: Cluster, at: TopicPartition, start: int, stop: int) -> Iterator[TopicRecord]:
    if start >= stop:
        return
    ended = RecordsBehindOpenTransaction()
    for fetched in fetch_range(cluster, FetchPlan(at, READ_UNCOMMITTED), start, stop):
        yield from ended.take(fetched.data, [*fetched.positions, fetched.end])
