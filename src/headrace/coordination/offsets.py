"""Committed offsets of one shard: the next offset that each group reads.

The groups decide which member may commit; this module holds the offsets and their retention.
State changes only in `replay`; everything else returns records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.coordination.outcome import Record
from headrace.coordination.records import OffsetCommit, OffsetCommitKey
from headrace.types import TopicPartition


class OffsetToCommit(NamedTuple):
    """What a client commits for one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Offsets:
    """Offsets by group, topic and partition."""

    def __init__(self, retention_ms: int) -> None:
        self._retention_ms = retention_ms
        self._groups: dict[str, dict[str, dict[int, OffsetCommit]]] = {}
        self._pending: dict[int, dict[OffsetCommitKey, OffsetCommit]] = {}
        """By producer id: offsets in a transaction that is still open."""

    def replay(self, key: OffsetCommitKey, value: OffsetCommit | None) -> None:
        """Apply a record."""
        for held in self._pending.values():
            # A later commit of an open transaction must not overwrite this newer offset.
            held.pop(key, None)
        if value is not None:
            topics = self._groups.get(key.group_id)
            if topics is None:
                topics = self._groups[key.group_id] = {}
            partitions = topics.get(key.topic)
            if partitions is None:
                partitions = topics[key.topic] = {}
            partitions[key.partition] = value
            return
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._groups.pop(key.group_id, None)

    def replay_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommit) -> None:
        """Apply a record of an open transaction."""
        self._pending.setdefault(producer_id, {})[key] = value

    def end_transaction(self, producer_id: int, commit: bool) -> list[OffsetCommitKey]:
        """Apply or discard the offsets of the producer's transaction; returns their keys."""
        held = self._pending.pop(producer_id, {})
        if commit:
            for key, value in held.items():
                self.replay(key, value)
        return list(held)

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """Partitions whose offsets of this group are in an open transaction."""
        return frozenset(
            TopicPartition(key.topic, key.partition)
            for held in self._pending.values()
            for key in held
            if key.group_id == group_id
        )

    def has(self, group_id: str) -> bool:
        """Whether the group has any offsets, or will if a transaction is committed."""
        return group_id in self._groups or bool(self._pending and self.pending(group_id))

    def group_ids(self) -> list[str]:
        """The groups that have offsets."""
        return list(self._groups)

    def of(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommit]]:
        """The group's offsets by topic and partition."""
        return self._groups.get(group_id, {})

    def commit(
        self, group_id: str, offsets: Iterable[OffsetToCommit], wall_ms: int
    ) -> list[Record]:
        """The records that commit these offsets."""
        return [
            (
                OffsetCommitKey(group_id, one.topic, one.partition),
                OffsetCommit(one.offset, one.leader_epoch, one.metadata, wall_ms),
            )
            for one in offsets
        ]

    def forget(self, group_id: str, partition: TopicPartition) -> list[Record]:
        """The tombstone of one offset, if it exists."""
        if partition.partition not in self.of(group_id).get(partition.topic, {}):
            return []
        return [(OffsetCommitKey(group_id, *partition), None)]

    def forget_group(self, group_id: str) -> list[Record]:
        """The tombstones of all offsets of a group."""
        return self._tombstones(group_id, self.of(group_id)) + self._pending_tombstones(
            lambda key: key.group_id == group_id
        )

    def forget_topics(self, topics: Iterable[str]) -> list[Record]:
        """The tombstones of all groups' offsets of these topics."""
        gone = list(topics)
        return [
            record
            for group_id, known in self._groups.items()
            for record in self._tombstones(group_id, [one for one in gone if one in known])
        ] + self._pending_tombstones(lambda key: key.topic in gone)

    def _pending_tombstones(self, gone: Callable[[OffsetCommitKey], bool]) -> list[Record]:
        """Tombstones of offsets in open transactions, which a commit would restore otherwise."""
        return [(key, None) for held in self._pending.values() for key in held if gone(key)]

    def _tombstones(self, group_id: str, topics: Iterable[str]) -> list[Record]:
        return [
            (OffsetCommitKey(group_id, topic, partition), None)
            for topic in topics
            for partition in self._groups[group_id][topic]
        ]

    def expired(
        self,
        group_id: str,
        in_use: Callable[[str], bool],
        retained_from: Callable[[int], int | None],
        wall_ms: int,
    ) -> tuple[Sequence[Record], bool]:
        """The tombstones of a group's offsets that are too old, and whether any others remain.

        `in_use` returns whether a topic is subscribed to. `retained_from` returns when the
        retention of an offset began, given its commit time; None if it has not begun.
        """
        tombstones: list[Record] = []
        pending = self.pending(group_id)
        remain = bool(pending)
        for topic, partitions in self.of(group_id).items():
            kept = in_use(topic)
            for partition, committed in partitions.items():
                held = TopicPartition(topic, partition) in pending
                if kept or held or not self._is_old(committed, retained_from, wall_ms):
                    remain = True
                else:
                    tombstones.append((OffsetCommitKey(group_id, topic, partition), None))
        return tombstones, remain

    def _is_old(
        self, committed: OffsetCommit, retained_from: Callable[[int], int | None], wall_ms: int
    ) -> bool:
        if committed.expire_ms >= 0:
            return wall_ms >= committed.expire_ms
        start_ms = retained_from(committed.commit_ms)
        return start_ms is not None and wall_ms - start_ms >= self._retention_ms
