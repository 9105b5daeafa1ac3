"""Reads a shard from its log: the last value of every key, replayed in the order of writing.

A compacted log has the same records, so the result does not depend on compaction. Records of a
transaction take effect at its commit marker; those of an open transaction are replayed as pending.
All functions here are generators that yield regularly: a large log must not block the event loop.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Mapping

from crc32c import crc32c

from headrace.coordination import (
    consumer_records,
    records,
    share_group_records,
    streams_records,
    transaction_records,
)
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Record
from headrace.coordination.transactions import Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.wire import batch
from headrace.wire.markers import decode_marker
from headrace.wire.records import iterate

logger = logging.getLogger(__name__)

_STEP_BYTES = 64 * 1024
_STEP_RECORDS = 500


class Latest:
    """The last value of each key in the order of writing, and the records of open transactions."""

    __slots__ = ("offset", "pending", "records")

    def __init__(self) -> None:
        self.records: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}
        """By producer id."""
        self.offset = 0
        """The offset up to which the log was read."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Add a committed record."""
        self.records.pop(key, None)
        self.records[key] = value
        for held in self.pending.values():
            # This record is newer than those of open transactions, whenever these are committed.
            held.pop(key, None)

    def hold(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Add a record of an open transaction."""
        self.pending.setdefault(producer_id, {})[key] = value

    def end(self, producer_id: int, commit: bool) -> None:
        """Commit or discard the records of a transaction that has ended."""
        held = self.pending.pop(producer_id, {})
        if commit:
            for key, value in held.items():
                self.put(key, value)


def latest_records(partition: Partition, max_decompressed: int, latest: Latest) -> Iterator[None]:
    """Fill `latest` with the last value of each key in the log, in the order of writing."""
    offset = partition.replica.log.start_offset
    # To the log end: a leader's records become committed, or it stops being the leader.
    while offset < partition.replica.log.end_offset:
        latest.offset = offset
        found = partition.replica.read_to_end(offset, _STEP_BYTES, True)
        if found is None:
            return
        data = partition.replica.read_bytes(found)
        pos = 0
        while len(data) - pos >= batch.HEADER_BYTES:
            header = batch.read_header(data, pos)
            end = pos + header.size_bytes
            if crc32c(memoryview(data)[pos + batch.CHECKSUMMED_FROM : end]) != header.crc:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the batch at offset {header.base_offset} is damaged",
                )
            offset = header.next_offset
            if header.attributes & batch.CONTROL:
                marker = decode_marker(data[pos:end])
                if marker is not None:
                    latest.end(header.producer_id, marker.commit)
            else:
                held = header.attributes & batch.TRANSACTIONAL
                for record in iterate(data, pos, end, max_decompressed):
                    if record.key is None:
                        continue
                    if held:
                        latest.hold(header.producer_id, record.key, record.value)
                    else:
                        latest.put(record.key, record.value)
            pos = end
        yield


def replay_steps(groups: Groups, latest: Latest) -> Iterator[None]:
    """Replay what `latest_records` found in the log of groups."""
    for record in _decoded(latest.records, _decode):
        if record is None:
            yield
        else:
            groups.replay(*record)
    for producer_id, held in latest.pending.items():
        for record in _decoded(held, _decode):
            if record is None:
                yield
            else:
                groups.replay_pending(producer_id, *record)


def replay_transactions(transactions: Transactions, latest: Latest) -> Iterator[None]:
    """Replay what `latest_records` found in the log of transactions."""
    for record in _decoded(latest.records, transaction_records.decode):
        if record is None:
            yield
        else:
            transactions.replay(*record)


def _decoded(
    found: Mapping[bytes, bytes | None], decode: Callable[[bytes, bytes], Record]
) -> Iterator[Record | None]:
    """Every record that is not a tombstone; None where the caller should yield."""
    unknown: set[str] = set()
    for count, (key, value) in enumerate(found.items()):
        if count % _STEP_RECORDS == _STEP_RECORDS - 1:
            yield None
        if value is None:
            continue
        try:
            record = decode(key, value)
        except (ValueError, IndexError, struct.error) as error:
            if str(error) not in unknown:
                logger.warning("skipping a record that cannot be read: %s", error)
                unknown.add(str(error))
        else:
            yield record


def _decode(key: bytes, value: bytes) -> Record:
    if int.from_bytes(key[:2], "big") in consumer_records.KEY_TYPES:
        return consumer_records.decode(key, value)
    if int.from_bytes(key[:2], "big") in share_group_records.SHARE_KEY_TYPES:
        return share_group_records.decode(key, value)
    if int.from_bytes(key[:2], "big") in streams_records.STREAMS_KEY_TYPES:
        return streams_records.decode(key, value)
    return records.decode(key, value)
