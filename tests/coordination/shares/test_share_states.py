"""The share coordinator: fencing, snapshots and updates, and reading its log back."""

import asyncio
import uuid
from pathlib import Path

import pytest

from headrace.coordination.outcome import Outcome, Token
from headrace.coordination.records import UnknownRecord
from headrace.coordination.shares.delivery import DeliveryState, StateBatch, updated
from headrace.coordination.shares.share_records import (
    SNAPSHOT,
    UPDATE,
    SharePartitionKey,
    ShareSnapshot,
    ShareSnapshotKey,
    ShareUpdate,
    ShareUpdateKey,
    decode_key,
    decode_snapshot,
    decode_update,
)
from headrace.coordination.shares.share_states import (
    UNINITIALIZED,
    ShareState,
    ShareStates,
    ShareStateWrite,
    coordinator_key,
)
from headrace.errors import ErrorCode, KafkaError
from tests.apis.one_broker import OneBroker

KEY = SharePartitionKey("workers", uuid.UUID(int=7), 3)
AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
BATCHES = (StateBatch(5, 7, ACKNOWLEDGED, 1), StateBatch(9, 9, AVAILABLE, 2))


def test_records_are_read_as_they_were_written() -> None:
    snapshot = ShareSnapshot(4, 2, 1, 5, 1000, 2000, BATCHES, 3)
    update = ShareUpdate(4, 1, 6, BATCHES)
    assert decode_snapshot(snapshot.encode()) == snapshot
    assert decode_update(update.encode()) == update
    assert decode_key(ShareSnapshotKey(KEY).encode()) == (SNAPSHOT, KEY)
    assert decode_key(ShareUpdateKey(KEY).encode()) == (UPDATE, KEY)


def test_bytes_of_an_update_are_kafkas() -> None:
    update = ShareUpdate(1, 2, 3, (StateBatch(4, 5, ACKNOWLEDGED, 6),), 7)
    assert update.encode().hex(" ") == (
        "00 00 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00 03 02 "
        "00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 02 00 06 00 01 00 04 00 00 00 07"
    )


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\0", b"\0\x01" + bytes(60)])
def test_damaged_records_are_refused(damaged: bytes) -> None:
    for decode in (decode_snapshot, decode_update, decode_key):
        with pytest.raises(UnknownRecord):
            decode(damaged if decode is not decode_key else damaged[:5] or b"\0\x09")


def test_new_batches_replace_what_they_overlap() -> None:
    old = (StateBatch(0, 9, AVAILABLE, 1),)
    new = (StateBatch(3, 4, ACKNOWLEDGED, 2), StateBatch(10, 12, AVAILABLE, 1))
    assert updated(old, new, 2) == (
        StateBatch(2, 2, AVAILABLE, 1),
        StateBatch(3, 4, ACKNOWLEDGED, 2),
        StateBatch(5, 12, AVAILABLE, 1),
    )


class Coordinator:
    """One shard, and what a log would hold."""

    def __init__(self, updates: int = 3) -> None:
        self.states = ShareStates(updates)
        self.log: list[tuple[object, object]] = []

    def apply(self, outcome: Outcome) -> object:
        for key, value in outcome.records:
            self.log.append((key, value))
            self.states.replay(key, value)
        for reply in outcome.replies:
            reply.send()
        return None

    def initialize(self, epoch: int, start: int = UNINITIALIZED) -> None:
        self.apply(self.states.initialize(KEY, epoch, start, Token()))

    def write(self, start: int, *batches: StateBatch, state: int = 0, leader: int = 0) -> None:
        write = ShareStateWrite(state, leader, start, batches, 0)
        self.apply(self.states.write(KEY, write, Token()))

    def read(self, leader: int) -> ShareState:
        token: Token[ShareState] = Token()
        self.apply(self.states.read(KEY, leader, token))
        assert isinstance(token.response, ShareState)
        return token.response


def test_a_new_leader_fences_the_one_before() -> None:
    coordinator = Coordinator()
    coordinator.initialize(0)
    coordinator.write(5, leader=1)
    assert coordinator.read(2).start == 5
    with pytest.raises(KafkaError) as refused:
        coordinator.write(6, leader=1)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    coordinator.write(6, leader=2)


def test_new_offsets_fence_writers_of_the_state_before() -> None:
    coordinator = Coordinator()
    coordinator.initialize(0)
    coordinator.write(5, StateBatch(7, 7, ACKNOWLEDGED, 1))
    coordinator.initialize(1, 2)
    state = coordinator.read(0)
    assert (state.start, state.batches) == (2, ())
    with pytest.raises(KafkaError) as refused:
        coordinator.write(6)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH


def test_a_repeated_initialization_changes_nothing() -> None:
    coordinator = Coordinator()
    coordinator.initialize(0)
    coordinator.write(5)
    coordinator.initialize(0)
    assert coordinator.read(0).start == 5


def test_state_that_does_not_exist_cannot_be_written() -> None:
    with pytest.raises(KafkaError) as refused:
        Coordinator().write(5)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_after_some_updates_a_snapshot_has_everything() -> None:
    coordinator = Coordinator(updates=2)
    coordinator.initialize(0)
    for offset in range(5):
        coordinator.write(0, StateBatch(2 * offset, 2 * offset, ACKNOWLEDGED, 1))
    kinds = [type(value).__name__ for _, value in coordinator.log]
    assert kinds == ["ShareSnapshot", "ShareUpdate", "ShareUpdate", "ShareSnapshot", "ShareUpdate",
                     "ShareUpdate"]  # fmt: skip
    again = ShareStates(2)
    for key, value in coordinator.log[3:]:
        again.replay(key, value)  # type: ignore[arg-type]
    assert again.states[KEY].batches == coordinator.states.states[KEY].batches


def test_the_log_is_read_back_and_can_be_replaced_by_snapshots(tmp_path: Path) -> None:
    settings = {"share.coordinator.state.topic.num.partitions": "1"}

    async def fill() -> None:
        shares.start()
        await shares.persister.initialize(KEY, 0, 0)
        for offset in range(50):
            batch = StateBatch(2 * offset + 1, 2 * offset + 1, ACKNOWLEDGED, 1)
            await shares.persister.write(KEY, ShareStateWrite(0, 0, 0, (batch,), offset))
        (shard,) = shares.coordinator.shards.ready()
        before = shard.state.states[KEY].batches
        shares.coordinator.replace_log(shard)
        log = shard.partition.replica.log
        assert log.end_offset - log.start_offset == 1
        await shares.persister.write(
            KEY, ShareStateWrite(0, 0, 0, (StateBatch(200, 200, AVAILABLE, 3),), 50)
        )
        expected.append((*before, StateBatch(200, 200, AVAILABLE, 3)))
        shares.stop()

    async def read() -> None:
        shares.start()
        expected.append((await shares.persister.read(KEY, 1)).batches)
        shares.stop()

    expected: list[tuple[StateBatch, ...]] = []
    for work in (fill, read):
        broker = OneBroker(tmp_path, settings)
        shares = broker.shares
        asyncio.run(work())
        broker.close()
    written, found = expected
    assert found == written


def test_the_coordinator_of_a_share_partition_is_named_as_kafka_names_it() -> None:
    assert coordinator_key(KEY) == "workers:AAAAAAAAAAAAAAAAAAAABw:3"
