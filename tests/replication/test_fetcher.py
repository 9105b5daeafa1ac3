"""What a follower takes over from its leader, and what it does not."""

import asyncio
from pathlib import Path

from headrace.cluster.image import Broker, PartitionState
from headrace.replication.fetcher import Fetcher
from headrace.replication.peer import Answer, Peer
from headrace.replication.throttle import Throttle
from headrace.settings import Settings
from headrace.wire.records import Record, encode_batch
from headrace.wire.replica_fetch import FetchAnswer, Fetched
from tests.apis.one_broker import NOW, OneBroker


def test_an_answer_from_before_the_log_was_cut_leaves_no_hole(tmp_path: Path) -> None:
    """A leader that is followed anew: what it answers to an older request comes too late."""
    broker = OneBroker(tmp_path)
    broker.create("t")
    partition = broker.replicas.partition("t", 0)
    services = broker.services

    async def connect(host: str, port: int, name: str, timeout_s: float) -> Peer:
        raise AssertionError("nobody connects here")

    fetcher = Fetcher(
        Broker(2, "localhost", 1), Broker(1, "localhost", 2), Settings.parse({}), broker.executor,
        services.clock, Throttle(broker.replicas, broker.metadata, services.clock), connect,
    )  # fmt: skip
    late = encode_batch([Record(0, NOW, None, b"v")], 7)
    fetched = Fetched(partition.topic_id.bytes, 0, 0, 8, 0, 0, len(late))

    async def take() -> None:
        partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))
        fetcher.follow([partition])
        await fetcher._take(Answer(late, 0, len(late)), FetchAnswer(0, 0, [fetched]))

    asyncio.run(take())
    assert (partition.log.end_offset, partition.high_watermark) == (0, 0)
    broker.close()
