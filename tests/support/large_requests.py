"""Requests that name as much as a frame may hold, one or more for each API with an array.

`CASES` is the table; `tests/broker/test_large_requests.py` and `benchmarks/large_requests.py` send
each of them to a broker while another client asks for something small.
"""

import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.testing.running import RunningBroker
from headrace.wire import codec, codec_fields
from headrace.wire.compression import GZIP, LZ4, SNAPPY, ZSTD
from headrace.wire.records import Record, encode_batch
from headrace.wire.varint import uvarint
from tests.support.messages import filled
from tests.support.raw import RawClient, frame, produce

API_VERSIONS = frame(18, 0, b"")
TOPIC = "wide"
COMPACTED = "compacted"
PACKED = "packed"
"""A topic with a codec of its own."""
UNPACKED = 48_000_000
"""Less than headrace.max.decompressed.bytes."""


@dataclass(slots=True)
class Canary:
    """Asks for ApiVersions again and again; how long each answer took, in order.

    And how much processor time the broker used meanwhile, which is the same on a busy machine.
    """

    broker: RunningBroker
    latencies_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with RawClient(self.broker.bootstrap_servers) as client:
            while not self._stop.is_set():
                used, began = self._used_s(), time.perf_counter()
                client.ask(API_VERSIONS)
                self.cpu_s.append(self._used_s() - used)
                self.latencies_s.append(time.perf_counter() - began)
                time.sleep(0.0005)

    def _used_s(self) -> float:
        """Processor time of the broker's event loop so far."""
        text = Path(f"/proc/{self.broker.pid}/task/{self.broker.pid}/schedstat").read_text()
        return int(text.split()[0]) / 1e9

    @contextmanager
    def running(self) -> Iterator["Canary"]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()


def prepare(broker: RunningBroker, partitions: int) -> None:
    """The topics that the cases speak of, and coordinators that are ready."""
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topics([TOPIC], partitions=partitions))
        client.ask(
            create_topics([COMPACTED], 100, cleanup_policy="compact", max_message_bytes="10000000")
        )
        client.ask(create_topics([PACKED], compression_type="zstd"))
        client.ask(produce(TOPIC, bomb(LZ4, records=100_000, bytes_each=400), partition=0))
        for key_type, key in ((0, "group"), (1, "tx")):
            client.ask(request(10, 4, key_type=key_type, coordinator_keys=(key,)))
        client.ask(request(9, 8, groups=(_item(9, 8, "groups", group_id="group", topics=None),)))


def request(api: int, version: int, /, **values: object) -> bytes:
    """A frame of one request, with defaults for what is not given."""
    shape = codec.request_class(api, version)
    body = codec.encode_request(version, filled(shape, values))
    flexible: bool = shape.__flexible__  # type: ignore[attr-defined]
    return frame(api, version, (b"\0" if flexible else b"") + body)


def _item(api: int, version: int, path: str, /, **values: object) -> object:
    return item(codec.request_class(api, version), path, **values)


def item(shape: type, path: str, /, **values: object) -> object:
    """One element of the array at `path`, such as "topics.partitions"."""
    for name in path.split("."):
        found = next(one.entity for one in codec_fields.fields(shape) if one.name == name)
        assert found is not None
        shape = found
    return filled(shape, values)


def _names(count: int) -> list[str]:
    return [f"unknown-{n}" for n in range(count)]


def metadata(names: list[str], *, may_create: bool = False, version: int = 12) -> bytes:
    """A Metadata request for these names."""
    parts = [bytes(16) + uvarint(len(name) + 1) + name.encode() + b"\0" for name in names]
    body = uvarint(len(names) + 1) + b"".join(parts) + bytes([may_create]) + b"\0\0"
    return frame(3, version, b"\0" + body)


