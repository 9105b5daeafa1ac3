"""Where a source without a checkpoint begins, on a real broker and without Spark."""

import json
import uuid

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.connect.host.stored_offsets import source_offsets
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch
from tests.support.topics import create_topic


def test_an_open_transaction_of_another_source_hides_no_offsets(connect_bootstrap: str) -> None:
    client = {"bootstrap.servers": connect_bootstrap}
    topic = create_topic(connect_bootstrap, f"offsets-{uuid.uuid4().hex[:8]}", 1)
    with Cluster(client_config(client)) as cluster:

        def write(connector: str, position: int) -> producing.ProducerIdentity:
            producer = producing.init_producer(cluster, uuid.uuid4().hex)
            at = TopicPartition(topic, 0)
            producing.add_partitions(cluster, producer, [at])
            key = json.dumps([connector, {"file": "f"}], separators=(",", ":")).encode()
            batch = encode_batch(
                [Record(0, 0, key, json.dumps({"position": position}).encode())],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                attributes=TRANSACTIONAL,
            )
            producing.produce(cluster, {at: batch}, producer)
            return producer

        def found() -> dict[str, object]:
            return dict(source_offsets(client, topic, "mine"))

        producing.end_transaction(cluster, write("mine", 1), commit=True)
        other = write("other", 5)
        producing.end_transaction(cluster, write("mine", 2), commit=True)
        producing.end_transaction(cluster, write("mine", 3), commit=False)
        undecided = write("mine", 4)
        assert found() == {'{"file":"f"}': {"position": 2}}
        for producer in (other, undecided):
            producing.end_transaction(cluster, producer, commit=True)
        assert found() == {'{"file":"f"}': {"position": 4}}
