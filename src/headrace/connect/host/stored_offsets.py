"""Where a source without a checkpoint begins: at its newest offsets in the offsets topic."""

import json
from collections.abc import Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.fetching import FetchPlan, fetch_range
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.connect.host.work import partition_key
from headrace.types import TopicPartition
from headrace.wire.batch_columns import decode

READ_COMMITTED = 1
FETCH_BYTES = 8 << 20


def source_offsets(
    client: Mapping[str, str], topic: str, name: str
) -> dict[str, Mapping[str, Any]]:
    """The newest committed offset of each partition of a source, by partition key."""
    found: dict[str, Mapping[str, Any]] = {}
    with Cluster(client_config(dict(client))) as cluster:
        known = cluster.topics([topic])
        if topic not in known:
            return {}
        partitions = [TopicPartition(topic, n) for n in range(len(known[topic].leaders))]
        start = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), READ_COMMITTED)
        end = list_offsets(cluster, dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        for each in partitions:
            for key, value in _records(cluster, each, start[each], end[each]):
                _take(found, name, key, value)
    return found


def _take(
    found: dict[str, Mapping[str, Any]], name: str, key: bytes | None, value: bytes | None
) -> None:
    try:
        connector, partition = json.loads(key or b"")
    except ValueError:
        return
    if connector != name:
        return
    if value is None:
        found.pop(partition_key(partition), None)
    else:
        found[partition_key(partition)] = json.loads(value)


def _records(cluster: Cluster, at: TopicPartition, start: int, stop: int) -> Any:
    plan = FetchPlan(at, READ_COMMITTED, FETCH_BYTES, 500, 1, None)
    for fetched in fetch_range(cluster, plan, start, stop) if start < stop else ():
        for columns in decode(
            fetched.data, fetched.positions, start, stop, fetched.aborted, check_crcs=True
        ):
            payload = bytes(columns.payload)
            for row in range(len(columns)):
                yield (
                    _part(payload, int(columns.key_at[row]), int(columns.key_length[row])),
                    _part(payload, int(columns.value_at[row]), int(columns.value_length[row])),
                )


def _part(payload: bytes, at: int, length: int) -> bytes | None:
    return None if length < 0 else payload[at : at + length]
