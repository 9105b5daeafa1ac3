"""Batches that a follower accepts from its leader, and those that it refuses."""

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from headrace.client.aio import AsyncConnection
from headrace.client.errors import ClientError, Unreachable
from headrace.client.protocol import Response
from headrace.cluster.image import Broker, PartitionState
from headrace.replication.fetcher import Fetcher
from headrace.replication.throttle import Throttle
from headrace.settings import Settings
from headrace.wire.fast import FetchRequest, parse_fetch
from headrace.wire.records import Record, encode_batch
from headrace.wire.replica_fetch import FetchAnswer, FetchedPartition
from tests.apis.one_broker import NOW, OneBroker


def fetcher_of(broker: OneBroker) -> Fetcher:
    async def connect(host: str, port: int, name: str, timeout_s: float) -> AsyncConnection:
        raise AssertionError("nobody connects here")

    clock = broker.services.clock
    return Fetcher(
        Broker(2, "localhost", 1), Broker(1, "localhost", 2), Settings.parse({}), broker.executor,
        clock, Throttle(broker.replicas, broker.metadata, clock), connect,
    )  # fmt: skip


class Leader(AsyncConnection):
    """Hears requests, and answers that there is nothing new in session 7."""

    def __init__(self, newest: int = 18) -> None:
        super().__init__(socket.socket(), "test", "leader", 1)
        self.conversation._versions = {1: (4, newest)}
        self.versions: list[int] = []
        self.heard: list[FetchRequest] = []

    async def ask_encoded(self, api_key: int, version: int, body: bytes) -> Response:
        heard = bytearray(body)
        self.versions.append(version)
        self.heard.append(parse_fetch(heard, memoryview(heard), 0, len(heard), version))
        nothing = bytearray(struct.pack(">ihiBB", 0, 0, 7, 1, 0))
        return Response(version, nothing, 0, len(nothing))


@pytest.mark.parametrize(("backoff_ms", "longest"), [("1000", 1.0), ("300", 0.3), ("0", 0.1)])
def test_a_leader_that_is_down_is_tried_less_often_and_logged_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    backoff_ms: str,
    longest: float,
) -> None:
    broker = OneBroker(tmp_path)
    pauses: list[float] = []

    async def connect(host: str, port: int, name: str, timeout_s: float) -> AsyncConnection:
        raise Unreachable("localhost:1: connection refused")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    clock = broker.services.clock
    fetcher = Fetcher(
        Broker(2, "localhost", 1), Broker(1, "localhost", 2),
        Settings.parse({"replica.fetch.backoff.ms": backoff_ms}), broker.executor,
        clock, Throttle(broker.replicas, broker.metadata, clock), connect,
    )  # fmt: skip
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with caplog.at_level("INFO"), pytest.raises(asyncio.CancelledError):
        asyncio.run(fetcher.run())
    broker.close()
    assert pauses[0] == 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest
    assert caplog.text.count("connection refused") == 1


def test_an_answer_from_before_the_log_was_cut_leaves_no_hole(tmp_path: Path) -> None:
    """A leader that is followed anew: what it answers to an older request comes too late."""
    broker = OneBroker(tmp_path)
    broker.create("t")
    partition = broker.replicas.partition("t", 0)
    fetcher = fetcher_of(broker)
    late = encode_batch([Record(0, NOW, None, b"v")], 7)
    fetched = FetchedPartition(partition.topic_id.bytes, 0, 0, 8, 0, 0, len(late))

    async def take() -> None:
        partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))
        fetcher.follow([partition])
        await fetcher._take(Response(17, late, 0, len(late)), FetchAnswer(0, 0, [fetched]))

    asyncio.run(take())
    assert (partition.replica.log.end_offset, partition.replica.high_watermark) == (0, 0)
    broker.close()


def test_a_replica_whose_disk_failed_is_not_fetched(tmp_path: Path) -> None:
    """Its leader would take it for one that is in sync, and wait for it with every record."""
    broker = OneBroker(tmp_path)
    broker.create("t")
    partition = broker.replicas.partition("t", 0)
    fetcher, leader = fetcher_of(broker), Leader()

    async def story() -> None:
        partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))
        fetcher.follow([partition])
        ready = fetcher._ready()
        await fetcher._truncate(leader, ready)
        await fetcher._fetch(leader, ready)
        partition.replica.log.availability.take_offline("the disk failed")
        assert fetcher._ready() == []
        await fetcher._fetch(leader, [])
        fetcher.follow([partition])
        assert fetcher._ready() == []

    asyncio.run(story())
    assert [len(one.forgotten) for one in leader.heard] == [0, 1]
    broker.close()


def test_a_partition_that_is_followed_again_is_not_removed_at_the_same_time(tmp_path: Path) -> None:
    """A leader adds first and forgets then: it would never send anything of it again."""
    broker = OneBroker(tmp_path)
    broker.create("t")
    partition = broker.replicas.partition("t", 0)
    fetcher, leader = fetcher_of(broker), Leader()

    async def follow_in(epoch: int) -> None:
        partition.use_state(PartitionState(2, epoch, (1, 2), (1, 2)))
        fetcher.follow([partition])
        ready = fetcher._ready()
        await fetcher._truncate(leader, ready)  # an empty log has nothing to ask about
        await fetcher._fetch(leader, ready)

    async def two_epochs() -> None:
        await follow_in(4)
        await follow_in(5)

    asyncio.run(two_epochs())
    first, second = leader.heard
    assert (first.session_id, second.session_id) == (0, 7)
    assert [row[1] for row in second.topics[0][1]] == [5]
    assert list(second.forgotten) == []
    leader.close()
    broker.close()


def test_a_follower_fetches_in_the_newest_version_that_its_leader_has(tmp_path: Path) -> None:
    """A rolling upgrade has leaders of the previous release."""
    broker = OneBroker(tmp_path)
    broker.create("t")
    partition = broker.replicas.partition("t", 0)
    older, newer, too_old = Leader(15), Leader(18), Leader(14)

    async def story() -> None:
        partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))
        for leader in (older, newer, too_old):
            fetcher = fetcher_of(broker)
            fetcher.follow([partition])
            ready = fetcher._ready()
            await fetcher._truncate(leader, ready)
            await fetcher._fetch(leader, ready)

    with pytest.raises(ClientError, match="supports versions 4 to 14 of API 1"):
        asyncio.run(story())
    assert (older.versions, newer.versions, too_old.versions) == ([15], [17], [])
    for leader in (older, newer, too_old):
        leader.close()
    broker.close()