def create_topics(
    names: list[str], partitions: int = 1, *, validate_only: bool = False, **configs: str
) -> bytes:
    """A CreateTopics request for these names."""
    given = tuple(
        _item(19, 7, "topics.configs", name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    )
    topics = tuple(
        _item(
            19, 7, "topics", name=name, num_partitions=partitions, replication_factor=1,
            configs=given,
        )
        for name in names
    )  # fmt: skip
    return request(19, 7, topics=topics, validate_only=validate_only)


def _per_topic(
    count: int, api: int, version: int, array: str = "topics", /, **values: object
) -> bytes:
    """One element for each of many names."""
    shape = next(
        f for f in codec_fields.fields(codec.request_class(api, version)) if f.name == array
    )
    key = {"name", "topic", "resource_name"} & {
        one.name for one in codec_fields.fields(shape.entity or object)
    }
    (name,) = key
    items = tuple(_item(api, version, array, **{name: one}, **values) for one in _names(count))
    return request(api, version, **{array: items})


def _per_partition(
    count: int, api: int, version: int, index: str, name: str = "name", /, **values: object
) -> bytes:
    """One topic with many partitions, most of which exist not."""
    parts = tuple(_item(api, version, "topics.partitions", **{index: n}) for n in range(count))
    topic = _item(api, version, "topics", **{name: TOPIC}, partitions=parts)
    return request(api, version, topics=(topic,), **values)


def _produce(topics: int) -> bytes:
    """Partitions without a batch."""
    body = b"\0\0" + struct.pack(">hi", 1, 60_000) + b"\x02" + uvarint(len(TOPIC) + 1)
    body += TOPIC.encode() + uvarint(topics + 1)
    body += b"".join(struct.pack(">i", n) + b"\x01\0" for n in range(topics))
    return frame(0, 9, body + b"\0\0")


def bomb(packing: int, records: int = 1, bytes_each: int = 0) -> bytearray:
    """A small batch with very many records, or very large ones, when it is decompressed.

    Its last record is the latest one.
    """
    now_ms = int(time.time() * 1000)
    value = bytes(bytes_each)
    alike = [Record(0, now_ms - 1, b"k", value)] * (records - 1)
    return encode_batch([*alike, Record(0, now_ms, b"k", value)], codec=packing)


def _produce_each(topic: str, batch: bytearray, count: int) -> bytes:
    """The same batch for each of many partitions."""
    shape = codec.request_class(0, 9)
    batches = tuple(
        item(shape, "topic_data.partition_data", index=n, records=bytes(batch))
        for n in range(count)
    )
    topics = (item(shape, "topic_data", name=topic, partition_data=batches),)
    return request(0, 9, acks=1, topic_data=topics)


def _fetch(partitions: int, *, session_epoch: int = -1) -> bytes:
    head = b"\0" + struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, session_epoch)
    body = head + b"\x02" + uvarint(len(TOPIC) + 1) + TOPIC.encode() + uvarint(partitions + 1)
    body += b"".join(
        struct.pack(">iiqiqi", n, -1, 0, -1, -1, 1 << 20) + b"\0" for n in range(partitions)
    )
    return frame(1, 12, body + b"\0\x01\x01\0")


def _header_tags(count: int) -> bytes:
    """A Heartbeat whose header has many tagged fields."""
    return frame(12, 4, uvarint(count) + b"\x01\0" * count + b"\x01\0\0\0\0\x01\0\0")


