"""Records behind the last stable offset, on a real broker."""

import uuid

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.committed_records import RecordsBehindOpenTransaction
from headrace.client.config import client_config
from headrace.client.fetching import FetchPlan, fetch_range
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.producing import ProducerIdentity
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch
from tests.support.topics import create_topic


def test_what_is_committed_behind_an_open_transaction_is_found(headrace: RunningBroker) -> None:
    bootstrap = headrace.bootstrap_servers
    at = TopicPartition(create_topic(bootstrap, f"t-{uuid.uuid4().hex[:8]}", 1), 0)
    with Cluster(client_config({"bootstrap.servers": bootstrap})) as cluster:

        def begin() -> ProducerIdentity:
            return producing.init_producer(cluster, uuid.uuid4().hex)

        def write(producer: ProducerIdentity | None, value: str, sequence: int = 0) -> None:
            if producer is not None:
                producing.add_partitions(cluster, producer, [at])
            batch = encode_batch(
                [Record(0, 0, None, value.encode())],
                producer_id=-1 if producer is None else producer.producer_id,
                producer_epoch=-1 if producer is None else producer.epoch,
                base_sequence=-1 if producer is None else sequence,
                attributes=0 if producer is None else TRANSACTIONAL,
            )
            producing.produce(cluster, {at: batch}, producer)

        opened, aborted, committed = begin(), begin(), begin()
        write(opened, "open")
        write(committed, "first")
        write(aborted, "aborted")
        write(None, "plain")
        write(committed, "second", 1)
        producing.end_transaction(cluster, aborted, commit=False)
        producing.end_transaction(cluster, committed, commit=True)
        stable = list_offsets(cluster, {at: LATEST}, COMMITTED)[at]
        end = list_offsets(cluster, {at: LATEST})[at]
        assert stable == 0
        ended = RecordsBehindOpenTransaction()
        found = [
            (record.value or b"").decode()
            for fetched in fetch_range(cluster, FetchPlan(at), stable, end)
            for record in ended.take(fetched.data, [*fetched.positions, fetched.end])
        ]
    assert found == ["plain", "first", "second"]
