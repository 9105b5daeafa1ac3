"""The state of share partitions in one shard of the share coordinator.

The leader of a partition reads the state when it begins to lead, and writes what changes. Two
epochs fence others: the state epoch grows when the offsets of the group are changed, the leader
epoch with every leader of the partition. Like groups, this is a state machine: operations return an
`Outcome`, and only `replay` changes state.
"""

from __future__ import annotations

import base64
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from headrace.coordination.outcome import AnyReply, Key, Outcome, Reply, Token, Value, answer
from headrace.coordination.shares.delivery import StateBatch, updated
from headrace.coordination.shares.share_records import (
    NOT_COUNTED,
    SharePartitionKey,
    ShareSnapshot,
    ShareSnapshotKey,
    ShareUpdate,
    ShareUpdateKey,
)
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError

_Response = TypeVar("_Response")

UNINITIALIZED = -1
"""The start offset of a share partition that no member has read yet."""


def coordinator_key(key: SharePartitionKey) -> str:
    """The name by which FindCoordinator knows a share partition."""
    topic = base64.urlsafe_b64encode(key.topic_id.bytes).decode().rstrip("=")
    return f"{key.group_id}:{topic}:{key.partition}"


class ShareStateWrite(NamedTuple):
    """A WriteShareGroupState for one share partition."""

    state_epoch: int
    leader_epoch: int
    start: int
    batches: tuple[StateBatch, ...]
    complete_count: int = NOT_COUNTED


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of one share partition."""

    state_epoch: int
    leader_epoch: int
    start: int
    batches: tuple[StateBatch, ...]
    complete_count: int
    snapshot_epoch: int
    created_ms: int
    updates: int = 0
    """Updates since the last snapshot."""


class ShareStates:
    """The share partitions of one shard."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self.wall = WallTime()
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._updates_per_snapshot = updates_per_snapshot

    # ---------------------------------------------------------------------------- life of a shard

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record, from the log or from an operation."""
        if isinstance(key, ShareSnapshotKey):
            if value is None:
                self.states.pop(key.of, None)
                return
            assert isinstance(value, ShareSnapshot)
            self.states[key.of] = ShareState(
                value.state_epoch, value.leader_epoch, value.start, value.batches,
                value.complete_count, value.snapshot_epoch, value.created_ms,
            )  # fmt: skip
            return
        assert isinstance(key, ShareUpdateKey)
        assert isinstance(value, ShareUpdate)
        known = self.states.get(key.of)
        if known is None or value.snapshot_epoch != known.snapshot_epoch:
            return  # of an older snapshot, or of state that was deleted
        self.states[key.of] = _after(known, value)

    def replay_pending(self, producer_id: int, key: Key, value: Value | None) -> None:
        """There are no transactions in this topic."""

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read; nothing is due."""
        return Outcome()

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """There are no timers here."""
        return Outcome()

    def withdraw(self, error: ErrorCode) -> list[AnyReply]:
        """No request waits here."""
        return []

    # --------------------------------------------------------------------------------- operations

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start: int, token: Token[None]
    ) -> Outcome:
        """InitializeShareGroupState: a new state, without batches.

        State that exists in this epoch is kept unless there is a start offset: the request may be
        one that was sent again.
        """
        known = self.states.get(key)
        if known is not None:
            if state_epoch < known.state_epoch:
                raise _fenced_state(state_epoch, known)
            if start == UNINITIALIZED:
                return answer(token, None)
        fresh = ShareSnapshot(
            0 if known is None else known.snapshot_epoch + 1,
            state_epoch,
            -1 if known is None else known.leader_epoch,
            start,
            self.wall.ms,
            self.wall.ms,
            (),
            0,
        )
        return Outcome([(ShareSnapshotKey(key), fresh)], [Reply(token, None)])

    def read(self, key: SharePartitionKey, leader_epoch: int, token: Token[ShareState]) -> Outcome:
        """ReadShareGroupState of the partition's leader; older leaders are fenced from then on."""
        known = self._state(key)
        _check_leader(leader_epoch, known)
        if leader_epoch <= known.leader_epoch:
            return answer(token, known)
        update = ShareUpdate(
            known.snapshot_epoch, leader_epoch, known.start, (), known.complete_count
        )
        return self._write(key, known, update, token, replace(known, leader_epoch=leader_epoch))

    def write(self, key: SharePartitionKey, write: ShareStateWrite, token: Token[None]) -> Outcome:
        """WriteShareGroupState."""
        known = self._state(key)
        if write.state_epoch != -1 and write.state_epoch != known.state_epoch:
            raise _fenced_state(write.state_epoch, known)
        _check_leader(write.leader_epoch, known)
        update = ShareUpdate(
            known.snapshot_epoch,
            max(write.leader_epoch, known.leader_epoch),
            write.start,
            write.batches,
            write.complete_count,
        )
        return self._write(key, known, update, token, None)

    def _write(
        self,
        key: SharePartitionKey,
        known: ShareState,
        update: ShareUpdate,
        token: Token[_Response],
        response: _Response,
    ) -> Outcome:
        """Write an update, or a snapshot if there were enough updates."""
        if known.updates < self._updates_per_snapshot:
            return Outcome([(ShareUpdateKey(key), update)], [Reply(token, response)])
        snapshot = self._snapshot(_after(known, update))
        return Outcome([(ShareSnapshotKey(key), snapshot)], [Reply(token, response)])

    def _snapshot(self, state: ShareState) -> ShareSnapshot:
        return ShareSnapshot(
            state.snapshot_epoch + 1,
            state.state_epoch,
            state.leader_epoch,
            state.start,
            state.created_ms,
            self.wall.ms,
            state.batches,
            state.complete_count,
        )

    def snapshots(self) -> Outcome:
        """A new snapshot of everything; older records of the log are not needed after it."""
        return Outcome(
            [(ShareSnapshotKey(key), self._snapshot(state)) for key, state in self.states.items()]
        )

    def delete(self, key: SharePartitionKey, token: Token[None]) -> Outcome:
        """DeleteShareGroupState; state that does not exist is no error."""
        if key not in self.states:
            return answer(token, None)
        return Outcome([(ShareSnapshotKey(key), None)], [Reply(token, None)])

    def summary(self, key: SharePartitionKey, token: Token[ShareState]) -> Outcome:
        """ReadShareGroupStateSummary: the same without a leader epoch."""
        return answer(token, self._state(key))

    def without_topics(self, there: Container[UUID]) -> Outcome:
        """Delete the state of topics that are not `there` any more."""
        return Outcome(
            [(ShareSnapshotKey(key), None) for key in self.states if key.topic_id not in there]
        )

    def _state(self, key: SharePartitionKey) -> ShareState:
        known = self.states.get(key)
        if known is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The state of {coordinator_key(key)} is not initialized.",
            )
        return known


def _after(known: ShareState, update: ShareUpdate) -> ShareState:
    start = known.start if update.start == UNINITIALIZED else max(update.start, known.start)
    return replace(
        known,
        leader_epoch=max(known.leader_epoch, update.leader_epoch),
        start=start,
        batches=updated(known.batches, update.batches, start),
        complete_count=update.complete_count,
        updates=known.updates + 1,
    )


def _check_leader(leader_epoch: int, known: ShareState) -> None:
    if leader_epoch != -1 and leader_epoch < known.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"The leader epoch {leader_epoch} is older than {known.leader_epoch}.",
        )


def _fenced_state(state_epoch: int, known: ShareState) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_STATE_EPOCH,
        f"The state epoch {state_epoch} is not the current one, {known.state_epoch}.",
    )