def _group_topics(count: int, api: int, version: int) -> bytes:
    topics = tuple(
        _item(api, version, "groups.topics", name=TOPIC, partition_indexes=tuple(range(100)))
        for _ in range(count // 100)
    )
    group = _item(api, version, "groups", group_id="group", topics=topics)
    return request(api, version, groups=(group,))


Case = Callable[[int], bytes]
"""Builds a frame that names about so many things."""

CASES: dict[str, Case] = {
    "Metadata of unknown names": lambda n: metadata(_names(10 * n)),
    "Metadata of empty names": lambda n: metadata([""] * 10 * n),
    "Metadata of one name repeated": lambda n: metadata([TOPIC] * n),
    "Metadata of all topics": lambda n: frame(3, 12, b"\0\0\0\0\0"),
    "Metadata creating topics": lambda n: metadata(_fresh(n // 100), may_create=True),
    "Produce to partitions without a batch": lambda n: _produce(n),
    "Produce of a large gzip batch": lambda n: produce(COMPACTED, bomb(GZIP, 1, UNPACKED)),
    "Produce of a large snappy batch": lambda n: produce(COMPACTED, bomb(SNAPPY, 1, UNPACKED)),
    "Produce of a large lz4 batch": lambda n: produce(COMPACTED, bomb(LZ4, 1, UNPACKED)),
    "Produce of a large zstd batch": lambda n: produce(COMPACTED, bomb(ZSTD, 1, UNPACKED)),
    "Produce of a batch of many records": lambda n: produce(COMPACTED, bomb(LZ4, 10 * n)),
    "Produce of a batch in another codec": lambda n: produce(PACKED, bomb(GZIP, n, 400)),
    "Produce of many compressed batches": lambda n: _produce_each(
        COMPACTED, bomb(ZSTD, 900, 200), n // 1000
    ),
    "Fetch of partitions": lambda n: _fetch(n),
    "Fetch of partitions in a session": lambda n: _fetch(n // 5, session_epoch=0),
    "tagged fields in a header": lambda n: _header_tags(10 * n),
    "ListOffsets": lambda n: _per_partition(n, 2, 8, "partition_index"),
    "ListOffsets by time in a large batch": lambda n: request(
        2, 8, topics=(_item(2, 8, "topics", name=TOPIC, partitions=(
            _item(2, 8, "topics.partitions", partition_index=0, current_leader_epoch=-1,
                  timestamp=-3),
        )),),
    ),
    "OffsetCommit": lambda n: _per_partition(n, 8, 8, "partition_index", group_id="group"),
    "OffsetFetch": lambda n: _group_topics(n, 9, 8),
    "FindCoordinator": lambda n: request(10, 4, coordinator_keys=tuple(_names(n))),
    "LeaveGroup": lambda n: request(
        13, 4, group_id="group",
        members=tuple(_item(13, 4, "members", member_id=name) for name in _names(n)),
    ),
    "DescribeGroups": lambda n: request(15, 5, groups=tuple(_names(n))),
    "ListGroups": lambda n: request(16, 4, states_filter=tuple(_names(n))),
    "CreateTopics validate-only": lambda n: create_topics(_names(n), validate_only=True),
    "CreateTopics": lambda n: create_topics(_fresh(n // 100)),
    "CreateTopics of one name repeated": lambda n: create_topics(["again"] * n),
    "DeleteTopics": lambda n: _per_topic(n, 20, 6, topic_id=None),
    "DeleteRecords": lambda n: _per_partition(n, 21, 2, "partition_index"),
    "OffsetForLeaderEpoch": lambda n: _per_partition(n, 23, 4, "partition", "topic"),
    "AddPartitionsToTxn": lambda n: request(
        24, 3, v3_and_below_transactional_id="tx", v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(
            _item(24, 3, "v3_and_below_topics", name=TOPIC, partitions=tuple(range(n))),
        ),
    ),
    "AddPartitionsToTxn of many transactions": lambda n: request(
        24, 4, transactions=tuple(
            _item(24, 4, "transactions", transactional_id=name, producer_id=1, producer_epoch=0)
            for name in _names(n)
        ),
    ),
    "DescribeQuorum": lambda n: _per_partition(n, 55, 1, "partition_index", "topic_name"),
    "WriteTxnMarkers": lambda n: request(
        27, 1, markers=tuple(
            _item(27, 1, "markers", producer_id=1, producer_epoch=0, topics=())
            for _ in range(n)
        ),
    ),
    "DescribeConfigs": lambda n: _per_topic(n, 32, 4, "resources", resource_type=2),
    "DescribeConfigs of one topic": lambda n: request(
        32, 4, include_synonyms=True, include_documentation=True,
        resources=tuple(
            _item(32, 4, "resources", resource_type=2, resource_name=TOPIC,
                  configuration_keys=None)
            for _ in range(n)
        ),
    ),
    "AlterConfigs": lambda n: _per_topic(n, 33, 2, "resources", resource_type=2),
    "AlterReplicaLogDirs": lambda n: request(
        34, 2, dirs=(_item(34, 2, "dirs", path="/nowhere", topics=(
            _item(34, 2, "dirs.topics", name=TOPIC, partitions=tuple(range(n))),
        )),),
    ),
    "DescribeLogDirs": lambda n: request(35, 4, topics=None),
    "CreatePartitions": lambda n: _per_topic(n, 37, 3, count=2),
    "DeleteGroups": lambda n: request(42, 2, groups_names=tuple(_names(n))),
    "ElectLeaders": lambda n: request(43, 2, election_type=0, topic_partitions=(
        _item(43, 2, "topic_partitions", topic=TOPIC, partitions=tuple(range(n))),
    )),
    "IncrementalAlterConfigs": lambda n: _per_topic(n, 44, 1, "resources", resource_type=2),
    "AlterPartitionReassignments": lambda n: _per_partition(n, 45, 0, "partition_index"),
    "ListPartitionReassignments": lambda n: request(46, 0, topics=(
        _item(46, 0, "topics", name=TOPIC, partition_indexes=tuple(range(n))),
    )),
    "OffsetDelete": lambda n: _per_partition(n, 47, 0, "partition_index", group_id="group"),
    "DescribeProducers": lambda n: request(61, 0, topics=(
        _item(61, 0, "topics", name=TOPIC, partition_indexes=tuple(range(n))),
    )),
    "DescribeTransactions": lambda n: request(65, 0, transactional_ids=tuple(_names(n))),
    "ListTransactions": lambda n: request(66, 0, state_filters=tuple(_names(n))),
    "ConsumerGroupDescribe": lambda n: request(69, 0, group_ids=tuple(_names(n))),
    "ConsumerGroupHeartbeat": lambda n: request(
        68, 0, group_id="wide", member_id="", subscribed_topic_names=tuple(_names(n))
    ),
    "DescribeTopicPartitions": lambda n: _per_topic(n, 75, 0),
    "JoinGroup": lambda n: request(
        11, 7, group_id="joined", protocol_type="consumer", protocols=tuple(
            _item(11, 7, "protocols", name=name, metadata=b"") for name in _names(n)
        ),
    ),
    "SyncGroup": lambda n: request(
        14, 5, group_id="joined", assignments=tuple(
            _item(14, 5, "assignments", member_id=name, assignment=b"") for name in _names(n)
        ),
    ),
    "InitProducerId with a long name": lambda n: request(22, 4, transactional_id="x" * 30_000),
}  # fmt: skip


def _fresh(count: int) -> list[str]:
    """Names that no topic has yet."""
    kind = uuid.uuid4().hex[:8]
    return [f"fresh-{kind}-{n}" for n in range(count)]


def send_beside_a_canary(broker: RunningBroker, large: bytes) -> tuple[Canary, float]:
    """The canary's answers until the large request was answered, and how long that took.

    The large frame is sent but for its last byte first, and the canary begins after that.
    """
    with RawClient(broker.bootstrap_servers, timeout_s=300) as client:
        client.send(large[:-1])
        time.sleep(0.2)
        with Canary(broker).running() as canary:
            while len(canary.latencies_s) < 20:
                time.sleep(0.001)
            before = len(canary.latencies_s)
            began = time.perf_counter()
            client.send(large[-1:])
            with suppress(ConnectionError):  # a refused request is answered by that
                client.socket.recv(1)  # the answer begins
            took = time.perf_counter() - began
            during = Canary(broker, canary.latencies_s[before:], canary.cpu_s[before:])
    return during, took
